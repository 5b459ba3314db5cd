"""README, the first pages of the documentation, the notebook, and what is written about the package elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from figures import Pages, figure, result, spread, table

MB, MIB = 1e6, 2**20

breakout, up_n_down = result("million_breakout"), result("million_upndown")
sampling = result("sampling")
bench = result("bench-breakout/Breakout")
make_train = result("learning/make_train")["seeds"].values()
learners = result("learners")["games"]
drop_ins = result("drop_ins")["libraries"]
drop_in_training = result("drop_in_training")["buffers"]
disk = result("disk_reading")["figures"]
fifty_million = result("fifty_million")
segments = result("segment_lengths")["frames_per_segment"]
viewing = result("viewing")
training = result("training")["systems"]

_least, _most = (figure(million["bytes_a_transition"] * 1e6 / MB) for million in (breakout, up_n_down))
_ours = bench["systems"][0]
_theirs = [row for row in bench["systems"] if not row["name"].startswith("framestow")]
_minutes = [60 * seed["core_hours"] for seed in make_train]
_scores = [seed["median_of_last_20_games"] for seed in make_train]
_to_bare = figure(sampling["geometric_mean"]["sample_of_bare_copy"], ".1f")
_others = sorted(
    (row["times_framestow"], row["system"], game)
    for game, figures in learners.items()
    for row in figures["rows"]
    if row["question"] == "uniform" and row["batch_size"] == 32 and "bytes_a_transition" in row
)
_quickest, _slowest = _others[0], _others[-1]
_steps = {row["system"]: row["add_us_of_1"] for row in drop_ins["own loop"]["games"]["breakout"]}
_from_files = [
    row["warm"]["processor_us"] / row["ram"]["processor_us"] for name, row in disk.items() if name.endswith("1 threads")
]
_shorter = {
    game: 100 * (1 - segments["1280"]["bytes"][game] / segments["320"]["bytes"][game])
    for game in segments["320"]["bytes"]
}
_from_file = [segments[length]["window_from_file_us"] for length in ("320", "1280")]
_longer_reads = [_from_file[1][game] / _from_file[0][game] for game in _from_file[0]]


def training_rows() -> Iterator[list[str]]:
    """Yield Stable-Baselines3's DQN with its own buffer, with the smaller one, and with the drop-in."""
    for name, buffer in (
        ("before", "Stable-Baselines3"),
        ("before, with `optimize_memory_usage`, which gives up truncation", "optimize_memory_usage"),
        ("after", "framestow"),
    ):
        row = drop_in_training[buffer]
        gib = row["resident_bytes_of_a_million"] / 2**30
        yield [name, f"{gib:.{2 if gib < 1 else 1}f} GiB", f"{row['steps_a_second']:.0f}"]


MILLION = f"{_least} MB (Breakout) to {_most} MB (UpNDown)"
SPEED = (
    f"`sample(32)` takes {_to_bare} times as long as a bare copy of the same frames, in the mean of ten games. "
    f"Libraries that store frames uncompressed take {figure(_quickest[0], '.1f')} ({figure(_quickest[1])}, "
    f"{figure(_quickest[2])}) to {figure(_slowest[0], '.1f')} times as long as framestow"
)
PROCESS = (
    f"A process that trains from a million transitions of Breakout takes "
    f"{figure(breakout['training']['process_bytes'] / MIB)} MiB with PyTorch's CPU build"
)
_more_with_cuda = breakout["training_with_cuda"]["process_bytes"] - breakout["training"]["process_bytes"]
WITH_CUDA = (
    f"With the CUDA build, which plain pip installs on Linux, it takes "
    f"{figure(breakout['training_with_cuda']['process_bytes'] / MIB)} MiB"
)
_less_gib = figure(_more_with_cuda / 2**30, ".1f")
BUILD_OF_TORCH = (
    f"Each process has PyTorch's CUDA build, which plain pip installs on Linux; the CPU build takes about {_less_gib} "
    f"GiB less"
)
ADD = (
    f"A step costs {figure(_steps['framestow'])} µs with stacks on the first axis, and "
    f"{figure(_steps['add, stacks on the last axis'])} µs with stacks on the last (Breakout, 84x84, one environment; "
    f"`append` of a single frame: {figure(_steps['append, single frames'])} µs)"
)
MAKE_TRAIN = f"in {figure(max(_minutes))} minutes of processor time"

