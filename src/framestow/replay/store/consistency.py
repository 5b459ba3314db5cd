"""Check that the steps of a store fit together, and that the frames of every transition are stored.

Checksums find changed bytes. These checks find data that no memory can have written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED, StepStore, Windows
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import POSITION_RANGE, steps_in_pieces
from framestow.replay.steps.step_stores import AnySteps
from framestow.storage.frame_storage import FrameSnapshot

STEPS_PER_PIECE = 2**14  # that are looked up at a time, in arrays that fit the heap and the processor's cache

ENDS = TERMINATED | TRUNCATED

Numbers = npt.NDArray[np.int64]
Columns = list[npt.NDArray[Any]]  # of steps: environment, position of the next frame, frames of the window, flags


def check_steps(steps: AnySteps, settings: MemorySettings) -> None:
    """Raise ``ValueError`` with the first problem of stored steps, so that every call can rely on them."""
    for problem in find_step_problems(steps, settings):
        raise ValueError(problem)


def check_parts(parts: MemoryParts) -> None:
    """Raise ``ValueError`` with the first problem of steps and frames, so that every transition can be read."""
    steps, storage, settings = parts.steps, parts.frames, parts.settings
    stops = np.array([storage.next_position(track) for track in settings.tracks.all]).reshape(-1, settings.num_envs)
    if (steps.newest_positions != stops - 1).any():
        raise ValueError("frames and steps of an environment end at different positions")
    snapshot = storage.take_snapshot()
    try:
        for problem in find_step_problems(steps, settings, snapshot):
            raise ValueError(problem)
        for first in range(0, len(steps) if steps.n_step > 1 else 0, STEPS_PER_PIECE):
            ranks = np.arange(first, min(first + STEPS_PER_PIECE, len(steps)))
            windows = steps.resolve(steps.sampleable_at(ranks), with_extras=False)[0]
            for problem in _find_missing_frames(snapshot, windows, settings.stack):
                raise ValueError(problem)
    finally:
        snapshot.stop()


def find_step_problems(
    steps: StepStore, settings: MemorySettings, snapshot: FrameSnapshot | None = None
) -> Iterator[str]:
    """Yield the problems of stored steps with one another, with their environments, and with the frames in a snapshot.

    Indices ascend with positions, an end has no successor, and a history is one frame longer than the last; after a
    border it is 0. The known starts of episodes agree with the steps.
    """
    for problem in _find_env_problems(steps):
        yield problem
        return
    newest, starts = steps.newest_positions, _Starts(steps)
    has_all = isinstance(steps, RingSteps) and not steps.lost.size
    dtype = np.uint16 if settings.num_envs <= 2**16 else np.int64
    carried: Columns = [np.empty(0, np.int64)] * 4  # the newest step of each environment
    for indices in steps_in_pieces(steps, STEPS_PER_PIECE):
        windows, fields = steps.resolve_steps(indices, with_extras=False)
        if (windows.last_positions > newest[windows.env_ids]).any():
            yield "a step leads to a frame that was never stored"
            return
        if snapshot is not None:
            yield from _find_missing_frames(snapshot, windows, settings.stack + 1)
        if (windows.counts < 2).any():
            yield "a transition has a window that no observation has"
        if not np.isfinite(fields.reward).all():
            yield "a reward is not finite"
        if settings.action.are_outside(fields.action).any():
            yield "an action is outside of its space"
        piece = (windows.env_ids, windows.last_positions, windows.counts, steps.flags_of(indices))
        columns: Columns = [np.concatenate([before, new]) for before, new in zip(carried, piece, strict=True)]
        # The steps of an environment, by index: NumPy sorts two bytes by their digits.
        order = np.argsort(columns[0].astype(dtype), kind="stable")
        env_ids, lasts, counts, flags = carried = [column[order] for column in columns]
        next_counts = np.where(flags & BORDER, 2, np.minimum(counts + 1, settings.stack + 1))
        is_same, apart = np.diff(env_ids, prepend=-1) == 0, np.diff(lasts, prepend=0)
        follows = is_same & (apart == 1)
        for problem, is_wrong in (
            ("two transitions end at this frame", is_same & (apart == 0)),
            ("its index is below that of an earlier step", is_same & (apart < 0)),
            ("a step follows the end of its episode", follows & (np.roll(flags, 1) & ENDS > 0)),
            ("its history has another length than its stretch", follows & (counts != np.roll(next_counts, 1))),
            ("its history begins before its episode", (flags & BEGINS_EPISODE > 0) & (counts != 2)),
            ("its episode is open", (flags & ENDS > 0) & (lasts == newest[env_ids]) & steps.is_open[env_ids]),
            ("the known starts of episodes do not fit it", starts.contradict(carried, apart * is_same, has_all)),
        ):
            for row in np.flatnonzero(is_wrong):
                yield f"environment {env_ids[row]}, frame {lasts[row]}: {problem}"
        is_last = np.append(env_ids[1:] != env_ids[:-1], True)
        carried = [column[is_last] for column in carried]
    if has_all:
        env_ids, lasts = carried[:2]
        num_starts = starts.count(env_ids, newest[env_ids]) - starts.count(env_ids, lasts)
        # A repaired memory may have closed episodes, and frames whose steps are lost.
        for env_id in env_ids[steps.is_open[env_ids] & (num_starts != newest[env_ids] - lasts)]:
            yield f"environment {env_id}, frame {newest[env_id]}: the known starts of episodes do not fit it"


def _find_env_problems(steps: StepStore) -> Iterator[str]:
    newest, episode_starts, stretch_starts = steps.newest_positions, steps.episode_starts, steps.stretch_starts
    if ((episode_starts < 0) | (episode_starts > newest.clip(min=0))).any():
        yield "an episode begins at a position without a frame"
    if ((stretch_starts < episode_starts) | (stretch_starts > newest.clip(min=0))).any():
        yield "the newest stretch of an environment is not in its newest episode"
    if (steps.is_open & (newest < 0)).any():
        yield "an episode without a frame is open"


class _Starts:
    """The known starts of episodes, of all environments in one sorted array."""

    def __init__(self, steps: StepStore) -> None:
        counts, starts = steps.starts()
        self._newest = steps.newest_positions
        self._keys = self._keys_of(np.repeat(np.arange(steps.num_envs), counts), starts)

    def contradict(self, steps: Columns, apart: Numbers, has_all: bool) -> npt.NDArray[np.bool_]:
        """Return which steps, in order, contradict the starts.

        ``apart``: frames since the end of the step before of the same environment, 0 for none. With ``has_all``, no
        step between two of them is evicted or lost: then each frame between is the start of an episode without steps.
        """
        env_ids, lasts, _, flags = steps
        are_wrong = np.zeros(len(env_ids), np.bool_)
        rows = np.flatnonzero((flags & BEGINS_EPISODE > 0) | (apart != 1))
        env_ids, firsts, apart = env_ids[rows], lasts[rows] - 1, apart[rows]
        num_until = self.count(env_ids, firsts)
        is_start = num_until > self.count(env_ids, firsts - 1)
        are_wrong[rows] = is_start != (flags[rows] & BEGINS_EPISODE > 0)
        if has_all:
            num_between = num_until - self.count(env_ids, firsts + 1 - apart)
            are_wrong[rows] |= (apart > 1) & (num_between != apart - 1)
        return are_wrong

    def count(self, env_ids: npt.NDArray[np.integer], positions: Numbers) -> Numbers:
        """Return how many starts are at or before each position, of its environment and of all before it."""
        return np.searchsorted(self._keys, self._keys_of(env_ids, positions), "right")

    def _keys_of(self, env_ids: npt.NDArray[np.integer], positions: Numbers) -> Numbers:
        """Return numbers in the order of environments and positions; no step is farther back than 2**31 frames."""
        behind = np.minimum(self._newest[env_ids] - positions, POSITION_RANGE - 1)
        keys: Numbers = (env_ids.astype(np.int64) + 1) * POSITION_RANGE - 1 - behind
        return keys


def _find_missing_frames(snapshot: FrameSnapshot, windows: Windows, length: int) -> Iterator[str]:
    """Yield the first window that has not 1 to ``length`` frames, or not all of them stored."""
    missing = snapshot.find_missing_window(*windows, length)
    if missing < len(windows.counts):
        env_id, last, count = (int(column[missing]) for column in windows)
        yield f"a transition of environment {env_id} needs the frames {last - count + 1} to {last}: not all are stored"
