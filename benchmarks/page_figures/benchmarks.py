"""docs/benchmarks.md, and what other pages say of the same results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from figures import Pages, figure, result, spread, table
from page_figures.packing import largest_of_atari_100k
from training_figures import page_tables

MIB = 2**20

million, up_n_down = result("million_breakout"), result("million_upndown")
sampling, sampling_256 = result("sampling"), result("sampling_256_2_threads")
threads = result("threads")
bench = result("bench-breakout/Breakout")
learners = result("learners")["games"]
priorities = result("priorities")["microseconds"]
loading = result("loading")["settings"]
trained_play = result("trained_play")["runs"]
rates = result("recipe_rates")
environments = result("environments")["games"]
vector_environments = result("vector_environments")["games"]
make_train = result("learning/make_train")["seeds"]
same_training = result("same_training")["trainings"]
logged = result("offline")["games"]
rllib, shard = result("distributed")["rllib"], result("distributed")["subjects"]["1 shard"]
crashes, kills = result("crashes")["tried"].values(), result("kills")

BARE_2, RATE = "bare emulator, 2 processes", "agent_steps_per_second"
QUESTIONS = {
    "uniform": "uniform",
    "prioritized": "by priority, with the update",
    "n_step": "3 steps",
    "sequences": "sequences of 80",
}
_to_bare = {game: row["sample_of_bare_copy"] for game, row in sampling["games"].items()}
_lightest, _heaviest = min(_to_bare, key=_to_bare.__getitem__), max(_to_bare, key=_to_bare.__getitem__)
LEARNERS = ("framestow", "framestow, 2 threads", "bare copy", "cpprb", "Stable-Baselines3", "Tianshou", "TorchRL")


def crash_count(name: str) -> int:
    return sum(each.get(name, 0) for each in crashes)


def million_table() -> str:
    both = (million, up_n_down)
    rows = [
        ["bytes a transition, everything counted", *(f"{each['bytes_a_transition']:.1f}" for each in both)],
        [
            "resident memory over the bare process, MiB",
            *(whole_mib(each["resident_bytes_over_bare_process"]) for each in both),
        ],
    ]
    for training in ("training", "training_with_cuda"):
        sizes = [whole_mib(each[training]["process_bytes"]) for each in both]
        rows += [[f"a process that trains from them, PyTorch {million[training]['torch']}, MiB", *sizes]]
    return table(["", "Breakout", "UpNDown"], rows)


def whole_mib(nbytes: float) -> str:
    return f"{nbytes / MIB:,.0f}"


def more_bytes(run: Mapping[str, Any]) -> float:
    """Return how many per cent more bytes an agent's play takes than random play."""
    return 100 * (run["agent"]["bytes_a_transition"] / run["random"]["bytes_a_transition"] - 1)


def trained_rows() -> Iterator[list[str]]:
    for run in trained_play:
        score = "" if run["agent"]["mean_score"] is None else f"{run['agent']['mean_score']:,.1f}"
        names = [f"{run['game']}, recipe {run['recipe']}, preset {run['preset']}", f"{run['agent_steps']:,}", score]
        sizes = [f"{run[player]['bytes_a_transition']:.1f}" for player in ("random", "agent")]
        yield [*names, *sizes, f"{round(more_bytes(run)):+d} %"]


def bench_table() -> str:
    rows = []
    for row in bench["systems"]:
        name = f"{row['name']}: {row['setting']}" if row["setting"] else row["name"]
        figures = [f"{row['bytes_per_transition']:,.0f}", f"{row['sample_us']:,.0f}", f"{row['append_us']:,.1f}"]
        rows.append([name, *figures, row["gives_up"]])
    heads = ["bytes a transition", "`sample(32)`, µs", "adding a step, µs", "gives up"]
    return table(["system, at its best setting", *heads], rows)