PAGES: Pages = {
    "README.md": [
        f"A million Atari transitions of random play take {MILLION}",
        table(["DQN on Breakout with a million transitions", "RAM of the process", "steps a second"], training_rows()),
        BUILD_OF_TORCH,
        SPEED,
        f"sample(32): framestow takes {figure(_ours['bytes_per_transition'])} bytes and {figure(_ours['sample_us'])} "
        f"µs; the other libraries take {spread(row['bytes_per_transition'] for row in _theirs)} bytes and "
        f"{spread(row['sample_us'] for row in _theirs)} µs",
        f"# learns Breakout {MAKE_TRAIN}: a median score of {spread(_scores)} (random play: 1.7)",
    ],
    "CITATION.cff": [
        f"stores a million Atari transitions losslessly in {_least} to {_most} MB, and samples them in "
        f"{_to_bare} times the "
        f"time of a bare copy",
    ],
    "docs/index.md": [
        f"framestow stores a million Atari transitions in {_least} to {_most} MB, without loss",
        SPEED,
    ],
    "docs/get-started.md": [PROCESS, WITH_CUDA],
    "docs/troubleshooting.md": [f"takes {figure(_more_with_cuda / MIB)} MiB more RAM than the CPU build"],
    "docs/how-it-works.md": [f"This is why a batch takes only {_to_bare} times as long as a bare copy"],
    "docs/train-in-4-gb.md": [
        f"a million transitions of an Atari game take {MILLION}",
        f"{PROCESS}, and {figure(up_n_down['training']['process_bytes'] / MIB)} MiB with a million of UpNDown",
        f"`framestow train Breakout` takes {figure(training['framestow']['peak_bytes'] / MIB)} MiB at most, and "
        f"{figure(training['framestow, 1 worker']['peak_bytes'] / MIB)} MiB with a worker process",
        f"| a batch takes {spread(_from_files)} times as long |",
    ],
    "docs/archive-50-million.md": [
        f"Ten Atari games, 50 million transitions: {figure(fifty_million['gb_on_disk'], '.2f')} GB on disk, "
        f"{figure(fifty_million['gb_on_disk'] * 1e9 / fifty_million['transitions'])} bytes a transition",
        f"A process that samples from them takes {figure(fifty_million['resident_mb_after_sampling'])} MB of RAM",
        f"takes {figure(100 * (1 - segments['1280']['mean_bytes'] / segments['320']['mean_bytes']))} % fewer bytes "
        f"over ten games ({figure(_shorter['enduro'])} % in Enduro, {figure(_shorter['freeway'])} % in Freeway)",
        f"from files a batch takes "
        f"{figure(segments['1280']['mean_window_from_file_us'] / segments['320']['mean_window_from_file_us'], '.1f')} "
        f"times as long, at worst {figure(max(_longer_reads), '.1f')} times",
        f"compares every checksum: {figure(result('verifying')['verify']['seconds'], '.1f')} s for a million",
        f"and samples {spread(_from_files)} times as fast",
    ],
    "docs/look-inside.md": [
        f"the first page is there after {figure(viewing['first_page_s'], '.1f')} s, a jump to any episode takes "
        f"{figure(viewing['jump_s']['median'], '.2f')} s (median) to {figure(viewing['jump_s']['longest'], '.2f')} s, "
        f"and the server takes {figure(viewing['peak_mib']['with charts'])} MiB",
    ],
    "docs/training.md": [f"by the recipe `laptop`, {MAKE_TRAIN}"],
    "examples/million_transitions.ipynb": [f"A million Atari transitions of random play take {MILLION} with framestow"],
}
