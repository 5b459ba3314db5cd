"""Chunks: some hundred steps of one environment, packed where they are played and sent to a shard in one call.

``ShardWriter`` has the methods of a memory that a ``Recorder`` calls, packs the frames, and sends the chunks.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.distributed.calls import START_S, Calls
from framestow.errors import ActorLostError, DamagedDataError, InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import Frames, ObservationSpec, flatten_frames
from framestow.frames.stacking import BY_SETTING, FrameStacker, StackPadding
from framestow.one_line import one_line, plural
from framestow.replay.added_steps import (
    NO_RUN,
    CurrentStacks,
    RunStarts,
    UnusualStep,
    add_step,
    append_observations,
    begin_episodes,
    rows_of,
)
from framestow.replay.memory_settings import MemorySettings
from framestow.replay.step_checks import (
    BEGINS,
    BEGINS_RUN,
    GivenStep,
    SegmentSteps,
    check_arrays,
    check_env_ids,
    check_episodes_are_open,
    check_flags,
    check_frames,
    check_rewards,
)
from framestow.replay.step_fields import TERMINATED, TRUNCATED
from framestow.storage.frame_storage import FrameStorage

Arrays = tuple[npt.NDArray[Any], ...]  # frames, one array per key of the observation space
ONLY_ENV = np.zeros(1, np.int32)  # the environments of a storage that has one


class Context(NamedTuple):
    """What a shard needs to know of the steps before a chunk if it has none of them."""

    observation: Any  # the observation before the chunk's first frame, as ``add`` takes it, of one environment
    begins: bool  # whether it is the first one of its episode


@dataclass(frozen=True)
class Chunk:
    """Consecutive frames of one environment, packed, with their steps.

    Within a writer, the chunks of an environment are numbered from 0. A writer that is created later replaces an
    earlier one of the same environment, for example when its actor was restarted.
    """

    env_id: int  # of the shard's memory
    writer: int  # time of the writer's creation, in ns
    number: int  # among the chunks of this writer and environment, from 0
    segments: tuple[bytes, ...]  # one for each array, with the paddings of the runs that begin in it
    num_frames: int
    steps: SegmentSteps
    priorities: npt.NDArray[np.float32] | None = None  # of each step, NaN where unknown; None: all unknown
    context: Context | None = None  # only if a shard asked for it

    @property
    def nbytes(self) -> int:
        """Number of bytes of frames and steps, without the context and what a message adds."""
        extras = 0 if self.steps.extras is None else sum(values.nbytes for values in self.steps.extras.values())
        arrays = [self.steps.bits, self.steps.actions, self.steps.rewards, self.priorities]
        of_arrays = sum(array.nbytes for array in arrays if array is not None)
        return sum(map(len, self.segments)) + of_arrays + extras


# What a shard did with a chunk (``Shard.take``).
STORED, DUPLICATE, GAP, REPLACED = "stored", "duplicate", "gap", "replaced"


class ShardReport(NamedTuple):
    """What a shard reports with each answer."""

    epoch: int  # changes with each restart; 0 at first
    transitions: int  # that can be sampled
    mass: float  # sum of what draws are proportional to
    smallest: float  # mass of one transition, infinity without any
    inserted: int  # steps since the shard started
    insert_limit: float  # steps that it may have inserted; writers wait at this number
    ignored_updates: int  # priorities of evicted transitions
    duplicates: int  # chunks that were sent twice
    nbytes: int  # of the memory in RAM


class Taken(NamedTuple):
    """Answer to ``take``: for each chunk its status, and the number of frames in the environment's open segment."""

    statuses: list[str]  # of each chunk
    open_frames: list[int]  # of each chunk: frames in the open segment of its environment afterwards
    report: ShardReport