def sampling_table() -> str:
    heads = [
        "game",
        "bytes a transition",
        "`sample(32)`, µs",
        "of the bare copy",
        "`append` of 1 environment, µs",
        "of 8",
    ]
    forms = {
        "bytes_per_transition": ".0f",
        "sample_us": ".0f",
        "sample_of_bare_copy": ".2f",
        "append_us": ".1f",
        "append_us_of_8_envs": ".1f",
    }
    rows = {**sampling["games"], "*geometric mean*": sampling["geometric_mean"]}
    return table(
        heads, ([name, *(format(row[key], form) for key, form in forms.items())] for name, row in rows.items())
    )


def learners_tables() -> Iterator[str]:
    for question, title in QUESTIONS.items():
        rows = {
            (game, row["system"], row["batch_size"]): row
            for game, figures in learners.items()
            for row in figures["rows"]
            if row["question"] == question
        }
        sizes = sorted({size for _, _, size in rows})
        columns = [(game, size) for game in learners for size in sizes]
        systems = dict.fromkeys(name for _, name, _ in rows)
        order = [*LEARNERS, *(name for name in systems if name not in LEARNERS)]
        yield table(
            [title, "stored", *(f"{game} {size}" for game, size in columns)],
            (
                learner_cells(name, [rows[game, name, size] for game, size in columns])
                for name in order
                if name in systems
            ),
        )


def learner_cells(name: str, rows: list[Mapping[str, Any]]) -> list[str]:
    stored = f"{rows[0]['transitions']:,}" if "transitions" in rows[0] else ""
    if name == "framestow":
        return [name, stored, *(f"{row['us']:,.0f} µs" for row in rows)]
    return [name, stored, *(f"{row['times_framestow']:.2f}" for row in rows)]


def priority_rows() -> Iterator[list[str]]:
    for name, key in (
        ("framestow's `Prioritized`", "framestow, sampler"),
        ("TorchRL's `PrioritizedSampler`", "TorchRL, sampler"),
        ("cpprb's `PrioritizedReplayBuffer`, frames of one pixel included", "cpprb, memory"),
        ("framestow's `memory.sample` and `update_priorities`, frames of one pixel included", "framestow, memory"),
        ("TorchRL's `TensorDictReplayBuffer`, frames of one pixel included", "TorchRL, memory"),
        ("framestow's native tree alone, with weights and powers", "framestow, tree"),
        ("TorchRL's two segment trees alone, with weights and powers", "TorchRL, trees"),
    ):
        yield [name, *(f"{priorities[f'{key}, {size}']:.1f}" for size in (32, 256))]


def loading_rows() -> Iterator[list[str]]:
    for row in loading:
        dtype = "" if row["dtype"] == "uint8" else f", `{row['dtype']}`"
        learner = "5 ms" if row["learner"]["update_ms"] < 10 else "Nature CNN"
        waits = [f"{row[how]['wait_us']:,.0f}" for how in ("sample", "loader")]
        updates = [f"{row[how]['update_ms']:.2f}" for how in ("sample", "loader", "learner")]
        yield [f"{row['batch_size']:,} of {row['game'].title()}{dtype}", learner, *waits, *updates]


def rate_rows(games: Mapping[str, Mapping[str, Any]], ours: str) -> Iterator[list[str]]:
    first = next(iter(games.values()))
    for name in first:
        cells = []
        for systems in games.values():
            row = systems[name]
            rate = f"{row['agent_steps_per_second']:,}"
            ratios = [row[key] for key in ("ours_to_it", "ours_to_it_tenth", "ours_to_it_nine_tenths")]
            cells.append(rate if name == ours else f"{rate} ({ratios[0]:.2f}; {ratios[1]:.2f} to {ratios[2]:.2f})")
        yield [name, *cells]


def recipe_rows() -> Iterator[list[str]]:
    for name, key in (
        ("`laptop`, one thread", "laptop"),
        ("with `--network nature`, one thread", "laptop, network nature"),
        ("with `--network nature`, all cores", "laptop, network nature, all cores"),
    ):
        row = rates[key]
        yield [name, f"{row['steps_a_second']:.0f}", f"{row['update_ms']:.1f}", f"{row['busy_steps_a_second']:.0f}"]


