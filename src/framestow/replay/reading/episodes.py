"""Group the stored steps into episodes, for exports and reports.

``iterate_episodes`` yields each episode with its steps and frames. ``EpisodeSpans`` only measures them: length, total
reward, and whether they are complete.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, StepStore
from framestow.errors import NothingToSampleError
from framestow.interface import one_line, plural
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.steps.step_store import Indices, steps_in_pieces
from framestow.storage.frame_storage import FrameStorage

STEPS_PER_PIECE = 1 << 18  # of EpisodeSpans, about 40 bytes each
FRAMES_AT_ONCE = 256  # unpacked by one call

EPISODE_SPAN = np.dtype(
    [
        ("env_id", np.int32),
        ("first", np.int64),  # position where the first step starts
        ("length", np.int64),  # steps
        ("history", np.int32),  # frames of the first observation before its newest frame
        ("total_reward", np.float64),
        ("terminated", np.bool_),  # flag of the last step
        ("truncated", np.bool_),  # flag of the last step
        ("has_beginning", np.bool_),  # the first step is the episode's first
        ("is_open", np.bool_),  # the last step is the environment's newest, and the episode has not ended
    ]
)


@dataclass(frozen=True)
class EpisodeSpans:
    """Spans of consecutive steps, each an episode or the stored part of one, sorted by environment and position.

    ================  ==================  ============================================================
    span               ``is_whole``        how to recognize it
    ================  ==================  ============================================================
    whole             yes                 its first step is stored, and its last step has a flag
    cut off           no                  its last step has no flag: a reset followed, or evicted steps
    without start     no                  its first steps were evicted
    open              no                  its episode has not ended
    ================  ==================  ============================================================

    ``spans`` is an array of ``EPISODE_SPAN``.
    """

    spans: npt.NDArray[Any]

    @classmethod
    def of(cls, steps: StepStore) -> EpisodeSpans:
        """Return the spans of all stored steps."""
        pieces = [_spans_of_piece(steps, indices) for indices in steps_in_pieces(steps, STEPS_PER_PIECE)]
        spans = np.concatenate([np.empty(0, EPISODE_SPAN), *pieces])
        spans = _join_spans(spans[np.lexsort((spans["first"], spans["env_id"]))])
        env_ids = spans["env_id"]
        is_newest = spans["first"] + spans["length"] == steps.newest_positions[env_ids]
        spans["is_open"] = is_newest & steps.is_open[env_ids]
        return cls(spans)

    def __len__(self) -> int:
        return len(self.spans)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.spans)

    @property
    def is_whole(self) -> npt.NDArray[np.bool_]:
        """Mask of the spans that are whole episodes."""
        is_whole: npt.NDArray[np.bool_] = self.spans["has_beginning"] & (
            self.spans["terminated"] | self.spans["truncated"]
        )
        return is_whole

    @property
    def num_frames(self) -> npt.NDArray[np.int64]:
        """Number of frames that the transitions of each span reference."""
        num_frames: npt.NDArray[np.int64] = self.spans["length"] + 1 + self.spans["history"]
        return num_frames

    def of_envs(self, env_ids: npt.ArrayLike) -> EpisodeSpans:
        """Return the spans of ``env_ids`` only."""
        return EpisodeSpans(self.spans[np.isin(self.spans["env_id"], env_ids)])


def _spans_of_piece(steps: StepStore, indices: Indices) -> npt.NDArray[Any]:
    """Return the spans within the steps ``indices``."""
    windows, fields = steps.resolve_steps(indices, with_extras=False)
    order = np.lexsort((windows.last_positions, windows.env_ids))
    env_ids = windows.env_ids[order]
    positions = windows.last_positions[order] - 1  # a window ends with the next observation's frame
    follows = (env_ids[1:] == env_ids[:-1]) & (positions[1:] == positions[:-1] + 1)
    firsts = np.flatnonzero(np.concatenate([[True], ~follows]))
    lasts = np.concatenate([firsts[1:], [len(env_ids)]]) - 1
    spans = np.zeros(len(firsts), EPISODE_SPAN)
    spans["env_id"], spans["first"], spans["length"] = env_ids[firsts], positions[firsts], lasts - firsts + 1
    spans["history"] = windows.counts[order][firsts] - 2  # without the newest frame and the next observation's frame
    spans["total_reward"] = np.add.reduceat(fields.reward[order], firsts, dtype=np.float64)
    spans["terminated"], spans["truncated"] = fields.terminated[order][lasts], fields.truncated[order][lasts]
    spans["has_beginning"] = steps.flags_of(indices[order][firsts]) & BEGINS_EPISODE > 0
    return spans


def _join_spans(spans: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``spans`` with those joined that continue across two pieces."""
    follows = (spans["env_id"][1:] == spans["env_id"][:-1]) & (_ends(spans)[:-1] == spans["first"][1:])
    firsts = np.flatnonzero(np.concatenate([[True], ~follows])[: len(spans)])
    lasts = np.concatenate([firsts[1:], [len(spans)]])[: len(firsts)] - 1
    joined = spans[firsts]
    if len(joined):
        for name in ("length", "total_reward"):
            joined[name] = np.add.reduceat(spans[name], firsts)
        for name in ("terminated", "truncated"):
            joined[name] = spans[name][lasts]
    return joined