def unpack_chunk(settings: MemorySettings, chunk: Chunk) -> tuple[Arrays, Arrays]:
    """Return the frames of a chunk, and the whole stacks of those frames that begin an episode or a run.

    ``(num_frames, *frame)`` and ``(num_begins, depth, *frame)`` of each array.

    Raises:
        DamagedDataError: other bytes than a writer packed.
    """
    begins = np.flatnonzero(chunk.steps.bits & (BEGINS | BEGINS_RUN))
    arrays = [
        _unpack_segment(*of_array, chunk.num_frames, begins, settings.stack_padding)
        for of_array in zip(settings.frame.frame_specs, settings.layout.depths, chunk.segments, strict=True)
    ]
    return tuple(frames for frames, _ in arrays), tuple(stacks for _, stacks in arrays)


def _unpack_segment(
    spec: FrameSpec,
    depth: int,
    segment: bytes,
    num_frames: int,
    begins: npt.NDArray[np.int64],
    padding: StackPadding,
) -> Arrays:
    storage = FrameStorage(spec, 1, frames_per_segment=num_frames, depths=[depth])
    storage.restore(0, 0, segment)
    if storage.stored_positions(0) != range(num_frames):
        raise DamagedDataError(
            f"segment has {storage.stored_positions(0).stop} frames: its chunk has {num_frames}; send it again"
        )
    frames, stacks = spec.empty(num_frames), np.empty((len(begins), depth, *spec.shape), spec.dtype)
    whole = ONLY_ENV, np.array([num_frames - 1]), np.array([num_frames], np.int32)
    storage.windows(*whole, frames[None], padding)
    if begins.size:
        storage.windows(np.zeros(len(begins), np.int32), begins, np.ones(len(begins), np.int32), stacks, padding)
    return frames, stacks


def arrange_frames(settings: MemorySettings, arrays: Arrays) -> Any:
    """Return frames of all arrays in the form that ``begin`` and ``append`` take."""
    return settings.frame.rebuild(arrays) if isinstance(settings.frame, ObservationSpec) else arrays[0]


