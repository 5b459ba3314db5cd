"""The tables of the pages, and the sentences that count in them, each by the name of its block.

One small function makes each, over ``benchmarks/results``.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from figures import result, table
from training_figures import speed_table

MIB, GIB = 2**20, 2**30


def million() -> str:
    both = [result("million_breakout"), result("million_upndown")]
    grown = [f"{each['resident_bytes_over_bare_process'] / MIB:,.0f}" for each in both]
    rows = [
        ["bytes per transition, everything counted", *(f"{each['bytes_a_transition']:.1f}" for each in both)],
        ["resident memory over the bare process, MiB", *grown],
    ]
    for training in ("training", "training_with_cuda"):
        sizes = [f"{each[training]['process_bytes'] / MIB:,.0f}" for each in both]
        rows.append([f"a process that trains from them, PyTorch {both[0][training]['torch']}, MiB", *sizes])
    return table(["", "Breakout", "UpNDown"], rows)


def bench() -> str:
    rows = []
    for row in result("bench-breakout/Breakout")["systems"]:
        name = f"{row['name']}: {row['setting']}" if row["setting"] else row["name"]
        figures = [f"{row['bytes_per_transition']:,.0f}", f"{row['sample_us']:,.0f}", f"{row['append_us']:,.1f}"]
        rows.append([name, *figures, what_it_costs(row)])
    heads = ["bytes per transition", "`sample(32)`, µs", "adding a step, µs", "gives up"]
    return table(["system, at its best setting", *heads], rows)


def what_it_costs(row: Mapping[str, Any]) -> str:
    """Return what a system's setting gives up, as a reader of a table notices it."""
    return str(row["gives_up"]).replace("truncation", "bootstrapping at time limits")


def sample_32() -> str:
    """Return the times of framestow's own memory and of a drop-in, beside Stable-Baselines3's, and what each counts."""
    own = {row["name"]: f"{row['sample_us']:,.0f}" for row in result("bench-breakout/Breakout")["systems"]}
    games = result("drop_ins")["libraries"]["stable-baselines3"]["games"].values()
    ours, theirs = (" / ".join(f"{rows[which]['sample_us']:,.0f}" for rows in games) for which in (0, 1))
    rows = [
        ["framestow's own memory, Breakout", own["Stable-Baselines3"], own["framestow, packed"]],
        ["the drop-in, Breakout / MsPacman", theirs, ours],
    ]
    return table(["`sample(32)`, µs", "Stable-Baselines3's buffer", "framestow"], rows)


def zlib_frames() -> str:
    rows = []
    for title, key in (
        ("bytes per transition", "bytes_per_transition"),
        ("`sample(32)`, µs of a processor", "sample_us"),
    ):
        games = result("zlib_frames")["games"].values()
        rows.append([title, *(" / ".join(f"{game[name][key]:,.0f}" for game in games) for name in ("zlib", "core"))])
    return table(["Breakout / MsPacman", "zlib, a frame at a time", "the core"], rows)


def sampling() -> str:
    columns = {
        "bytes per transition": ("bytes_per_transition", ".0f"),
        "`sample(32)`, µs": ("sample_us", ".0f"),
        "of the bare copy": ("sample_of_bare_copy", ".2f"),
        "`append` of 1 environment, µs": ("append_us", ".1f"),
        "of 8": ("append_us_of_8_envs", ".1f"),
    }
    figures = result("sampling")
    rows = {**figures["games"], "*geometric mean*": figures["geometric_mean"]}
    cells = ([name, *(format(row[key], form) for key, form in columns.values())] for name, row in rows.items())
    return table(["game", *columns], cells)


LEARNERS = ("framestow", "framestow, 2 threads", "bare copy", "cpprb", "Stable-Baselines3", "Tianshou", "TorchRL")


def learners(question: str, title: str) -> str:
    games = result("learners")["games"]
    rows = {
        (row["system"], game, row["batch_size"]): row
        for game, figures in games.items()
        for row in figures["rows"]
        if row["question"] == question
    }
    sizes = sorted({size for _, _, size in rows})
    columns = [(game, size) for game in games for size in sizes]
    measured = dict.fromkeys(system for system, _, _ in rows)
    systems = [name for name in dict.fromkeys((*LEARNERS, *measured)) if name in measured]
    cells = (learner_cells(name, [rows[name, game, size] for game, size in columns]) for name in systems)
    return table([title, "stored", *(f"{game} {size}" for game, size in columns)], cells)