def _ends(spans: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the position of the last frame of each span."""
    ends: npt.NDArray[np.int64] = spans["first"] + spans["length"]
    return ends


@dataclass(frozen=True)
class StoredEpisode:
    """Consecutive transitions of one episode, with access to their frames.

    Frame 0 is the first transition's newest frame, and frame ``len(self)`` is the last transition's next frame. If the
    beginning of the episode was evicted, frames -history .. -1 are also stored. They belong to the first observation,
    so there are at most ``stack - 1`` of them.

    ======================  ====================  ===========================================================
    field                   shape                 meaning
    ======================  ====================  ===========================================================
    env_id                                        number of the environment
    indices                 ``(T,)``              indices of the transitions, as in ``Batch.index``
    actions                 ``(T, *action)``      int64; actions of a ``Box`` keep their dtype
    rewards                 ``(T,)``              float32
    terminated, truncated   ``(T,)``              bool; only the last entry can be True
    has_beginning                                 whether frame 0 is the frame of the reset
    history                                       number of stored frames before frame 0
    extras                  ``(T, *shape)``       extra fields, by name
    borders                 ``(T,)``              bool; the next observation is not the observation shifted by a frame
    ======================  ====================  ===========================================================
    """

    env_id: int
    indices: Indices
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    has_beginning: bool
    history: int
    extras: dict[str, npt.NDArray[Any]]
    borders: npt.NDArray[np.bool_]
    _storage: FrameStorage
    _first_position: int  # of the frame that the first stored step starts at
    _counts: npt.NDArray[np.int32]  # frames of each observation, without padding
    _settings: MemorySettings

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield f"{plural(len(self), 'step')} of environment {self.env_id}"
            yield f"total reward {self.rewards.sum():g}"

        return one_line(self, details)

    @property
    def has_end(self) -> bool:
        """Whether the last step terminated or truncated the episode; False if it is open, or if a reset cut it off."""
        return bool(self.terminated[-1] or self.truncated[-1])

    def frames(self, first: int = 0, before: int | None = None) -> Any:
        """Return the frames ``first`` to ``before`` (excluded; by default all to the last) as a new array.

        For Dict and Tuple observations, return one array per key or part. Raises ``IndexError`` for frames outside this
        episode, or evicted since.
        """
        stop = len(self) + 1 if before is None else before
        if not -self.history <= first <= stop <= len(self) + 1:
            raise IndexError(
                f"frames {first} to {stop} of an episode of {len(self)} transitions: it has frames {-self.history} to "
                f"{len(self)}; ask for those"
            )
        spec = self._settings.frame
        frames = [frame.empty(1, stop - first) for frame in spec.frame_specs]
        for start in range(0, stop - first, FRAMES_AT_ONCE):
            count = min(FRAMES_AT_ONCE, stop - first - start)
            piece = tuple(part[:, start : start + count] for part in frames)
            last = np.array([self._first_position + first + start + count - 1])
            self._storage.windows(np.array([self.env_id], np.int32), last, np.array([count], np.int32), piece)
        return spec.rebuild([part[0] for part in frames])

    def observations(self, first: int = 0, before: int | None = None) -> Any:
        """Return the observations ``first`` to ``before`` (excluded; by default all to the last) as a new array.

        ``(n, *observation)`` as in batches: observation t is what step t was chosen for, and the next observation of
        step t - 1 unless that is a border. The last one, ``len(self)``, is the last next observation. For Dict and
        Tuple observations, return one array per key or part. Raises ``IndexError`` for observations outside this
        episode, or evicted since.
        """
        return self._settings.layout.join(self.stacks(first, before))

    def stacks(self, first: int = 0, before: int | None = None) -> list[npt.NDArray[Any]]:
        """Return what ``observations`` returns as frames, ``(n, depth, *frame)`` for each array, oldest first."""
        stop = len(self) + 1 if before is None else before
        if not 0 <= first <= stop <= len(self) + 1:
            raise IndexError(
                f"observations {first} to {stop} of an episode of {len(self)} transitions: it has observations 0 to "
                f"{len(self)}; ask for those"
            )
        spec, layout, padding = self._settings.frame, self._settings.layout, self._settings.stack_padding
        parts = [frame.empty(stop - first, depth) for frame, depth in zip(spec.frame_specs, layout.depths, strict=True)]
        for start in range(first, stop, FRAMES_AT_ONCE):
            rows = np.arange(start, min(start + FRAMES_AT_ONCE, stop))
            here = slice(start - first, start - first + len(rows))
            piece = tuple(part[here] for part in parts)
            env_ids = np.full(len(rows), self.env_id, np.int32)
            self._storage.windows(env_ids, self._first_position + rows, self._counts[rows], piece, padding)
        return parts


def iterate_episodes(parts: MemoryParts) -> Iterator[StoredEpisode]:
    """Yield the episodes of a memory, environment by environment, oldest first; evicted transitions split an episode.

    Frames are read on demand, and only one episode is in RAM at a time. Raises ``NothingToSampleError`` if the memory
    evicts transitions of an episode before it is yielded.
    """
    with parts.lock:
        env_ids, positions, num_steps, _, _, beginnings = (column.tolist() for column in parts.steps.readable_spans())
    for env_id, first, length, beginning in sorted(zip(env_ids, positions, num_steps, beginnings, strict=True)):
        yield read_episode(parts, env_id, first, length, has_beginning=first == beginning)


class StepSpan(NamedTuple):
    """Consecutive readable steps of one episode: ``length`` from the one that starts at the frame at ``first``."""

    env_id: int
    first: int
    length: int
    has_beginning: bool


def spans_by_age(parts: MemoryParts) -> list[StepSpan]:
    """Return the stored episodes, and parts of episodes, in the order of their last steps: what ended first is first.

    (With random retention, steps of several environments are in order up to a segment.)
    """
    with parts.lock:
        env_ids, firsts, lengths, _, _, beginnings = parts.steps.readable_spans()
        order = np.argsort(parts.steps.find_steps(env_ids, firsts + lengths - 1), kind="stable")
    columns = (column[order].tolist() for column in (env_ids, firsts, lengths, beginnings == firsts))
    return list(itertools.starmap(StepSpan, zip(*columns, strict=True)))


def read_episode(parts: MemoryParts, env_id: int, first: int, length: int, *, has_beginning: bool) -> StoredEpisode:
    """Return the ``length`` steps of an environment whose first one starts at the frame at position ``first``.

    Raises:
        NothingToSampleError: the memory evicted one of them.
    """
    with parts.lock:
        start = parts.steps.find_steps(np.array([env_id]), np.array([first]))
        indices = parts.steps.follow(start, length)[0][0]
        if (indices < 0).any():
            raise NothingToSampleError(
                f"steps of environment {env_id} were evicted during the iteration over episodes: a full memory "
                "must not be appended to meanwhile; pause the environments"
            )
        windows, fields = parts.steps.resolve_steps(indices)
        borders = parts.steps.flags_of(indices) & BORDER > 0
    counts = windows.counts
    last_count = 1 if borders[-1] else min(counts[-1], parts.settings.stack)
    return StoredEpisode(
        env_id=env_id,
        indices=indices,
        actions=fields.action,
        rewards=fields.reward,
        terminated=fields.terminated,
        truncated=fields.truncated,
        has_beginning=has_beginning,
        history=int(counts[0]) - 2,  # without the newest frame and the next observation's frame
        extras=fields.extras,
        borders=borders,
        _storage=parts.frames,
        _first_position=first,
        _counts=np.append(counts - 1, last_count).astype(np.int32),
        _settings=parts.settings,
    )