class _OpenChunk:
    """The chunk of one environment that is being filled."""

    def __init__(self, writer: WriterSettings) -> None:
        self.settings = settings = writer.memory
        self.priority = writer.priority  # of TD errors; None: steps get no initial priorities
        length = settings.frames_per_segment or 1
        self._frames = self._new_storage()
        self.bits = np.zeros(length, np.uint8)  # of each frame: it begins an episode, or how the step to it ended
        # Of each step; ``num_steps`` are filled. A frame that begins an episode has no step.
        self.actions = np.zeros((length, *settings.action.shape), settings.action.stored_dtype)
        self.rewards = np.zeros(length, np.float32)
        self.extras = {spec.name: np.zeros((length, *spec.shape), spec.dtype) for spec in settings.extras.extras}
        # Q of the chosen action and the largest Q, of each step; NaN where no actor gave them.
        self.chosen, self.best = np.full(length, np.nan, np.float32), np.full(length, np.nan, np.float32)
        self.context: Context | None = None  # None of the first chunk
        # ``number`` counts the chunks of this environment.
        self.num_frames = self.num_steps = self.number = 0
        self.position = 0  # frames in the shard's open segment when this chunk begins
        self.alignment = 0  # changes with each correction of the position

    @property
    def is_full(self) -> bool:
        """Whether the chunk ends where the shard's segment does."""
        return self.position + self.num_frames >= len(self.bits)

    def _new_storage(self) -> FrameStorage:
        """Return the storage that packs the chunk's frames, as positions 0, 1, … of its only environment."""
        settings = self.settings
        return FrameStorage(
            settings.frame, 1, frames_per_segment=settings.frames_per_segment, depths=settings.layout.depths
        )

    def add_frame(self, frame: Frames, bits: int, start: RunStarts) -> None:
        """Pack a frame, ``(1, *frame)``; ``start``: the padding of the run that it begins."""
        self._frames.append(ONLY_ENV, frame, *start)
        self.bits[self.num_frames] = bits
        self.num_frames += 1

    def add_step(self, action: Any, reward: Any, values: tuple[float, float], extras: Mapping[str, Any]) -> None:
        """Copy the step that led to the newest frame."""
        index = self.num_steps
        self.actions[index], self.rewards[index] = action, reward
        self.chosen[index], self.best[index] = values
        for name, value in extras.items():
            self.extras[name][index] = value
        self.num_steps += 1

    def seal(self, env_id: int, writer: int, observation: Any) -> _Sealed:
        """Return the chunk with copies of everything, and begin the next one after ``observation``."""
        num, steps = self.num_frames, self.num_steps
        chunk = Chunk(
            env_id,
            writer,
            self.number,
            tuple(self._frames.segment(array, 0) for array in range(len(self.settings.frame.frame_specs))),
            num,
            SegmentSteps(
                self.bits[:num].copy(),
                self.actions[:steps].copy(),
                self.rewards[:steps].copy(),
                {name: values[:steps].copy() for name, values in self.extras.items()} or None,
            ),
            self._priorities(),
        )
        position = (self.position + num) % len(self.bits)
        sealed = _Sealed(chunk, self.context, position, self.alignment)
        self.context = Context(observation, bool(self.bits[num - 1] & BEGINS))
        self._frames = self._new_storage()
        self.position, self.num_frames, self.num_steps, self.number = position, 0, 0, self.number + 1
        self.chosen[:], self.best[:] = np.nan, np.nan
        return sealed

    def _priorities(self) -> npt.NDArray[np.float32] | None:
        """Return the n-step TD error of each step as its priority (Horgan et al. 2018); NaN where it is unknown.

        Unknown are the last steps of a chunk, whose returns the next chunk completes, and those of a truncated episode.
        """
        num = self.num_steps
        if self.priority is None or np.isnan(self.chosen[:num]).all():
            return None
        n_step, discount = self.settings.n_step, self.settings.discount
        ends = self.bits[: self.num_frames][(self.bits[: self.num_frames] & BEGINS) == 0]
        errors = np.full(num, np.nan, np.float32)
        for index in range(num):
            value, factor = 0.0, 1.0
            for later in range(index, min(index + n_step, num)):
                value += factor * float(self.rewards[later])
                factor *= discount
                if ends[later] & TERMINATED:
                    errors[index] = value - self.chosen[index]
                    break
                if ends[later] & TRUNCATED:
                    break
            else:
                if index + n_step < num:
                    errors[index] = value + factor * self.best[index + n_step] - self.chosen[index]
        return self.priority(errors)


@dataclass(frozen=True)
class _Sealed:
    """A chunk that was not acknowledged yet."""

    chunk: Chunk
    context: Context | None
    position: int  # frames in the shard's open segment after it
    alignment: int  # of the open chunk when this one was sealed


@dataclass
class WriterCounts:
    """What a writer did since it was created."""

    appended: int = 0  # steps, sent or not
    chunks: int = 0  # sent
    steps: int = 0  # in them
    nbytes: int = 0  # of the chunks sent
    resent: int = 0  # chunks sent again
    waited_s: float = 0.0  # for the rate limiter
    blocked_s: float = 0.0  # for a slow or restarting shard


@dataclass(frozen=True)
class WriterSettings:
    """Settings of a ``ShardWriter``."""

    memory: MemorySettings  # of each shard
    env_ids: tuple[int, ...]  # of the whole replay
    max_in_flight: int = 2  # calls to each shard
    timeout_s: float = 30.0  # of one call
    give_up_s: float = START_S  # a shard that is not back by then raises
    waits_for_limiter: bool = True  # False for the writer of the process that samples
    priority: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]] | None = np.abs  # of TD errors


