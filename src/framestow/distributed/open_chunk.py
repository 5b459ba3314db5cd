"""``OpenChunk``: the chunk of one environment that a writer fills, and the first priorities of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, TERMINATED, TRUNCATED
from framestow.distributed.chunks import ONLY_ENV, Chunk, Context, Priorities
from framestow.frames.observation_spec import Frames
from framestow.replay.added_steps import RunStarts
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_checks import SegmentSteps
from framestow.storage.frame_storage import FrameStorage


class OpenChunk:
    """The frames and steps of one environment since its last chunk. Frames are packed as they come.

    Arguments:
        settings: Of the shard's memory.
        priority: Gives the initial priorities; ``None`` gives none.
    """

    def __init__(self, settings: MemorySettings, priority: Priorities | None) -> None:
        self._settings, self._priority = settings, priority
        length = settings.frames_per_segment or 1
        self._bits = np.zeros(length, np.uint8)  # as in SegmentSteps
        # Of each step; a frame that begins an episode has none.
        self._actions = np.zeros((length, *settings.action.shape), settings.action.stored_dtype)
        self._rewards = np.zeros(length, np.float32)
        self._extras = {spec.name: np.zeros((length, *spec.shape), spec.dtype) for spec in settings.extras.extras}
        # Q of the chosen action, and the largest Q; NaN where they are unknown.
        self._values = np.full((2, length), np.nan, np.float32)
        self._context: Context | None = None  # of the first chunk
        self._first_frame = 0
        self._begin()

    def _begin(self) -> None:
        settings = self._settings
        # It packs the frames, as positions 0, 1, … of its only environment.
        self._frames = FrameStorage(
            settings.frame, 1, frames_per_segment=settings.frames_per_segment, depths=settings.layout.depths
        )
        self.num_frames = self._num_steps = 0

    def is_full(self, offset: int) -> bool:
        """Return whether the chunk ends where a segment of the shard ends.

        ``offset``: number of frames that the shard's environment had before the first one of this writer.
        """
        length = len(self._bits)
        return (offset + self._first_frame) % length + self.num_frames >= length

    def add_frame(self, frame: Frames, bits: int, start: RunStarts) -> None:
        """Pack a frame, ``(1, *frame)``; ``start``: the padding of the run that it begins."""
        self._frames.append(ONLY_ENV, frame, *start)
        self._bits[self.num_frames] = bits
        self.num_frames += 1

    def add_step(self, action: Any, reward: Any, values: tuple[float, float], extras: Mapping[str, Any]) -> None:
        """Copy the step that led to the newest frame."""
        index = self._num_steps
        self._actions[index], self._rewards[index], self._values[:, index] = action, reward, values
        for name, value in extras.items():
            self._extras[name][index] = value
        self._num_steps += 1

    def seal(self, env_id: int, writer: int, observation: Any) -> Chunk:
        """Return the chunk with copies of everything, and begin the next one after ``observation``."""
        steps = SegmentSteps(
            self._bits[: self.num_frames].copy(),
            self._actions[: self._num_steps].copy(),
            self._rewards[: self._num_steps].copy(),
            {name: values[: self._num_steps].copy() for name, values in self._extras.items()} or None,
        )
        segments = tuple(self._frames.segment(track, 0) for track in range(len(self._settings.frame.frame_specs)))
        priorities = self._priorities(steps)
        chunk = Chunk(env_id, writer, self._first_frame, segments, steps, priorities, self._context)
        self._context = Context(observation, bool(steps.bits[-1] & BEGINS_EPISODE))
        self._first_frame = chunk.next_frame
        self._begin()
        return chunk

    def _priorities(self, steps: SegmentSteps) -> npt.NDArray[np.float32] | None:
        """Return the priorities of steps by their TD errors; NaN where these are unknown, ``None`` if all are."""
        chosen, best = self._values[:, : steps.num_steps]
        if self._priority is None or np.isnan(chosen).all():
            return None
        errors = compute_td_errors(steps, chosen, best, self._settings.n_step, self._settings.discount)
        return self._priority(errors)


def compute_td_errors(
    steps: SegmentSteps,
    chosen: npt.NDArray[np.float32],
    best: npt.NDArray[np.float32],
    n_step: int,
    discount: float,
) -> npt.NDArray[np.float32]:
    """Return the n-step TD error of each step, which is its initial priority (Horgan et al. 2018); NaN if unknown.

    Unknown are those of the last steps of a chunk, whose returns the next chunk completes, and those of a truncated
    episode.

    Arguments:
        steps: Of a chunk.
        chosen: Q of the action of each step.
        best: Largest Q of each step.
        n_step: Number of rewards in a return.
        discount: γ.
    """
    ends = steps.bits[steps.bits != BEGINS_EPISODE] & (TERMINATED | TRUNCATED)
    bootstraps = np.append(best[n_step:], np.full(n_step, np.nan, np.float32))
    powers = discount ** np.arange(n_step + 1)
    errors = np.empty(len(ends), np.float32)
    for step in range(len(ends)):
        num_rewards, bootstrap = n_step, bootstraps[step]
        ends_within = np.flatnonzero(ends[step : step + n_step])
        if ends_within.size:
            num_rewards = int(ends_within[0]) + 1
            bootstrap = 0.0 if ends[step + num_rewards - 1] & TERMINATED else np.nan
        rewards = steps.rewards[step : step + num_rewards]
        errors[step] = rewards @ powers[: len(rewards)] + powers[num_rewards] * bootstrap - chosen[step]
    return errors