def learner_cells(name: str, rows: list[Mapping[str, Any]]) -> list[str]:
    stored = f"{rows[0]['transitions']:,}" if "transitions" in rows[0] else ""
    if name == "framestow":
        return [name, stored, *(f"{row['us']:,.0f} µs" for row in rows)]
    return [name, stored, *(f"{row['times_framestow']:.2f}" for row in rows)]


def loading() -> str:
    rows = []
    for row in result("loading")["settings"]:
        dtype = "" if row["dtype"] == "uint8" else f", `{row['dtype']}`"
        learner = "5 ms" if row["learner"]["update_ms"] < 10 else "Nature CNN"
        waits = [f"{row[how]['wait_us']:,.0f}" for how in ("sample", "loader")]
        updates = [f"{row[how]['update_ms']:.2f}" for how in ("sample", "loader", "learner")]
        rows.append([f"{row['batch_size']:,} of {row['game'].title()}{dtype}", learner, *waits, *updates])
    waits = ["wait for a batch, µs: `sample`", "loader"]
    return table(["batches", "learner", *waits, "an update, ms: `sample`", "loader", "alone"], rows)


def append_beside_samplers() -> str:
    rows = []
    for samplers, row in result("threads")["append_beside_samplers"].items():
        rate = f"{row['batches_a_s']:,.0f}" if row["batches_a_s"] else ""
        rows.append([samplers, f"{row['median_us']:.0f}", f"{row['percentile_99_us']:.0f}", rate])
    return table(["samplers", "median", "99th percentile", "batches a second"], rows)


def saving() -> str:
    figures = result("saving")
    kinds = {
        f"first save, {figures['store_bytes'] / MIB:.1f} MiB": ("first_save_s", "first_save_peak_bytes"),
        f"{figures['new_steps']:,} steps later": ("save_again_s_median", "save_again_peak_bytes"),
        "load": ("load_s", "load_peak_over_loaded_bytes"),
    }
    rows = ([name, f"{figures[s]:.2f}", f"{figures[nbytes] / MIB:.1f} MiB"] for name, (s, nbytes) in kinds.items())
    return table(["", "seconds", "additional memory"], rows)


def fifty_million() -> str:
    figures = result("fifty_million")
    bytes_each = figures["gb_on_disk"] * 1e9 / figures["transitions"]
    own = [str(figures[f"resident_mb_{when}"]) for when in ("before_opening", "after_opening", "after_sampling")]
    rows = [
        ["on the disk", f"{figures['gb_on_disk']:.2f} GB, {bytes_each:.0f} bytes per transition"],
        ["opening, nothing of it in the page cache", f"{figures['opening_s']:.1f} s"],
        ["the process's own memory, before opening, after, after sampling", f"{', '.join(own)} MB"],
        ["page cache within the limit", f"{figures['limit']['page_cache_mb']:,} MB"],
    ]
    for size in (32, 256):
        row = figures[f"sample({size})"]
        times = f"{row['median_ms']:.3g} and {row['99th_percentile_ms']:.0f} ms"
        rows.append([f"`sample({size})`, median and 99th percentile", times])
    return table(["", ""], rows, numbers_right=False)


def packing() -> str:
    """Return the frames of ten games, of the slowest of the others, and synthetic ones."""
    sets, frames = (result("packing")[name] for name in ("sets", "frames"))

    def row(name: str) -> list[str]:
        return [name.replace("_", " ").title(), *packing_cells(frames[name])]

    def mean(title: str, set_name: str) -> list[str]:
        return [f"*geometric mean of {title}*", *packing_cells(sets[set_name]["geometric_mean"])]

    slowest = sorted(sets["Atari-100k"]["names"], key=lambda name: frames[name]["ratio_to_bare_copy"])[-2:]
    rows = [*map(row, sets["the ten"]["names"]), mean("these ten", "the ten"), *map(row, slowest)]
    rows += [mean("all 26", "Atari-100k"), *map(row, sets["synthetic"]["names"])]
    heads = ["bytes per frame", "of raw", "µs per batch", "to the bare copy", "µs to pack one, median", "mean"]
    return table(["frames", *heads], rows)


def packing_cells(row: Mapping[str, float]) -> list[str]:
    nbytes = [f"{row['bytes_per_frame']:,.0f}", f"{100 * row['of_raw']:.1f} %"]
    read = [f"{row['read_us']:,.0f}", f"{row['ratio_to_bare_copy']:.2f}"]
    return [*nbytes, *read, f"{row['pack_us']:.1f}", f"{row['pack_mean_us']:.1f}"]


