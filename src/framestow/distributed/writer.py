"""``ShardWriter``: takes steps as a memory does, packs them in chunks, and sends these until the shards have them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, TERMINATED, WriterPlanner
from framestow.distributed.ray import START_S, Calls
from framestow.distributed.shard import GAP, ONLY_ENV, REPLACED, STORED, Chunk, Context, Taken
from framestow.errors import ActorLostError, InvalidStepError
from framestow.frames.observation_spec import Frames
from framestow.interface import HidesNames, one_line, plural
from framestow.keywords import suggests_keywords
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.step_checks import ADD, APPEND, BEGIN, Forms, SegmentSteps, check_extras
from framestow.replay.steps.step_stores import step_settings
from framestow.storage.frame_storage import FrameStorage

Values = npt.NDArray[np.float32]
Priorities = Callable[[Values], Values]  # of n-step TD errors


@dataclass(frozen=True)
class WriterSettings:
    """Settings of a ``ShardWriter``."""

    memory: MemorySettings  # of each shard
    env_ids: tuple[int, ...]  # of the whole replay
    max_in_flight: int = 2  # calls to each shard
    timeout_s: float = 30.0  # of one call
    give_up_s: float = START_S  # a shard that is not back by then raises
    waits_for_limiter: bool = True  # False for the writer of the process that samples
    priority: Priorities | None = np.abs  # of TD errors


@dataclass
class WriterCounts:
    """Counts of a writer since it was created."""

    appended: int = 0  # steps, sent or not
    waited_s: float = 0.0  # for the rate limiter
    blocked_s: float = 0.0  # for a slow or restarting shard


class StepCalls(HidesNames, ABC):
    """The calls of a memory that store steps: of a writer, and of a replay that has one."""

    @property
    @abstractmethod
    def step_writer(self) -> ShardWriter:
        """The writer that these calls store steps with."""

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode in each of ``env_ids``, as ``ReplayMemory.begin`` does."""
        writer = self.step_writer
        writer.store(writer.planner.plan_begin, BEGIN, (writer.settings.layout.flatten_given(frames), env_ids))

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[Any] | None = None,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids``, as ``ReplayMemory.append`` does, and send full chunks.

        Raises:
            InvalidStepError: before anything is stored.
            ActorLostError: a shard does not come back.
        """
        writer = self.step_writer
        parts = writer.settings.layout.flatten_given(frames, "next_observation")
        step = env_ids, actions, rewards, terminated, truncated, parts, extras
        writer.store(writer.planner.plan_append, APPEND, step)

    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any,
        env_ids: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids`` with any observations, as ``ReplayMemory.add`` does.

        Raises as ``append`` does.
        """
        writer, flatten = self.step_writer, self.step_writer.settings.layout.flatten
        parts, next_parts = flatten(observation), flatten(next_observation, "next_observation")
        step = env_ids, action, reward, terminated, truncated, next_parts, extras, parts
        writer.store(writer.planner.plan_add, ADD, step)

    def observations(self) -> Any:
        """Return the current observation of each environment, as ``ReplayMemory.observations`` does."""
        writer = self.step_writer
        return writer.settings.layout.join(writer.planner.stacks())

    @property
    def takes_frames(self) -> bool:
        """Whether ``begin`` and ``append`` take single frames (``ReplayMemory.takes_frames``)."""
        return self.step_writer.settings.layout.takes_frames

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Whether each environment has an open episode, ``(num_envs,)``."""
        return self.step_writer.planner.open_episodes

    def check_extras(self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int) -> Any:
        """Return ``extras`` as ``append`` stores them (``ReplayMemory.check_extras``)."""
        return check_extras(self.step_writer.settings.extras, extras, num_steps)


@suggests_keywords
class ShardWriter(StepCalls):
    """Sends the steps of some environments to their shards; has the methods of a memory that a ``Recorder`` calls.

    ``begin``, ``append`` and ``add`` pack frames in a chunk for each environment. A full chunk is sent: up to
    ``max_in_flight`` calls are in flight to each shard, then the writer waits for the oldest. A call that fails is
    repeated until the shard is back; chunks that it has already are ignored there. A shard that came back without the
    steps before a chunk gets the observation before it, so that every sampled stack is one that the policy saw.

    Environments are numbered from 0 within the writer, up to ``num_envs`` - 1. A copy that is sent to another process
    starts empty.
    """

    _hidden_names = frozenset({"counts", "planner", "settings", "store"})

    def __init__(self, shards: Calls, settings: WriterSettings) -> None:
        self._arguments = shards, settings
        # Settings of a shard's memory.
        self.settings = settings.memory
        self.num_envs, self.stack = len(settings.env_ids), self.settings.stack
        self.counts = WriterCounts()
        self._senders = [_Sender(shards, shard, settings, self.counts) for shard in range(shards.num_objects)]
        # State of the environments as a memory has it, so that ``add`` and ``observations`` work before a chunk is
        # sent.
        self.planner = WriterPlanner(
            self.num_envs, step_settings(self.settings, 1), self.settings.layout, self.settings.stack_padding
        )
        writer = time.time_ns()  # tells this writer apart from earlier ones of the same environments
        # Of each environment, its shard, and the chunk that is being filled.
        self._shards = [env_id % shards.num_objects for env_id in settings.env_ids]
        self._chunks = [_OpenChunk(settings, writer, env_id // shards.num_objects) for env_id in settings.env_ids]
        # ``set_values`` of the next step: Q of the chosen actions and largest Q, of all environments.
        self._values = self._unknown_values = np.full((2, self.num_envs), np.nan, np.float32)

    @property
    def step_writer(self) -> ShardWriter:
        """This writer."""
        return self

    def __reduce__(self) -> Any:
        return type(self), self._arguments

    def __repr__(self) -> str:
        return one_line(self, lambda: (plural(self.num_envs, "environment"), f"stack {self.stack}"))

    def store(self, plan: Callable[..., bool | None], forms: Forms, arguments: tuple[Any, ...]) -> None:
        """Plan what the arguments store, in a usual form or converted; pack it, and send full chunks."""
        if plan(*arguments) is None and plan(*forms.convert(self.settings, *arguments)) is None:
            raise forms.explain(self.settings, self.planner, *arguments)
        episodes, steps, fields = self.planner.planned()
        self.planner.apply_episodes()
        self._add_frames(episodes)
        self.planner.apply_steps()
        if len(steps[0]):
            values, self._values = self._values, self._unknown_values
            self.counts.appended += len(steps[0])
            self._add_frames(steps, fields, values)

    def _add_frames(
        self, rows: tuple[Any, ...], fields: tuple[Any, ...] = (), values: npt.NDArray[np.float32] | None = None
    ) -> None:
        """Pack ``rows`` that ``planned`` returned, and send full chunks; ``fields`` and ``values``: of steps."""
        envs, bits, frames, paddings, lead_ins = rows
        for row, env in enumerate(envs.tolist()):
            one, chunk = slice(row, row + 1), self._chunks[env]
            older = None if lead_ins is None else tuple(part[one] for part in lead_ins)
            chunk.add_frame(tuple(part[one] for part in frames), bits[row], paddings[one], older)
            if values is not None:
                actions, rewards, extras = fields
                of_row = {name: field[row] for name, field in extras.items()}
                chunk.add_step(actions[row], rewards[row], values[:, env], of_row)
        self._send_full()

    def set_values(self, chosen: npt.ArrayLike, best: npt.ArrayLike) -> None:
        """Give the values of the next step of all environments, so that its transitions get initial priorities.

        Arguments:
            chosen: Q of the chosen actions, ``(num_envs,)``.
            best: Largest Q of any action, ``(num_envs,)``.
        """
        pair = np.asarray(chosen, np.float32), np.asarray(best, np.float32)
        if pair[0].shape != (self.num_envs,) or pair[1].shape != (self.num_envs,):
            raise InvalidStepError(
                f"values have shapes {pair[0].shape} and {pair[1].shape}: the writer has "
                f"{plural(self.num_envs, 'environment')}; give one number for each"
            )
        self._values = np.stack(pair)

    def flush(self) -> None:
        """Send all steps, full chunks or not, and wait until the shards have stored them."""
        self._send([env for env, chunk in enumerate(self._chunks) if chunk.num_frames])
        for sender in self._senders:
            sender.finish()

    def _send_full(self) -> None:
        of_envs = enumerate(zip(self._chunks, self._shards, strict=True))
        full = [env for env, (chunk, shard) in of_envs if chunk.is_full(self._senders[shard].offsets)]
        if full:
            self._send(full)

    def _send(self, envs: Sequence[int]) -> None:
        by_shard: dict[int, list[Chunk]] = {}
        stacks = self.planner.stacks()
        for env in envs:
            observation = self.settings.layout.join([part[env : env + 1].copy() for part in stacks])
            by_shard.setdefault(self._shards[env], []).append(self._chunks[env].seal(observation))
        for shard, chunks in by_shard.items():
            self._senders[shard].send(chunks)


class _OpenChunk:
    """The frames and steps of one environment since its last chunk. Frames are packed as they come."""

    def __init__(self, settings: WriterSettings, writer: int, env_id: int) -> None:
        self._writer, self._env_id = writer, env_id  # as in Chunk
        self._settings, self._priority = settings.memory, settings.priority
        memory, length = settings.memory, settings.memory.frames_per_segment or 1
        self._bits = np.zeros(length, np.uint8)  # as in SegmentSteps
        # Of each step; a frame that begins an episode has none.
        self._actions = np.zeros((length, *memory.action.shape), memory.action.stored_dtype)
        self._rewards = np.zeros(length, np.float32)
        self._extras = {spec.name: np.zeros((length, *spec.shape), spec.dtype) for spec in memory.extras.extras}
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

    def is_full(self, offsets: Mapping[int, int]) -> bool:
        """Return whether the chunk ends where a segment of the shard ends.

        ``offsets``: by environment of the shard, the number of frames there before the first one of this writer.
        """
        length = len(self._bits)
        return (offsets.get(self._env_id, 0) + self._first_frame) % length + self.num_frames >= length

    def add_frame(self, frame: Frames, bits: int, padding: npt.NDArray[np.uint8], lead_ins: Frames | None) -> None:
        """Pack a frame, ``(1, *frame)``; ``padding`` and ``lead_ins``: those of ``FrameStorage.append``."""
        self._frames.append(ONLY_ENV, frame, padding, lead_ins)
        self._bits[self.num_frames] = bits
        self.num_frames += 1

    def add_step(self, action: Any, reward: Any, values: Values, extras: Mapping[str, Any]) -> None:
        """Copy the step that led to the newest frame."""
        index = self._num_steps
        self._actions[index], self._rewards[index], self._values[:, index] = action, reward, values
        for name, value in extras.items():
            self._extras[name][index] = value
        self._num_steps += 1

    def seal(self, observation: Any) -> Chunk:
        """Return the chunk with copies of everything, and begin the next one after ``observation``."""
        num_steps = self._num_steps
        steps = SegmentSteps(
            self._bits[: self.num_frames].copy(),
            self._actions[:num_steps].copy(),
            self._rewards[:num_steps].copy(),
            {name: values[:num_steps].copy() for name, values in self._extras.items()} or None,
        )
        segments = tuple(self._frames.segment(track, 0) for track in range(len(self._settings.frame.frame_specs)))
        of_steps = steps, self._priorities(steps), self._context
        chunk = Chunk(self._env_id, self._writer, self._first_frame, segments, *of_steps)
        self._context = Context(observation, bool(steps.bits[-1] & BEGINS_EPISODE))
        self._first_frame = chunk.next_frame
        self._begin()
        return chunk

    def _priorities(self, steps: SegmentSteps) -> Values | None:
        """Return the priorities of steps by their TD errors; NaN where these are unknown, ``None`` if all are."""
        chosen, best = self._values[:, : steps.num_steps]
        if self._priority is None or np.isnan(chosen).all():
            return None
        return self._priority(compute_td_errors(steps, chosen, best, self._settings.n_step, self._settings.discount))


def compute_td_errors(
    steps: SegmentSteps,
    chosen: Values,
    best: Values,
    n_step: int,
    discount: float,
) -> Values:
    """Return the n-step TD error of each step, which is its initial priority (Horgan et al. 2018); NaN if unknown.

    Unknown are those of the last steps of a chunk, whose returns the next chunk completes, and those of an episode that
    was truncated or cut off by a reset. ``chosen`` is Q of the action of each step, ``best`` the largest Q.
    """
    begins = steps.bits == BEGINS_EPISODE
    ends = steps.bits[~begins]
    is_last = np.append(begins[1:], True)[~begins]  # of its episode, or of the chunk
    returns: npt.NDArray[Any] = best
    for _ in range(n_step):  # each adds a reward before the returns of the next step
        following = np.where(is_last, np.nan, np.append(returns[1:], np.nan))
        returns = steps.rewards + discount * np.where(ends & TERMINATED, 0.0, following)
    return (returns - chosen).astype(np.float32)


class _Sender:
    """Sends the chunks of a writer to one shard, in order. Up to ``max_in_flight`` calls are in flight.

    A chunk is sent again if its call fails, or if the shard refuses it since it lost the chunk before. Then it has its
    ``context``.
    """

    def __init__(self, shards: Calls, shard: int, settings: WriterSettings, counts: WriterCounts) -> None:
        self._shards, self._shard, self._settings, self._counts = shards, shard, settings, counts
        # The calls without an answer, oldest first, each with its chunks.
        self._in_flight: deque[tuple[Any, Sequence[Chunk]]] = deque()
        # Steps that the shard may insert, as of its last answer; None before the first one.
        self._inserts_left: float | None = None
        # By environment there: frames in its segment before the first one of the writer, modulo a segment.
        self.offsets: dict[int, int] = {}

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send chunks, after a wait for the oldest call in flight or for the rate limiter."""
        while len(self._in_flight) >= self._settings.max_in_flight:
            self._receive()
        if self._settings.waits_for_limiter:
            self._wait_for_limiter()
        without_context = [replace(chunk, context=None) for chunk in chunks]
        self._in_flight.append((self._shards.call(self._shard, "take", without_context), chunks))

    def finish(self) -> None:
        """Wait until the shard has stored all chunks."""
        while self._in_flight:
            self._receive()

    def _receive(self) -> None:
        """Wait for the oldest call; send again what the shard refused or may have lost."""
        since = time.monotonic()
        missing = self._list_missing(*self._in_flight.popleft())
        while missing and self._in_flight:  # later chunks come after these
            missing += self._list_missing(*self._in_flight.popleft())
        self._send_again(missing)
        self._counts.blocked_s += time.monotonic() - since

    def _list_missing(self, handle: Any, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Wait for the answer to a call; return the chunks that must be sent again."""
        try:
            taken: Taken = self._shards.result(handle, self._settings.timeout_s)
        except ActorLostError:
            return list(chunks)
        self._inserts_left = taken.inserts_left
        for chunk, status, open_frames in zip(chunks, taken.statuses, taken.open_frames, strict=True):
            if status == REPLACED:
                raise ActorLostError(
                    f"environment {chunk.env_id} of shard {self._shard} has a newer writer: this one was replaced; "
                    "close it"
                )
            if status == STORED:
                self.offsets[chunk.env_id] = open_frames - chunk.next_frame
        return [chunk for chunk, status in zip(chunks, taken.statuses, strict=True) if status == GAP]

    def _send_again(self, missing: Sequence[Chunk]) -> None:
        """Send chunks one by one, in order, until the shard has each of them."""
        give_up_at, pause_s = time.monotonic() + self._settings.give_up_s, 0.05
        for number, chunk in enumerate(missing):
            while self._list_missing(self._shards.call(self._shard, "take", [chunk]), [chunk]):
                if time.monotonic() > give_up_at:
                    raise ActorLostError(
                        f"shard {self._shard} did not come back within {self._settings.give_up_s:g} s: the steps of "
                        f"{len(missing) - number} chunks are lost; see why it died, or raise give_up_s"
                    )
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)

    def _wait_for_limiter(self) -> None:
        """Wait while the shard has as many steps as the rate limiter allows, with those that are on their way to it."""
        since, pause_s = time.monotonic(), 0.01
        while self._inserts_left is not None:
            if self._inserts_left > sum(chunk.steps.num_steps for _, chunks in self._in_flight for chunk in chunks):
                break
            if self._in_flight:
                self._receive()
                continue
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.2)
            try:
                handle = self._shards.call(self._shard, "inserts_left")
                self._inserts_left = self._shards.result(handle, self._settings.timeout_s)
            except ActorLostError:
                break  # the next call waits for the shard
        self._counts.waited_s += time.monotonic() - since
