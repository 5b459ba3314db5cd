"""How long the memory takes to keep a step when several streams feed it at once."""

from __future__ import annotations

import statistics
import time

import numpy as np

from framestow.benchmarking.play import Play
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

CHUNK = 64  # calls between two looks at the clock: it holds whatever is put off to the end of a segment


def append_us_of_streams(play: Play, num_streams: int, stack: int, num_calls: int = 2_048) -> float:
    """Median microseconds a step of calls that each append one step of every stream, ``begin`` included.

    The streams go through the play at places as far apart as can be.
    """
    frame, capacity = FrameSpec(play.frames.shape[1:]), num_calls * num_streams
    memory = ReplayMemory(capacity, frame, play.num_actions, stack=stack, num_streams=num_streams)
    apart = len(play.positions) // num_streams
    streams = [play.steps(num_calls, stack, first=stream * apart) for stream in range(num_streams)]
    is_first_call = True
    chunk_us = []
    for _ in range(num_calls // CHUNK):
        elapsed = 0.0
        for _ in range(CHUNK):
            steps = [next(stream) for stream in streams]
            starting = [stream for stream, step in enumerate(steps) if step.starts_episode or is_first_call]
            is_first_call = False
            first_frames = np.array([steps[stream].observation[-1] for stream in starting])
            actions, rewards = np.array([step.action for step in steps]), np.array([step.reward for step in steps])
            terminated = np.array([step.terminated for step in steps])
            truncated = np.array([step.truncated for step in steps])
            frames = np.stack([step.next_observation[-1] for step in steps])
            start = time.perf_counter()
            if starting:
                memory.begin(first_frames, starting)
            memory.append(actions, rewards, terminated, truncated, frames)
            elapsed += time.perf_counter() - start
        chunk_us.append(elapsed / (CHUNK * num_streams) * 1e6)
    return statistics.median(chunk_us)