def drop_ins() -> str:
    """Return a line for each buffer of another library's."""
    heads = ("bytes per transition", "ours", "`sample(32)`, µs", "ours", "a step's `add`, µs", "ours")
    libraries = result("drop_ins")["libraries"]
    rows = (
        drop_in_cells(f"{library}, {theirs['system']}", index, list(figures["games"].values()))
        for library, figures in libraries.items()
        for index, theirs in enumerate(next(iter(figures["games"].values()))[1:], start=1)
    )
    return table(["the library's own buffer", *heads], rows)


def drop_in_cells(name: str, index: int, games: list[list[Mapping[str, Any]]]) -> list[str]:
    """Return the cells of the buffer at ``index``, beside ours; of both games where they differ."""
    gives_up = what_it_costs(games[0][index])
    cells = [f"{name} (gives up {gives_up})" if gives_up else name]
    for figure in ("bytes_a_transition", "sample_us", "add_us_of_1"):
        for which in (index, 0):
            cells.append(" / ".join(dict.fromkeys(f"{rows[which][figure]:,.0f}" for rows in games)))
    return cells


SMALLER = "Stable-Baselines3's buffer, optimize_memory_usage"


def drop_in_training() -> str:
    rows = []
    buffers = result("drop_in_training")["buffers"]
    for name, buffer in (
        ("Stable-Baselines3's buffer", "Stable-Baselines3's buffer"),
        ("the same with `optimize_memory_usage`, which cannot bootstrap at time limits", SMALLER),
        ("framestow's", "framestow's buffer"),
    ):
        row = buffers[buffer]
        gib = row["resident_bytes_of_a_million"] / GIB
        rows.append([name, f"{gib:.{2 if gib < 1 else 1}f} GiB", f"{row['steps_a_second']:.0f}"])
    return table(["DQN on Breakout with a million transitions", "RAM of the process", "steps per second"], rows)


def recipes() -> str:
    rows = []
    for name, key in (
        ("`laptop`, one thread", "laptop"),
        ("with `--network nature`, one thread", "laptop, network nature"),
        ("with `--network nature`, all cores", "laptop, network nature, all cores"),
    ):
        row = result("recipe_rates")[key]
        rates = [f"{row[rate]:.0f}" for rate in ("steps_a_second", "busy_steps_a_second")]
        rows.append([name, rates[0], f"{row['update_ms']:.1f}", rates[1]])
    return table(["recipe", "steps per second", "one update, ms", "beside a busy process"], rows)


def environments() -> str:
    games = result("environments")["games"]
    return rates("one environment, one core", games, "framestow AtariEnv")


def vector_environments() -> str:
    games = {name: each["candidates"] for name, each in result("vector_environments")["games"].items()}
    return rates("eight environments, two cores", games, "framestow WorkerVectorEnv")


def drop_in_vector_environments() -> str:
    rows = []
    for case in result("drop_in_vector_environments")["cases"]:
        rates, times = case["steps_per_second"], case["times_the_librarys"]
        cells = [f"{case['shape']}, {case['step_ms']:g} ms"]
        for name, rate in rates.items():
            ratio = times.get(name)
            compared = f" ({ratio[0]:.2f}; {ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else ""
            cells.append(f"{rate:,}{compared}")
        rows.append(cells)
    return table(["picture, a step", *rates], rows)


def rates(title: str, games: Mapping[str, Mapping[str, Mapping[str, float]]], ours: str) -> str:
    rows = []
    for name in next(iter(games.values())):
        cells = []
        for row in (systems[name] for systems in games.values()):
            ratio, low, high = (row[f"ours_to_it{part}"] for part in ("", "_tenth", "_nine_tenths"))
            compared = "" if name == ours else f" ({ratio:.2f}; {low:.2f} to {high:.2f})"
            cells.append(f"{row['agent_steps_per_second']:,}{compared}")
        rows.append([name, *cells])
    return table([title, *games], rows)


def short(value: float) -> str:
    """Return a number with two digits at least: 0.7, 7.9, 15."""
    return f"{value:.1f}" if 0 < value < 9.95 else f"{value:,.0f}"