def seed_rows() -> Iterator[list[str]]:
    for seed, row in make_train.items():
        nbytes = [f"{row['memory_bytes'] / MIB:.1f}", f"{row['largest_resident_bytes'] / MIB:.0f}"]
        scores = [f"{row[f'{average}_of_last_20_games']:.2f}" for average in ("mean", "median")]
        yield [seed, *scores, f"{row['core_hours']:.3f}", *nbytes]


def logged_rows() -> Iterator[list[str]]:
    def cells(read: Any) -> list[str]:
        both = [(read(game), game["transitions"]) for game in logged.values()]
        return [cell for nbytes, steps in both for cell in (f"{nbytes / MIB:.1f} MiB", f"{nbytes / steps:,.0f}")]

    changed = " and ".join(f"{100 * game['minari_jpeg']['share_of_pixels_changed']:.0f} %" for game in logged.values())
    yield ["uncompressed frames", *cells(lambda game: game["frame_bytes_uncompressed"])]
    yield ["Minari, lossless (HDF5)", *cells(lambda game: game["minari"]["file_bytes"])]
    jpeg = f"Minari's default, JPEG: {changed} of the pixels differ"
    yield [jpeg, *cells(lambda game: game["minari_jpeg"]["file_bytes"])]
    yield ["DQN Replay, gzip level 9 as Dopamine's", *cells(lambda game: game["dqn_replay"]["file_bytes"])]
    yield ["a store", *cells(lambda game: game["store"]["file_bytes"])]


def conversion_rows() -> Iterator[list[str]]:
    for name, library, what in (
        ("NumPy loads the DQN Replay arrays", "dqn_replay", "numpy"),
        ("`framestow import dqn-replay`", "dqn_replay", "import"),
        ("`framestow import minari`", "minari", "import"),
        ("`framestow export minari`", "minari", "export"),
    ):
        rows = [game[library][what] for game in logged.values()]
        cells = ([f"{row['cpu_seconds']:.1f}", f"{row['peak_resident_bytes'] / MIB:.0f}"] for row in rows)
        yield [name, *(cell for both in cells for cell in both)]


def disk_rows() -> Iterator[list[str]]:
    saving, fifty_million = result("saving"), result("fifty_million")
    command = "`python benchmarks/fifty_million.py --transitions 50_000_000`"
    limit = fifty_million["limit"]["mb"] / 1000
    found = crash_count("changed and cut off bytes that were found") // 2
    tried = found + crash_count("changed and cut off bytes that were harmless") // 2
    stored = f"{saving['store_bytes'] / MIB:.1f} MiB"
    yield [
        f"a million transitions of Breakout, {stored}, saved (`python benchmarks/saving.py`)",
        f"{saving['first_save_s']:.2f} s",
    ]
    yield ["10,000 new ones", f"{saving['save_again_s_median']:.2f} s"]
    yield [
        f"50 million of ten games, {fifty_million['gb_on_disk']:.1f} GB on disk, sampled under a limit of "
        f"{limit:.0f} GB, page "
        f"cache included: 32 ({command})",
        f"{fifty_million['sample(32)']['median_ms']:.1f} ms",
    ]
    share = 100 * result("flushing")["flush_thread_cpu_share"]
    yield [
        "processor time that a flush every 5 seconds adds to acting and sampling (`python benchmarks/flushing.py`)",
        f"{share:.1f} %",
    ]
    yield [
        f"{crash_count('kills'):,} kills and {crash_count('losses of power'):,} simulated losses of power "
        "(`make crashes`)",
        "lost nothing that a flush had covered",
    ]
    yield [
        f"{tried:,} changed or missing bytes (`make crashes`)",
        f"{found:,} found; the others change nothing that is returned",
    ]
    yield [
        f"a training killed {kills['kills']} times (`make kills`)",
        "resumed each time, equal to an uninterrupted one",
    ]


