"""Store chunks in the memory of a shard, and what a shard needs before them after a loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER
from framestow.distributed.chunks import ONLY_ENV, Chunk, Context
from framestow.errors import DamagedDataError
from framestow.frames.observation_spec import Frames
from framestow.replay.added_steps import NO_RUN, RunStarts, add_step, begin_episodes, rows_of
from framestow.replay.inner_memory import InnerMemory
from framestow.replay.memory import ReplayMemory
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_checks import Step
from framestow.storage.frame_storage import FrameStorage


def store_chunk(memory: ReplayMemory, chunk: Chunk) -> None:
    """Store the steps of a chunk: its packed segment as it is, where the memory takes one, or frame by frame.

    Raises:
        DamagedDataError: other bytes than a writer packed.
        InvalidStepError: steps that break a rule of ``append``, or that go on with an episode that is not open.
    """
    inner, env_id = memory.inner, chunk.env_id
    first = int(inner.steps.newest_positions[env_id]) + 1
    if chunk.num_frames == inner.storage.frames_per_segment and inner.takes_segments(env_id):
        inner.append_segment(env_id, chunk.segments[0], chunk.steps)
    else:
        _append_frames(inner, chunk)
    if chunk.priorities is not None:
        is_step = np.flatnonzero((chunk.steps.bits & BEGINS_EPISODE) == 0)
        known = np.flatnonzero(np.isfinite(chunk.priorities))
        memory.update_priorities(_find_indices(inner, env_id, first + is_step[known] - 1), chunk.priorities[known])


def store_context(memory: ReplayMemory, env_id: int, context: Context, is_next: bool) -> None:
    """Store the observation before a chunk; after a lost step if steps are missing, or the episode's beginning.

    ``is_next``: whether the memory has all steps before the chunk.
    """
    env_ids = np.array([env_id], np.int32)
    if not (is_next and context.begins):
        _store_lost_step(memory.inner, context.observation, env_ids)
    if context.begins:
        begin_episodes(memory.inner, context.observation, env_ids)


def _store_lost_step(inner: InnerMemory, observation: Any, env_ids: npt.NDArray[np.int32]) -> None:
    """Begin an episode with a step that cannot be sampled, and that no return and no sequence crosses."""
    begin_episodes(inner, observation, env_ids)
    first = inner.steps.newest_positions[env_ids]
    space, fields = inner.settings.action, inner.settings.extras.extras
    action = np.resize(space.low or 0, (1, *space.shape)).astype(space.stored_dtype)
    extras = {field.name: np.zeros((1, *field.shape), field.dtype) for field in fields} if fields else None
    add_step(inner, observation, Step(env_ids, action, [0.0], [False], [False], observation, extras))
    with inner.lock:
        inner.steps.lose_indices(_find_indices(inner, int(env_ids[0]), first))


def _find_indices(inner: InnerMemory, env_id: int, positions: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Return the readable steps that start at these frames, ascending."""
    return inner.steps.find_steps(np.full(len(positions), env_id, np.int64), positions.astype(np.int64))


def _append_frames(inner: InnerMemory, chunk: Chunk) -> None:
    """Unpack the frames and append them one by one: the slower way, for storages that do not take segments."""
    settings, env_ids = inner.settings, np.array([chunk.env_id], np.int32)
    arrays, stacks = _unpack_chunk(settings, chunk)
    checked = chunk.steps.check_arrays(settings, bool(inner.steps.is_open[chunk.env_id]))
    num_begun = 0
    for index, (step, bits) in enumerate(zip(checked.each(), checked.bits.tolist(), strict=True)):
        frames, starts = rows_of(arrays, index), NO_RUN
        if bits & (BEGINS_EPISODE | BORDER):
            starts = RunStarts.of_stacks(list(rows_of(stacks, num_begun)), settings.stack_padding)
            num_begun += 1
        if step is None:
            inner.start_episodes(frames, env_ids, starts)
        else:
            observed = settings.frame.flatten(settings.frame.rebuild(frames))
            inner.store_step(step._replace(env_ids=env_ids, frames=observed), starts)


def _unpack_chunk(settings: MemorySettings, chunk: Chunk) -> tuple[Frames, Frames]:
    """Return the frames of a chunk, and the whole stacks of those frames that begin an episode or a run.

    ``(num_frames, *frame)`` and ``(num_begins, depth, *frame)`` of each array.

    Raises:
        DamagedDataError: other bytes than a writer packed.
    """
    num, spec, depths = chunk.num_frames, settings.frame, settings.layout.depths
    storage = FrameStorage(spec, 1, frames_per_segment=num, depths=depths)
    for track, segment in enumerate(chunk.segments):
        storage.restore(track, 0, segment)
        if storage.next_position(track) != num:
            raise DamagedDataError(
                f"a segment has {storage.next_position(track)} frames: its chunk has {num}; send the chunk again"
            )
    whole = tuple(frame.empty(1, num) for frame in spec.frame_specs)
    storage.windows(ONLY_ENV, np.array([num - 1]), np.array([num], np.int32), whole)
    begins = np.flatnonzero(chunk.steps.bits & (BEGINS_EPISODE | BORDER))
    stacks = tuple(part.empty(len(begins), depth) for part, depth in zip(spec.frame_specs, depths, strict=True))
    if begins.size:
        env_ids, counts = np.zeros(len(begins), np.int32), np.ones(len(begins), np.int32)
        storage.windows(env_ids, begins, counts, stacks, settings.stack_padding)
    return tuple(part[0] for part in whole), stacks