def shards() -> str:
    subjects = result("distributed")["subjects"]

    def row(name: str, cells: Callable[[Mapping[str, Any]], str]) -> list[str]:
        return [name, *map(cells, subjects.values())]

    def processor(unit: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: ", ".join(short(row[f"processor_{unit}_{where}"]) for where in ("here", "in_shards"))

    rows = [
        row("processor µs per step: here, in shards", processor("us_a_step")),
        row("processor ms per batch: here, in shards", processor("ms_a_batch")),
        row("steps per second", lambda row: f"{row['steps_a_second']:,.0f}"),
        row("batches a second, one at a time", lambda row: f"{row['batches_a_second_one_at_a_time']:.0f}"),
        row("batches a second, 4 ahead", lambda row: f"{row['batches_a_second_ahead']:.0f}"),
        row("ms per batch, median (99 %)", lambda row: f"{short(row['batch_ms_median'])} ({row['batch_ms_99']:.0f})"),
    ]
    return table(["", "one memory", *list(subjects)[1:]], rows)


def make_train() -> str:
    rows, figures = [], result("learning/make_train")
    averages = figures["averages_of_seeds"]
    for seed, row in figures["seeds"].items():
        nbytes = [f"{row['memory_bytes'] / MIB:.1f}", f"{row['largest_resident_bytes'] / MIB:.0f}"]
        scores = [f"{row[f'{average}_of_last_20_games']:.2f}" for average in ("mean", "median")]
        rows.append([seed, *scores, f"{row['core_hours']:.3f}", *nbytes])
    for average in ("median", "mean", "interquartile mean"):
        of_seeds = [averages[f"{average} of {each}_of_last_20_games"] for each in ("mean", "median")]
        scores = [f"{each['score']:.1f} ({each['low']:.1f} to {each['high']:.1f})" for each in of_seeds]
        rows.append([f"{average} (95 % interval)", *scores, "", "", ""])
    heads = ["mean of the last 20 games", "median", "core-hours", "memory, MiB", "process, MiB"]
    return table(["seed", *heads], rows)


def make_train_score() -> str:
    figures = result("learning/make_train")
    median = figures["averages_of_seeds"]["median of median_of_last_20_games"]["score"]
    return sentences(
        f"Its last 20 games have a median score of {median:.0f}. That is the median of {len(figures['seeds'])} seeds "
        "that had no part in choosing the recipe. "
        f"Random play scores {figures['random_play']}, a human tester {figures['human']}."
    )


def ten_games() -> str:
    rows = []
    for game, row in result("learning/ten_games")["games"].items():
        best = max(row["published"], key=row["published"].__getitem__)
        ours, seeds = f"{row['mean_of_last_point']:,.1f}", row["seeds"].values()
        ours = f"**{ours}**" if row["is_best"] else ours
        if len(means := [seed["mean_of_last_point"] for seed in seeds]) > 1:
            ours += f" ({', '.join(f'{each:,.1f}' for each in means)})"
        scores = [ours, f"{row['published'][best]:,.1f} ({best})"]
        minutes = f"{60 * statistics.mean(seed['core_hours'] for seed in seeds):.0f}"
        named = f"{game} (chose)" if row["chose_the_recipe"] else game
        rows.append([named, f"{row['random_play']:,.1f}", *scores, minutes])
    return table(["game", "random play", "`laptop-long` (seeds)", "best of Dopamine's", "core-minutes a seed"], rows)


def ten_games_ahead() -> str:
    games = result("learning/ten_games")["games"].values()
    by_mean, with_each, core_hours = 0, 0, 0.0
    for row in games:
        best, seeds = max(row["published"].values()), row["seeds"]
        by_mean += row["is_best"]
        with_each += all(seed["mean_of_last_point"] >= best for seed in seeds.values())
        core_hours += statistics.mean(seed["core_hours"] for seed in seeds.values())
    return sentences(
        f"By the mean of the seeds {' and '.join(seeds)}, `laptop-long` scored more than all six of Dopamine's "
        f"agents in {by_mean} of {len(games)} games, and with each seed in {with_each}. The games of one seed took "
        f"{core_hours:.1f} core-hours without a GPU, two trainings at a time on two cores."
    )


def sentences(text: str) -> str:
    return textwrap.fill(text, 120, break_on_hyphens=False)


TABLES: dict[str, Callable[[], str]] = {
    "million": million,
    "bench": bench,
    "sample_32": sample_32,
    "zlib_frames": zlib_frames,
    "sampling": sampling,
    "learners_uniform": partial(learners, "uniform", "uniform"),
    "learners_prioritized": partial(learners, "prioritized", "by priority, with the update"),
    "learners_n_step": partial(learners, "n_step", "3 steps"),
    "learners_sequences": partial(learners, "sequences", "sequences of 80"),
    "loading": loading,
    "append_beside_samplers": append_beside_samplers,
    "saving": saving,
    "fifty_million": fifty_million,
    "packing": packing,
    "drop_ins": drop_ins,
    "drop_in_training": drop_in_training,
    "training": lambda: speed_table(result("training")),
    "recipes": recipes,
    "environments": environments,
    "vector_environments": vector_environments,
    "drop_in_vector_environments": drop_in_vector_environments,
    "shards": shards,
    "make_train": make_train,
    "make_train_score": make_train_score,
    "ten_games": ten_games,
    "ten_games_ahead": ten_games_ahead,
}
