"""docs/observations.md, docs/sampling.md, docs/training.md, docs/saving.md and docs/versions.md."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Pages, figure, result, spread, table
from page_figures.benchmarks import crash_count

MIB = 2**20

dtypes = result("dtypes")["games"]
steps = result("steps")["microseconds"]
beside = result("steps")["microseconds_beside"]
priorities = result("priorities")["microseconds"]
sequences = result("sequences")["microseconds"]
gpu = result("gpu_speed")["rainbow-lite"]
loop = result("training_loop")
rates = result("recipe_rates")
disk = result("disk_reading")["figures"]
fifty_million = result("fifty_million")
saving, verifying, flushing = result("saving"), result("verifying"), result("flushing")
checkpoints = result("checkpoints")
budgets = result("budgets")["microseconds"]
retention = result("retention")["share_of_capacity"]
million = result("million_breakout")
portable = result("portable")["microseconds"]


def dtype_rows() -> Iterator[list[str]]:
    first = next(iter(dtypes.values()))
    for name in first:
        cells = [f"{first[name]['raw_bytes']:,}"]
        for game in dtypes.values():
            cells += [f"{game[name][key]:,.0f}" for key in ("bytes_per_frame", "append_us", "sample_us")]
        yield [name, *cells]


def times_portable(call: str) -> str:
    """Return how many times as long a call takes in the portable code, from the least to the most of all frames."""
    return spread((both[call]["portable"] / both[call]["vector"] for both in portable.values()), ".1f")


def times_bare(kind: str) -> list[float]:
    """Return how many times as long as the bare copy sequences of this kind take, for each batch size."""
    return [
        value / sequences[name.replace(kind, "bare copy")]
        for name, value in sequences.items()
        if name.startswith(f"{kind},")
    ]


def fifty_million_rows() -> Iterator[list[str]]:
    bytes_each = fifty_million["gb_on_disk"] * 1e9 / fifty_million["transitions"]
    yield ["on the disk", f"{fifty_million['gb_on_disk']:.2f} GB, {bytes_each:.0f} bytes a transition"]
    yield ["opening, nothing of it in the page cache", f"{fifty_million['opening_s']:.1f} s"]
    own = [fifty_million[f"resident_mb_{when}"] for when in ("before_opening", "after_opening", "after_sampling")]
    yield ["the process's own memory, before opening, after, after sampling", f"{', '.join(map(str, own))} MB"]
    yield ["page cache within the limit", f"{fifty_million['limit']['page_cache_mb']:,} MB"]
    for size in (32, 256):
        row = fifty_million[f"sample({size})"]
        median = f"{row['median_ms']:.{1 if row['median_ms'] < 10 else 0}f}"
        yield [f"`sample({size})`, median and 99th percentile", f"{median} and {row['99th_percentile_ms']:.0f} ms"]


def saving_rows() -> Iterator[list[str]]:
    yield [
        f"first save, {saving['store_bytes'] / MIB:.1f} MiB",
        f"{saving['first_save_s']:.2f}",
        f"{saving['first_save_peak_bytes'] / MIB:.1f} MiB",
    ]
    again = f"{saving['save_again_s_median']:.2f}"
    yield [f"{saving['new_steps']:,} steps later", again, f"{saving['save_again_peak_bytes'] / MIB:.1f} MiB"]
    yield ["load", f"{saving['load_s']:.2f}", f"{saving['load_peak_over_loaded_bytes'] / MIB:.1f} MiB"]


def checkpoint_rows() -> Iterator[list[str]]:
    median = {name: sorted(seconds)[len(seconds) // 2] for name, seconds in checkpoints["saving"]["seconds"].items()}
    flush = checkpoints["flushing"]
    yield ["first save of a million transitions", f"{median['memory, all of it']:.2f} s"]
    yield ["10,000 new steps", f"{median['memory, what is new']:.2f} s"]
    yield [
        "a checkpoint with the agent",
        f"{median['checkpoint, what is new']:.2f} s instead of {median['checkpoint, all of the memory']:.2f}",
    ]
    share = 100 * flush["processor_share_every_5_s"]
    yield ["a flush of 5 seconds of training", f"{1e3 * flush['processor_seconds']:.1f} ms, {share:.2f} %"]
    for name, key in (
        ("4,000 agent steps of DQN on Breakout, flushed every 5 seconds", "on disk, flushed every 5 s"),
        ("the same with a checkpoint every 2,000 steps", "checkpoint every 2,000 steps"),
    ):
        row = checkpoints["training"]["setups"][key]
        low, high = row["wall_time_spread"]
        yield [name, f"{row['wall_time_to_nothing_saved']:.2f} times ({low:.2f} to {high:.2f} in three rounds)"]


_sample, _sample_3 = (steps[name] for name in ("sample(32)", "sample(32), n_step: 3"))
_append, _append_3 = (beside[f"append, 1 environment{name}"] for name in ("", ", n_step: 3"))
_append_8, _append_8_3 = (beside[f"append, 8 environments, a step{name}"] for name in ("", ", n_step: 3"))
_inside = [*times_bare("masked"), *times_bare("overlap of 40"), *times_bare("inside")]
_reads = {
    name.split(",")[0]: row["warm"]["processor_us"] / row["ram"]["processor_us"]
    for name, row in disk.items()
    if name.endswith("256 windows, 1 threads")
}
_enduro = disk["enduro, 256 windows, 1 threads"]
_at_budget = [100 * (row["full at its budget"] / row["full at its capacity"] - 1) for row in budgets.values()]
_update_ours, _update_nature = (rates[name]["update_ms"] for name in ("laptop", "laptop, network nature"))
_peaks = [figure(verifying[key]["peak_bytes"] / 1e6) for key in ("inspect", "verify", "repair")]
_scaled = [game["float32, k / 255"]["sample_us"] / game["uint8"]["sample_us"] for game in dtypes.values()]
_other = [game["float32, -1 to 1"]["bytes_per_frame"] / game["uint8"]["bytes_per_frame"] for game in dtypes.values()]

_kills, _losses, _failures, _found, _harmless, _in_part, _turned_away = (
    crash_count(name)
    for name in (
        *("kills", "losses of power", "failed operations"),
        *("changed and cut off bytes that were found", "changed and cut off bytes that were harmless"),
        *("changed and cut off bytes that were found, and all else was kept", "turned away"),
    )
)
_at_random = sum(each["kills"] for name, each in result("crashes")["tried"].items() if "random moment" in name)
_loads = {
    how: sum(
        each["loads beside a writer"]
        for name, each in result("crashes")["tried"].items()
        if f"process writes[{how}" in name
    )
    for how in ("load", "open")
}
_kills_of_training, _after = result("kills"), result("kills")["found_after_the_kill"]

_cached = fifty_million["sample(32)_of_all_runs_ms"][1:]

PAGES: Pages = {
    "docs/observations.md": [
        table(
            [
                "frames",
                "raw",
                *(head for game in dtypes for head in (f"{game.title()}: bytes", "append, µs", "sample, µs")),
            ],
            dtype_rows(),
        ),
        f"Scaled pixels take the bytes of their pixels, and {spread(_scaled, '.1f')} times as long to sample",
        f"Other pictures of `float32` take {spread(_other, '.1f')} times the bytes",
    ],
    "docs/sampling.md": [
        f"n = 3 costs nothing to append: {figure(_append_3, '.1f')} µs beside packing instead of "
        f"{figure(_append, '.1f')}, and {figure(_append_8_3, '.2f')} instead of {figure(_append_8, '.2f')} for one of "
        f"eight environments. A batch of 32 takes {figure(_sample_3)} µs instead of {figure(_sample)}",
        f"A draw and an update of 32 take {figure(priorities['framestow, sampler, 32'], '.1f')} µs, TorchRL's "
        f"`PrioritizedSampler` {figure(priorities['TorchRL, sampler, 32'], '.1f')}",
        f"16 or 32 sequences of 80 steps with a stack of 4 take {spread(_inside, '.1f')} times as long",
        f"five times the frames: {spread(times_bare('across borders'), '.1f')} times as long",
    ],
    "docs/training.md": [
        f"takes {figure(_update_nature / _update_ours, '.1f')} times as long with `nature` as with `layernorm`",
        f"`rainbow-lite` needs {figure(gpu['update_ms'], '.1f')} ms of an H100 for an update, and "
        f"{figure(4e3 / gpu['steps_a_second'], '.1f')} ms on the clock passed for the four steps before it. The "
        "loop's own "
        f"thread takes {figure(loop['ms_for_four_steps'], '.1f')} ms of processor time for them",
    ],
    "docs/saving.md": [
        f"A batch from files takes {figure(_reads['breakout'], '.1f')} (Breakout) to {figure(_reads['enduro'], '.1f')} "
        f"(Enduro, processor time) times as long as from RAM",
        f"256 windows of Enduro are {figure(_enduro['cold']['read_mib'])} MiB to copy and verify: "
        f"{figure(_enduro['warm']['wall_us'] / 1e3)} ms instead of {figure(_enduro['ram']['wall_us'] / 1e3, '.1f')}",
        f"**Fifty million transitions under {figure(fifty_million['limit']['mb'] / 1000)} GB.**",
        f"in a memory control group of {figure(fifty_million['limit']['mb'])} MB",
        table(["", ""], fifty_million_rows(), numbers_right=False),
        f"took a median of {figure(_cached[0], '.1f')} and {figure(_cached[1], '.1f')} ms in the next two",
        f"takes {figure(_at_budget[0])} % (one environment) to {figure(_at_budget[1])} % (eight) longer than at "
        "its capacity",
        f"{figure(100 * retention['320']['drawable'], '.1f')} % can be sampled with segments of 320 frames, and "
        f"{figure(100 * retention['40']['drawable'], '.1f')} % with 40",
        f"A store of a million transitions of Breakout, {figure(verifying['store_bytes'] / 1e6, '.1f')} MB",
        table(
            ["", "seconds"],
            [
                [name, f"{verifying[key]['seconds']:.1f}"]
                for name, key in (
                    ("inspect", "inspect"),
                    ("verify", "verify"),
                    ("repair a damaged segment and a damaged block of steps", "repair"),
                )
            ],
        ),
        f"At most they take {_peaks[0]}, {_peaks[1]} and {_peaks[2]} MB of RAM",
        table(["", "seconds", "additional memory"], saving_rows()),
        f"In {figure(flushing['round_cpu_s_without'], '.1f')} s of processor time it adds "
        f"{figure(flushing['steps_a_round'])} transitions. Their flush takes "
        f"{figure(1e3 * flushing['flush_thread_cpu_s'])} ms of processor time in its own thread: "
        f"{figure(100 * flushing['flush_thread_cpu_share'], '.1f')} %",
        f"took {figure(1e3 * flushing['longest_append_beside_a_flush_s_median'])} ms, "
        f"{figure(1e3 * flushing['longest_append_beside_a_flush_s_worst'])} at worst; without a flush "
        f"{figure(1e3 * flushing['longest_append_without_s_median'], '.1f')}, "
        f"{figure(1e3 * flushing['longest_append_without_s_worst'], '.1f')} at worst",
        table(["", ""], checkpoint_rows(), numbers_right=False),
        f"of a log alone | {2 * f'{figure(_kills - _at_random)} | '}",
        f"both retentions | {2 * f'{figure(_at_random)} | '}",
        f"there, or in part | {2 * f'{figure(_losses)} | '}",
        f"what it was to sync | {2 * f'{figure(_failures)} | '}",
        # Each byte is tried with on_damage "raise" and "skip".
        f"{figure((_found + _harmless) // 2)} bytes of a small store were changed or cut off, every third of "
        "each kind. "
        f"{figure(_found // 2)} were found. The {figure(_harmless // 2)} others are of index files",
        f'With `on_damage="skip"`, {figure(_in_part)} of the damages cost a part only',
        f"loaded {figure(_loads['load'])} and opened {figure(_loads['open'])} times",
        f"Of two writers one was refused {figure(_turned_away)} times",
        f"**A whole training, killed {figure(_kills_of_training['kills'])} times.**",
        f"{figure(_kills_of_training['of_processes_of_their_own'])} of the {figure(_kills_of_training['kills'])} were "
        f"processes with an interpreter of their own",
        f"The {figure(_kills_of_training['runs_finished_equal_to_the_uninterrupted_one'])} runs, each killed "
        "many times",
        f"Kills left a half-written checkpoint {figure(_after['a checkpoint half written'])} times, and a "
        "memory ahead of "
        f"the checkpoint {figure(_after['a memory ahead of the checkpoint'])} times",
    ],
    "docs/versions.md": [
        f"`append` takes {times_portable('append')} times as long as with the vector code, and `sample(32)` "
        f"{times_portable('sample')} times",
    ],
}