def candidates(games: Mapping[str, Any]) -> dict[str, Any]:
    return {name: figures["candidates"] for name, figures in games.items()}


def threads_table() -> str:
    keys = ("threads_1", "threads_2", "bare_copy")
    rows = [
        [*(f"{row[key]:,.0f}" for key in keys), f"{row['two_threads_to_bare_copy']:.2f}"]
        for row in threads["read"].values()
    ]
    names = dict(zip(threads["read"], sampling["games"], strict=True))
    return table(
        ["game", "one thread, µs", "two threads", "bare copy", "two threads to the bare copy"],
        ([names[game], *cells] for game, cells in zip(threads["read"], rows, strict=True)),
    )


def writer_rows() -> Iterator[list[str]]:
    for samplers, row in threads["append_beside_samplers"].items():
        rate = f"{row['batches_a_s']:,.0f}" if row["batches_a_s"] else ""
        yield [samplers, f"{row['median_us']:.0f}", f"{row['percentile_99_us']:.0f}", rate]


_largest = largest_of_atari_100k(3)
_ratios = [game["sample_of_bare_copy"] for game in sampling["games"].values()]
_ratios_256 = [game["sample_of_bare_copy"] for game in sampling_256["games"].values()]
_two_threads = [game["two_threads_to_bare_copy"] for game in threads["read"].values()]
_ours_of_uniform = [figures["framestow_bytes_a_transition"] for figures in learners.values()]
_draws = {
    size: [priorities[f"framestow, sampler, {size}"], priorities[f"TorchRL, sampler, {size}"]] for size in (32, 256)
}
_most_more = max(trained_play, key=more_bytes)
_ours, _plain = same_training
_pong = list(result("learning/pong_laptop")["seeds"].values())
_of_two = [figure(100 * systems[BARE_2]["ours_to_it"]) for systems in candidates(vector_environments).values()]
_lockstep = [
    figure(100 * systems["the same in lockstep, 2 processes"][RATE] / systems[BARE_2][RATE])
    for systems in candidates(vector_environments).values()
]
_threaded = [
    systems[name]["ours_to_it"]
    for systems in candidates(vector_environments).values()
    for name in ("ALE AtariVectorEnv", "EnvPool")
]

