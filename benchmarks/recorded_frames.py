"""The recorded frames of the benchmarks, in a folder that git ignores or in the one that FRAMES_FOLDER names.

A recording is ``<name>-<frames>-<seed>.npy``, ``uint8`` of shape ``(frames, *frame)``, and beside it a ``.json`` with
the indices where episodes begin and the scores of the completed games.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NUM_FRAMES = 20_000  # of each game or scene
CONTROL_TASKS = {"cartpole": "swingup", "finger": "spin", "cheetah": "run", "walker": "walk"}  # of each domain
CONTROL_FRAMES = 1_280  # of each task of dm_control, which take 30 ms of processor time each
CACHE_FOLDER = Path(os.environ.get("FRAMES_FOLDER", Path(__file__).parent / ".frames"))


@dataclass(frozen=True)
class Recording:
    """Frames in the order of play."""

    frames: NDArray[np.uint8]
    episode_starts: Sequence[int]  # indices in ``frames``; the first is 0
    scores: Sequence[float] = ()  # of each completed game; if there is none, of the unfinished one

    @property
    def mean_score(self) -> float:
        """Mean score over the games; NaN for frames without scores."""
        return float(np.mean(self.scores)) if self.scores else float("nan")


def frames_path(name: str, num_frames: int, seed: int) -> Path:
    return CACHE_FOLDER / f"{name}-{num_frames}-{seed}.npy"


def save_recording(name: str, recording: Recording, seed: int) -> None:
    """Write a recording; a file of frames with its final name is complete."""
    CACHE_FOLDER.mkdir(exist_ok=True)
    path = frames_path(name, len(recording.frames), seed)
    facts = {"episode_starts": list(recording.episode_starts), "scores": list(recording.scores)}
    path.with_suffix(".json").write_text(json.dumps(facts))
    unfinished = path.with_suffix(".unfinished.npy")
    np.save(unfinished, recording.frames)
    unfinished.rename(path)


def saved_recording(name: str, num_frames: int = NUM_FRAMES, seed: int = 0) -> Recording | None:
    """Return what ``save_recording`` wrote, or None."""
    path = frames_path(name, num_frames, seed)
    if not (path.exists() and path.with_suffix(".json").exists()):
        return None
    facts = json.loads(path.with_suffix(".json").read_text())
    return Recording(np.load(path), facts["episode_starts"], facts["scores"])
