"""Compare the memory expected from a short play with that of a long one.

    python benchmarks/memory_expectation.py                  ten games, results/memory_expectation.json
    python benchmarks/memory_expectation.py --keep FOLDER    keep the counted bytes, so that another run resumes

``framestow train`` predicts a memory's size from 6,400 frames of random play. Here each game is played for 320,000
frames (random actions, preset "machado2018", one environment); bytes are counted every 1,600. The first 6,400 frames
are those that training would measure, and every later span of 6,400 is one that it might have measured. A million
frames take another twenty minutes per game. Breakout's are in million_breakout.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np

from framestow.benchmarking.result_files import write_result
from framestow.envs import make_atari
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec
from framestow.replay.step_fields import slot_record
from framestow.storage.frame_storage import FrameStorage
from framestow.training.memory_expectation import PLAYED_FRAMES

RESULTS = Path(__file__).parent / "results"
GAMES = (
    "Breakout",
    "Pong",
    "SpaceInvaders",
    "Qbert",
    "Seaquest",
    "BeamRider",
    "MsPacman",
    "Enduro",
    "Riverraid",
    "Freeway",
)
NUM_FRAMES, MARK = 320_000, 1_600
SLOT_BYTES = slot_record(8, ActionSpec.from_space(18)).itemsize

Marks = list[list[int]]  # frames so far, steps among them, bytes of them


def counted(game: str) -> Marks:
    """Play, and count bytes at intervals."""
    env = make_atari(game, preset="machado2018", seed=0)
    random = np.random.default_rng(0)
    storage, env_id = FrameStorage(FrameSpec(env.preset.frame_shape), 1), np.zeros(1, np.int32)
    marks, num_steps, has_ended = [], 0, True
    for num_frames in range(1, NUM_FRAMES + 1):
        if has_ended:
            frame, _ = env.reset()
            has_ended = False
        else:
            frame, _, terminated, truncated, _ = env.step(int(random.integers(env.action_space.n)))
            has_ended = terminated or truncated
            num_steps += 1
        storage.append(env_id, frame[None])
        if num_frames % MARK == 0:
            marks.append([num_frames, num_steps, storage.nbytes["frames"]])
    env.close()
    return marks


def figures_of(marks: Marks) -> dict[str, float]:
    """Return bytes per transition of the whole play, and the errors of the first and of any other short play."""
    whole = marks[-1][2] / marks[-1][1] + SLOT_BYTES
    stride = PLAYED_FRAMES // MARK
    borders = [[0, 0, 0], *marks[stride - 1 :: stride]]
    plays = [(end[2] - start[2]) / (end[1] - start[1]) + SLOT_BYTES for start, end in itertools.pairwise(borders)]
    errors = [play / whole - 1 for play in plays]
    return {
        "frames": marks[-1][0],
        "bytes_a_transition": whole,
        "first_play": errors[0],
        "lightest_play": min(errors),
        "heaviest_play": max(errors),
        "standard_deviation": float(np.std(errors)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder for what was counted")
    keep = parser.parse_args().keep
    figures = {}
    for game in GAMES:
        kept = keep / f"{game}-0.json" if keep else None
        if kept and kept.is_file():
            marks = json.loads(kept.read_text())["marks"]
        else:
            marks = counted(game)
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps({"marks": marks}))
        figures[game] = row = figures_of(marks)
        print(
            f"{game:<14} {row['bytes_a_transition']:6.1f} bytes; the first {PLAYED_FRAMES:,} frames "
            f"{row['first_play']:+.1%}, any {row['lightest_play']:+.1%} to {row['heaviest_play']:+.1%}"
        )
    command = "python benchmarks/memory_expectation.py"
    print("written to", write_result(RESULTS / "memory_expectation.json", {"games": figures}, command).name)


if __name__ == "__main__":
    main()