PAGES: Pages = {
    "README.md": [
        f"A trained agent's play may take more bytes than random play: in {figure(_most_more['game'])} "
        f"{figure(_most_more['agent']['bytes_a_transition'])} a transition instead of "
        f"{figure(_most_more['random']['bytes_a_transition'])} ([four games]"
    ],
    "docs/saving.md": [f"Play of trained agents took up to {figure(more_bytes(_most_more))} % more than random play"],
    "docs/benchmarks.md": [
        f"two cores of an AMD EPYC with {figure(sampling['machine']['memory_gib'], '.1f')} GiB",
        f"Of Atari-100k, {figure(_largest[0])}, {figure(_largest[1])} and {figure(_largest[2])} take the most bytes",
        million_table(),
        table(
            ["agent", "agent steps", "mean score", "random play, bytes a transition", "its own play", "more"],
            trained_rows(),
        ),
        sampling_table(),
        f"Over the ten games a batch takes {spread(_ratios, '.1f')} times as long as the bare copy",
        f"Two threads unpack a batch of 256 in {spread(_two_threads, '.1f')} times what a bare copy takes, "
        f"{figure(threads['two_threads_to_bare_copy'], '.1f')} times over ten games",
        f"The whole `sample(256)` takes {spread(_ratios_256, '.1f')} times, "
        f"{figure(sampling_256['geometric_mean']['sample_of_bare_copy'], '.1f')} over ten games",
        f"Breakout ({figure(_ours_of_uniform[0])} bytes each in framestow) and of MsPacman "
        f"({figure(_ours_of_uniform[1])})",
        *learners_tables(),
        table(["µs for a draw and an update", "batch of 32", "256"], priority_rows()),
        f"The sampler takes {figure(_draws[32][1] / _draws[32][0], '.1f')} and "
        f"{figure(_draws[256][1] / _draws[256][0], '.1f')} times less than TorchRL's",
        table(
            [
                "batches",
                "learner",
                "wait for a batch, µs: `sample`",
                "loader",
                "an update, ms: `sample`",
                "loader",
                "alone",
            ],
            loading_rows(),
        ),
        table(["", ""], disk_rows(), numbers_right=False),
        *page_tables(result("training")),
        table(["recipe", "steps a second", "one update, ms", "beside a busy process"], recipe_rows()),
        f"So `layernorm` makes "
        f"{figure(rates['laptop']['steps_a_second'] / rates['laptop, network nature']['steps_a_second'], '.1f')} "
        f"times the steps on one thread",
        table(["one environment, one core", *environments], rate_rows(environments, "framestow AtariEnv")),
        table(
            ["eight environments, two cores", *vector_environments],
            rate_rows(candidates(vector_environments), "framestow WorkerVectorEnv"),
        ),
        f"`WorkerVectorEnv` reaches {_of_two[0]} % of that in Breakout and {_of_two[1]} % in Pong",
        f"with a byte sent and received for each process and step, is at {_lockstep[0]} % and {_lockstep[1]} %",
        table(
            ["seed", "mean of the last 20 games", "median", "core-hours", "memory, MiB", "process, MiB"], seed_rows()
        ),
        f"their time on the clock was {spread(60 * seed['hours_on_the_clock'] for seed in make_train.values())} "
        "minutes",
        f"and ended at {figure(_pong[0]['mean_of_last_20_games'], '.2f')} after "
        f"{figure(_pong[0]['core_hours'], '.2f')}",
        f"was stopped at {figure(_pong[1]['mean_of_last_20_games'], '.1f')} after two million and "
        f"{figure(_pong[1]['core_hours'], '.2f')} core-hours. Each had "
        f"{figure(max(row['memory_bytes'] for row in _pong) / MIB)} MiB of "
        f"memory and a process of at most {figure(max(row['largest_resident_bytes'] for row in _pong) / MIB)} MiB",
        f"for {figure(_ours['agent_steps'])} steps ({figure(_ours['updates'])} updates) with a capacity of "
        f"{figure(result('same_training')['capacity'])} transitions",
        f"framestow's memory takes {figure(_ours['memory_bytes'] / MIB, '.1f')} MiB and its process "
        f"{figure(_ours['peak_resident_bytes'] / MIB)} MiB at most; the arrays take "
        f"{figure(_plain['memory_bytes'] / MIB)} "
        f"MiB and their process {figure(_plain['peak_resident_bytes'] / MIB)} MiB",
        table(
            ["", "Breakout: bytes on disk", "a step", "MsPacman: bytes on disk", "a step"],
            logged_rows(),
        ),
        table(["", "Breakout: CPU, s", "most memory, MiB", "MsPacman: CPU, s", "most memory, MiB"], conversion_rows()),
    ],
    "docs/compare.md": [
        bench_table(),
        f"A bare NumPy copy of as many frames takes {figure(bench['bare_copy']['sample_us'])} µs",
        f"and took {figure(rllib['bytes_a_transition'])} bytes a transition and "
        f"{figure(rllib['batch_ms_median'])} ms a batch "
        f"of 256. A framestow shard took {figure(shard['bytes_a_transition'])} bytes and "
        f"{figure(shard['batch_ms_median'])} ms",
        f"`sample(32)` takes {figure(_to_bare[_lightest], '.1f')} ({figure(_lightest)}) to "
        f"{figure(_to_bare[_heaviest], '.1f')} ({figure(_heaviest)}) times as long as a bare copy",
    ],
    "docs/threads.md": [
        threads_table(),
        table(["samplers", "median", "99th percentile", "batches a second"], writer_rows()),
    ],
    "docs/environments.md": [
        f"`WorkerVectorEnv` makes [{spread(_threaded, '.2f')} times](benchmarks.md#environments)",
    ],
}