class ShardWriter:
    """Sends the steps of some environments to their shards; has the methods of a memory that a ``Recorder`` calls.

    ``begin`` and ``append`` store frames in a chunk for each environment. A full chunk is packed and sent: up to
    ``max_in_flight`` calls are in flight to each shard, then the writer waits for the oldest. A call that fails is
    repeated until the shard is back; chunks that it has already are dropped there. A shard that came back without the
    steps before a chunk gets the observation before it, so that every sampled stack is one that the policy saw.

    Environments are numbered from 0 within the writer. A copy that is sent to another process starts empty.
    """

    def __init__(self, shards: Calls, settings: WriterSettings) -> None:
        self._shards, self._writer_settings = shards, settings
        # Settings of a shard's memory.
        self.settings = settings.memory
        self.num_envs, self.stack = len(settings.env_ids), self.settings.stack
        self.counts = WriterCounts()
        self._writer = time.time_ns()  # tells this writer apart from earlier ones of the same environments
        # Of each environment, its shard and its env_id there.
        self._shard_env_ids = [divmod(env_id, shards.num_objects)[::-1] for env_id in settings.env_ids]
        # State of the environments as a memory has it, so that ``add`` and ``observations`` work before a chunk is
        # sent.
        self._all_envs = np.arange(self.num_envs, dtype=np.int32)
        self._is_open = np.zeros(self.num_envs, np.bool_)
        layout = self.settings.layout
        self._stacker = FrameStacker(
            self.settings.frame, self.stack, self.num_envs, self.settings.stack_padding, layout.depths
        )
        self.current_stacks = CurrentStacks(layout, self._stacker, self._all_envs, self._is_open)
        # The one of each environment that is being filled.
        self._chunks = [_OpenChunk(settings) for _ in settings.env_ids]
        # By shard: the calls without an answer, oldest first, each with its chunks.
        self._in_flight: dict[int, deque[tuple[Any, list[_Sealed]]]] = {s: deque() for s in range(shards.num_objects)}
        # By shard: its last report, for the rate limiter; a shard is missing before its first answer.
        self._reports: dict[int, ShardReport] = {}
        # ``note_values`` of the next step; None if none were given.
        self._values: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None

    def __reduce__(self) -> Any:
        return type(self), (self._shards, self._writer_settings)

    def __repr__(self) -> str:
        return one_line(self, lambda: (plural(self.num_envs, "environment"), f"stack {self.stack}"))

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode in each of ``env_ids``, as ``ReplayMemory.begin`` does."""
        envs = check_env_ids(env_ids, self._all_envs)
        if self.settings.layout.stores_as_given:
            self.start_episodes(check_frames(frames, len(envs), self.settings.frame), envs)
        else:
            begin_episodes(self, frames, envs)

    def start_episodes(self, frames: Frames, envs: npt.NDArray[np.int32], starts: RunStarts = NO_RUN) -> None:
        """Start episodes with checked frames; ``starts``: the paddings of their first observations."""
        if starts.paddings is None:
            starts = RunStarts(np.full(len(envs), BY_SETTING, np.uint8), None)
        self._is_open[envs] = True
        self._stacker.append(envs, frames, *starts)
        for row, env in enumerate(envs.tolist()):
            self._chunks[env].add_frame(rows_of(frames, row), BEGINS, starts.of_row(row))
        self._send_full()

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
        if self.settings.layout.stores_as_given:
            frames = flatten_frames(frames, self.settings.frame)
            self.store_step((env_ids, actions, rewards, terminated, truncated, frames, extras))
        else:
            append_observations(self, (env_ids, actions, rewards, terminated, truncated, frames, extras))

    def store_step(self, step: GivenStep, starts: RunStarts = NO_RUN) -> None:
        """Store a step of several environments; ``starts``: the runs that their next observations begin."""
        env_ids, actions, rewards, terminated, truncated, frames, extras = step
        envs = check_env_ids(env_ids, self._all_envs)
        check_episodes_are_open(self._is_open, envs)
        num = len(envs)
        checked_actions = self.settings.action.check_actions(actions, num)
        checked = check_rewards(rewards, num)
        ends = check_flags("terminated", terminated, num) * TERMINATED
        ends = ends + check_flags("truncated", truncated, num) * TRUNCATED
        bits = ends if starts.paddings is None else ends | (starts.paddings > 0) * BEGINS_RUN
        fields = self.settings.extras.check_extras(extras, num) or {}
        frames = check_arrays(frames, num, self.settings.frame)
        values, self._values = self._values, None
        self._is_open[envs] = ends == 0
        self.counts.appended += num
        self._stacker.append(envs, frames, *starts)
        bits_of_rows = bits.tolist()
        for row, env in enumerate(envs.tolist()):
            of_step = (np.nan, np.nan) if values is None else (values[0][env], values[1][env])
            chunk = self._chunks[env]
            chunk.add_frame(rows_of(frames, row), bits_of_rows[row], starts.of_row(row))
            chunk.add_step(checked_actions[row], checked[row], of_step, {name: fields[name][row] for name in fields})
        self._send_full()

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

        Raises:
            InvalidStepError: before anything is stored.
        """
        add_step(self, (observation, action, reward, next_observation, terminated, truncated, env_ids, extras))

    def note_values(self, chosen: npt.ArrayLike, best: npt.ArrayLike) -> None:
        """Give the values of the next step of all environments, so that its transitions get initial priorities.

        Arguments:
            chosen: Q of the chosen actions, ``(num_envs,)``.
            best: Largest Q of any action, ``(num_envs,)``.
        """
        pair = np.asarray(chosen, np.float32), np.asarray(best, np.float32)
        if pair[0].shape != (self.num_envs,) or pair[1].shape != (self.num_envs,):
            raise InvalidStepError(
                f"values have shapes {pair[0].shape} and {pair[1].shape}: the writer has {self.num_envs} environments; "
                "give one number for each"
            )
        self._values = pair

    def look_at(self, step: UnusualStep) -> None:
        """Do nothing: a writer has no memory, whose report counts such steps."""

    def observations(self) -> Any:
        """Return the current observation of each environment, as ``ReplayMemory.observations`` does."""
        return self.settings.layout.join(self._stacker.parts())

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Whether each environment has an open episode, ``(num_envs,)``."""
        return self._is_open.copy()

    def flush(self) -> None:
        """Send all steps, full chunks or not, and wait until the shards have stored them."""
        self._send([env for env, chunk in enumerate(self._chunks) if chunk.num_frames])
        for shard in self._in_flight:
            while self._in_flight[shard]:
                self._receive(shard)

    def check_extras(self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int) -> Any:
        """Return ``extras`` as ``append`` stores them (``ReplayMemory.check_extras``)."""
        return self.settings.extras.check_extras(extras, num_steps)

    def _send_full(self) -> None:
        self._send([env for env, chunk in enumerate(self._chunks) if chunk.is_full])

    def _send(self, envs: list[int]) -> None:
        if not envs:
            return
        by_shard: dict[int, list[_Sealed]] = {}
        stacks = self._stacker.parts()
        for env in envs:
            shard, env_id = self._shard_env_ids[env]
            observation = self.settings.layout.join([part[env : env + 1].copy() for part in stacks])
            by_shard.setdefault(shard, []).append(self._chunks[env].seal(env_id, self._writer, observation))
        for shard, sealed in by_shard.items():
            while len(self._in_flight[shard]) >= self._writer_settings.max_in_flight:
                self._receive(shard)
            self._wait_for_limiter(shard)
            chunks = [each.chunk for each in sealed]
            self._in_flight[shard].append((self._shards.call(shard, "take", chunks), sealed))
            self.counts.chunks += len(chunks)
            self.counts.steps += sum(chunk.steps.num_steps for chunk in chunks)
            self.counts.nbytes += sum(chunk.nbytes for chunk in chunks)

    def _receive(self, shard: int) -> None:
        """Wait for the oldest call to ``shard``; send again what it refused or may have lost."""
        handle, sealed = self._in_flight[shard].popleft()
        since = time.monotonic()
        missing = self._missing_of(shard, handle, sealed)
        if missing:
            while self._in_flight[shard]:
                missing += self._missing_of(shard, *self._in_flight[shard].popleft())
            self._send_again(shard, missing)
        self.counts.blocked_s += time.monotonic() - since

    def _missing_of(self, shard: int, handle: Any, sealed: list[_Sealed]) -> list[_Sealed]:
        """Return the chunks that must be sent again, after a call."""
        try:
            taken: Taken = self._shards.result(handle, self._writer_settings.timeout_s)
        except ActorLostError:
            return list(sealed)
        self._note(shard, taken, sealed)
        return [each for each, status in zip(sealed, taken.statuses, strict=True) if status == GAP]

    def _send_again(self, shard: int, missing: list[_Sealed]) -> None:
        """Send chunks one by one, in order, until the shard has each of them."""
        give_up_at, pause_s = time.monotonic() + self._writer_settings.give_up_s, 0.05
        while missing:
            sealed, chunk = missing[0], missing[0].chunk
            self.counts.resent += 1
            try:
                for chunk in (sealed.chunk, replace(sealed.chunk, context=sealed.context)):
                    handle = self._shards.call(shard, "take", [chunk])
                    taken: Taken = self._shards.result(handle, self._writer_settings.timeout_s)
                    self._note(shard, taken, [sealed])
                    if taken.statuses[0] != GAP:
                        break
                missing.pop(0)
            except ActorLostError as error:
                if time.monotonic() > give_up_at:
                    raise ActorLostError(
                        f"shard {shard} did not come back within {self._writer_settings.give_up_s:g} s: the steps of "
                        f"{len(missing)} chunks are lost; see why it died, or raise give_up_s"
                    ) from error
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)

    def _note(self, shard: int, taken: Taken, sealed: list[_Sealed]) -> None:
        self._reports[shard] = taken.report
        for each, status, position in zip(sealed, taken.statuses, taken.open_frames, strict=True):
            if status == REPLACED:
                raise ActorLostError(
                    f"environment {each.chunk.env_id} of shard {shard} has a newer writer: this one was replaced; "
                    "end it"
                )
            open_chunk = self._chunks[self._shard_env_ids.index((shard, each.chunk.env_id))]
            shift = position - each.position
            if status == STORED and shift and each.alignment == open_chunk.alignment:
                # The shard came back with another number of frames: end the next chunk where its segment ends.
                open_chunk.position = (open_chunk.position + shift) % len(open_chunk.bits)
                open_chunk.alignment += 1

    def _wait_for_limiter(self, shard: int) -> None:
        """Wait while the shard has as many steps as the rate limiter allows, with those that are on their way to it."""
        since, pause_s = time.monotonic(), 0.01
        while self._writer_settings.waits_for_limiter and shard in self._reports:
            report, in_flight = self._reports[shard], self._in_flight[shard]
            num_sent = sum(each.chunk.steps.num_steps for _, sealed in in_flight for each in sealed)
            if report.inserted + num_sent < report.insert_limit:
                break
            if in_flight:
                self._receive(shard)
                continue
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.2)
            try:
                handle = self._shards.call(shard, "report")
                self._reports[shard] = self._shards.result(handle, self._writer_settings.timeout_s)
            except ActorLostError:
                break  # the next call waits for the shard
        self.counts.waited_s += time.monotonic() - since


def check_writer_env_ids(env_ids: Sequence[int], num_envs: int) -> tuple[int, ...]:
    """Return ``env_ids`` as a tuple; raise ``InvalidSettingsError`` for numbers that are unknown or repeated."""
    checked = tuple(int(env_id) for env_id in env_ids)
    if len(set(checked)) != len(checked) or not checked or min(checked) < 0 or max(checked) >= num_envs:
        raise InvalidSettingsError(
            f"env_ids is {list(checked)}: a writer has environments of 0 to {num_envs - 1}, each once; give others, or "
            "build the replay with a larger num_envs"
        )
    return checked
