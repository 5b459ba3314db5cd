"""Measure recorded plays as a DQN Replay Dataset, as a Minari dataset and as a store, and the conversions.

    python benchmarks/offline.py                          100,000 steps of Breakout and of MsPacman
    python benchmarks/offline.py --games Pong --steps 20_000

Random play with sticky actions (preset "dopamine") is recorded, saved, and written in Dopamine's layout by NumPy.
`framestow import` and `framestow export` convert it, each in its own process, whose peak memory Linux reports. The
result is compared with the original, frame by frame. Measured besides: the memory that NumPy needs to load the DQN
Replay arrays, as Dopamine does, and the bytes of Minari's default, JPEG. Bytes are those of files; gzip uses Dopamine's
level, 9.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from minari.data_collector.episode_buffer import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from framestow import ReplayMemory, envs
from framestow.benchmarking.result_files import write_result
from framestow.offline.transfer import bytes_of_folder

RESULTS = Path(__file__).parent / "results"
DATASET = "atari/game/random-v0"


def record(game: str, num_steps: int, store: Path) -> ReplayMemory:
    """Play at random and save the memory."""
    env = envs.make_atari(game, num_envs=1, preset="dopamine", seed=0)
    spaces = env.single_observation_space, env.single_action_space
    memory = ReplayMemory(num_steps, *spaces, stack=4, stack_padding="zeros", seed=0, label=game)
    recorder, random = envs.Recorder(env, memory), np.random.default_rng(0)
    recorder.reset(seed=0)
    while len(memory) < num_steps:
        recorder.step(random.integers(0, env.single_action_space.n, 1))
    recorder.close()
    memory.save(store)
    return memory


COMMAND = "from framestow.cli import main; code = main(sys.argv[1:])"
LOADING = (
    "import gzip, pathlib; import numpy as np\n"
    "arrays = [np.load(gzip.open(path)) for path in sorted(pathlib.Path(sys.argv[1]).glob('$store$*'))]; code = 0"
)
MEASURED = """
import sys, time
start, cpu_start = time.monotonic(), time.process_time()
{code}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(time.monotonic() - start, time.process_time() - cpu_start, int(status["VmHWM"].split()[0]) * 1024)
sys.exit(code)
"""


def timed(*arguments: str, code: str = COMMAND) -> dict[str, float]:
    """Run a framestow command, or other code, in a process; return its seconds and its peak memory."""
    process = [sys.executable, "-c", MEASURED.format(code=code), *arguments]
    output = subprocess.run(process, stdout=subprocess.PIPE, text=True, check=True).stdout
    text, figures = output.rstrip("\n").rpartition("\n")[::2]
    print(text)
    seconds, cpu_seconds, peak_bytes = (float(figure) for figure in figures.split())
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_resident_bytes": int(peak_bytes)}


def write_dopamine_arrays(memory: ReplayMemory, folder: Path) -> None:
    """Write the episodes as Dopamine's checkpoint 0: blank slots before each one, and an open one's last frame."""
    blanks = memory.stack - 1
    parts: dict[str, list[np.ndarray]] = {"observation": [], "action": [], "reward": [], "terminal": []}
    for episode in memory.episodes():
        is_open = not episode.terminated[-1]
        padding = (blanks, int(is_open))
        frames = episode.frames(0, len(episode) + is_open)
        parts["observation"].append(np.pad(frames, [(blanks, 0), (0, 0), (0, 0)]))
        parts["action"].append(np.pad(episode.actions.astype(np.int32), padding))
        parts["reward"].append(np.pad(episode.rewards, padding))
        parts["terminal"].append(np.pad(episode.terminated.astype(np.uint8), padding))
    folder.mkdir()
    arrays = {f"$store$_{name}": np.concatenate(each) for name, each in parts.items()}
    for name, array in (arrays | {"add_count": np.array(len(arrays["$store$_action"]))}).items():
        with gzip.open(folder / f"{name}_ckpt.0.gz", "wb", 9) as file:
            np.save(file, array)


def minari_by_default(memory: ReplayMemory, folder: Path) -> dict[str, float]:
    """Store the episodes with Minari's default: pictures as JPEG."""
    settings = memory.inner.settings
    space = Box(0, 255, settings.frame.shape, np.uint8)
    start = time.monotonic()
    storage = MinariStorage.new(folder, space, Discrete(settings.action.num_actions))
    storage.update_episodes(
        EpisodeBuffer(
            observations=episode.frames(),
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=episode.terminated,
            truncations=episode.truncated,
        )
        for episode in memory.episodes()
    )
    seconds = time.monotonic() - start
    changed = num_pixels = 0
    for episode, kept in zip(memory.episodes(), storage.get_episodes(range(storage.total_episodes)), strict=True):
        changed += int((episode.frames() != kept["observations"]).sum())
        num_pixels += kept["observations"].size
    return {"seconds": seconds, "file_bytes": bytes_of_folder(folder), "share_of_pixels_changed": changed / num_pixels}


def check_same(before: ReplayMemory, store: Path, has_final_frames: bool) -> None:
    """Compare every frame, action, reward and flag, and the frame after a terminal step if the format has it."""
    for number, (one, other) in enumerate(zip(before.episodes(), ReplayMemory.load(store).episodes(), strict=True)):
        shown = len(one) + (has_final_frames or not one.terminated[-1])
        columns = ("actions", "rewards", "terminated", "truncated")
        is_same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
        if not is_same or not np.array_equal(one.frames(0, shown), other.frames(0, shown)):
            raise SystemExit(f"episode {number} of {store.name} is not what was played")


def measure(game: str, num_steps: int, scratch: Path) -> dict[str, Any]:
    store, logs, datasets = scratch / "store", scratch / "logs", scratch / "datasets"
    memory = record(game, num_steps, store)
    figures: dict[str, Any] = {
        "transitions": len(memory),
        "frame_bytes_uncompressed": (len(memory) + sum(1 for _ in memory.episodes()))
        * memory.inner.settings.frame.nbytes,
        "store": {"file_bytes": bytes_of_folder(store), "memory_nbytes": memory.nbytes},
    }
    write_dopamine_arrays(memory, logs)
    figures["dqn_replay"] = {"file_bytes": bytes_of_folder(logs), "numpy": timed(str(logs), code=LOADING)}
    figures["dqn_replay"]["import"] = timed("import", "dqn-replay", str(logs), "--to", str(scratch / "from_logs"))
    check_same(memory, scratch / "from_logs", has_final_frames=False)
    out = timed("export", "minari", str(store), "--to", str(datasets), "--dataset-id", DATASET)
    figures["minari"] = {"file_bytes": bytes_of_folder(datasets / DATASET), "export": out}
    source = str(datasets / DATASET)
    figures["minari"]["import"] = timed(
        "import", "minari", source, "--to", str(scratch / "from_minari"), "--stack", "4"
    )
    check_same(memory, scratch / "from_minari", has_final_frames=True)
    figures["minari_jpeg"] = minari_by_default(memory, scratch / "jpeg")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=["Breakout", "MsPacman"])
    parser.add_argument("--steps", type=int, default=100_000)
    arguments = parser.parse_args()
    figures = {}
    for game in arguments.games:
        with tempfile.TemporaryDirectory() as scratch:
            figures[game] = measure(game, arguments.steps, Path(scratch))
        print(game, json.dumps(figures[game], indent=1))
    print("written to", write_result(RESULTS / "offline.json", {"games": figures}).name)


if __name__ == "__main__":
    main()
