"""Fingerprints of what each preset gives: frames, rewards and flags of 150 steps of a few games."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import ale_py
import cv2
import numpy as np

from framestow.envs import PRESETS, AtariEnv

GOLDEN_FILE = Path(__file__).parent / "presets.json"
GAMES = ("Breakout", "Pong", "MsPacman")
NUM_STEPS = 150  # agent steps


def fingerprint(preset: str, game: str) -> str:
    """SHA-256 over everything that an agent sees of a game with fixed actions, resets included."""
    env = AtariEnv(game, preset, seed=2015)
    digest = hashlib.sha256()
    frame, _ = env.reset()
    digest.update(frame.tobytes())
    for step in range(NUM_STEPS):
        frame, reward, terminated, truncated, info = env.step(step * 7919 % 101 % int(env.action_space.n))
        digest.update(frame.tobytes() + np.float64(reward).tobytes() + bytes([terminated, truncated, info["lives"]]))
        if terminated or truncated:
            digest.update(env.reset()[0].tobytes())
    env.close()
    return digest.hexdigest()


def write() -> None:
    """Write the golden file anew: after a deliberate change of what a preset gives, and never else."""
    fingerprints = {preset: {game: fingerprint(preset, game) for game in GAMES} for preset in PRESETS}
    made_with = {"ale-py": ale_py.__version__, "opencv": cv2.__version__, "numpy": np.__version__}
    GOLDEN_FILE.write_text(json.dumps({"made_with": made_with, "fingerprints": fingerprints}, indent=2) + "\n")
