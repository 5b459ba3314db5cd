"""``ShardWriter``: takes steps as a memory does, packs them in chunks, and sends these until the shards have them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED
from framestow.checks import whole_number
from framestow.distributed.ray import START_S, Calls
from framestow.distributed.shard import GAP, ONLY_ENV, REPLACED, STORED, Chunk, Context, Priorities, ShardReport, Taken
from framestow.errors import ActorLostError, InvalidSettingsError, InvalidStepError
from framestow.frames.observation_spec import Frames
from framestow.frames.stacking import BY_SETTING, FrameStacker
from framestow.interface import HidesNames, one_line, plural
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
from framestow.replay.step_checks import SegmentSteps, Step, check_env_ids, check_frames, check_step
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
    """What a writer did since it was created."""

    appended: int = 0  # steps, sent or not
    waited_s: float = 0.0  # for the rate limiter
    blocked_s: float = 0.0  # for a slow or restarting shard


class ChunkSender:
    """Sends chunks in order. Up to ``max_in_flight`` calls are in flight to each shard.

    A chunk is sent again if its call fails, or if its shard refuses it since it lost the chunk before. Then it has its
    ``context``.
    """

    def __init__(self, shards: Calls, settings: WriterSettings, counts: WriterCounts) -> None:
        self._shards, self._settings, self._counts = shards, settings, counts
        # By shard: the calls without an answer, oldest first, each with its chunks.
        self._in_flight: dict[int, deque[tuple[Any, list[Chunk]]]] = {s: deque() for s in range(shards.num_objects)}
        # By shard: its last report, for the rate limiter; a shard is missing before its first answer.
        self._reports: dict[int, ShardReport] = {}
        # By shard and env_id there: frames in its segment before the first one of the writer, modulo a segment.
        self.offsets: dict[tuple[int, int], int] = {}

    def send(self, shard: int, chunks: list[Chunk]) -> None:
        """Send chunks to a shard, after a wait for the oldest call in flight or for the rate limiter."""
        while len(self._in_flight[shard]) >= self._settings.max_in_flight:
            self._receive(shard)
        self._wait_for_limiter(shard)
        without_context = [replace(chunk, context=None) for chunk in chunks]
        self._in_flight[shard].append((self._shards.call(shard, "take", without_context), chunks))

    def finish(self) -> None:
        """Wait until the shards have stored all chunks."""
        for shard, in_flight in self._in_flight.items():
            while in_flight:
                self._receive(shard)

    def _receive(self, shard: int) -> None:
        """Wait for the oldest call to ``shard``; send again what it refused or may have lost."""
        since, in_flight = time.monotonic(), self._in_flight[shard]
        missing = self._list_missing(shard, *in_flight.popleft())
        while missing and in_flight:  # later chunks come after these
            missing += self._list_missing(shard, *in_flight.popleft())
        self._send_again(shard, missing)
        self._counts.blocked_s += time.monotonic() - since

    def _list_missing(self, shard: int, handle: Any, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Wait for the answer to a call; return the chunks that must be sent again."""
        try:
            taken: Taken = self._shards.result(handle, self._settings.timeout_s)
        except ActorLostError:
            return list(chunks)
        self._reports[shard] = taken.report
        for chunk, status, open_frames in zip(chunks, taken.statuses, taken.open_frames, strict=True):
            if status == REPLACED:
                raise ActorLostError(
                    f"environment {chunk.env_id} of shard {shard} has a newer writer: this one was replaced; close it"
                )
            if status == STORED:
                self.offsets[shard, chunk.env_id] = open_frames - chunk.next_frame
        return [chunk for chunk, status in zip(chunks, taken.statuses, strict=True) if status == GAP]

    def _send_again(self, shard: int, missing: Sequence[Chunk]) -> None:
        """Send chunks one by one, in order, until the shard has each of them."""
        give_up_at, pause_s = time.monotonic() + self._settings.give_up_s, 0.05
        for number, chunk in enumerate(missing):
            while self._list_missing(shard, self._shards.call(shard, "take", [chunk]), [chunk]):
                if time.monotonic() > give_up_at:
                    raise ActorLostError(
                        f"shard {shard} did not come back within {self._settings.give_up_s:g} s: the steps of "
                        f"{len(missing) - number} chunks are lost; see why it died, or raise give_up_s"
                    )
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)

    def _wait_for_limiter(self, shard: int) -> None:
        """Wait while the shard has as many steps as the rate limiter allows, with those that are on their way to it."""
        since, pause_s = time.monotonic(), 0.01
        while self._settings.waits_for_limiter and shard in self._reports:
            report, in_flight = self._reports[shard], self._in_flight[shard]
            num_sent = sum(chunk.steps.num_steps for _, chunks in in_flight for chunk in chunks)
            if report.inserted + num_sent < report.insert_limit:
                break
            if in_flight:
                self._receive(shard)
                continue
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.2)
            try:
                handle = self._shards.call(shard, "report")
                self._reports[shard] = self._shards.result(handle, self._settings.timeout_s)
            except ActorLostError:
                break  # the next call waits for the shard
        self._counts.waited_s += time.monotonic() - since


class StepCalls(HidesNames, ABC):
    """The calls of a memory that store steps: of a writer, and of a replay that has one."""

    @property
    @abstractmethod
    def step_writer(self) -> ShardWriter:
        """The writer that these calls store steps with."""

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode in each of ``env_ids``, as ``ReplayMemory.begin`` does."""
        writer = self.step_writer
        envs = check_env_ids(env_ids, writer.current_stacks.all_envs)
        if writer.settings.layout.stores_as_given:
            writer.start_episodes(check_frames(frames, len(envs), writer.settings.frame), envs)
        else:
            begin_episodes(writer, frames, envs)

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
        if writer.settings.layout.stores_as_given:
            frames = writer.settings.frame.flatten(frames)
            writer.store_step(Step(env_ids, actions, rewards, terminated, truncated, frames, extras))
        else:
            append_observations(writer, Step(env_ids, actions, rewards, terminated, truncated, frames, extras))

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
        step = Step(env_ids, action, reward, terminated, truncated, next_observation, extras)
        add_step(self.step_writer, observation, step)

    def observations(self) -> Any:
        """Return the current observation of each environment, as ``ReplayMemory.observations`` does."""
        writer = self.step_writer
        return writer.settings.layout.join(writer.current_stacks.stacker.stacks())

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Whether each environment has an open episode, ``(num_envs,)``."""
        return self.step_writer.current_stacks.is_open.copy()

    def check_extras(self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int) -> Any:
        """Return ``extras`` as ``append`` stores them (``ReplayMemory.check_extras``)."""
        return self.step_writer.settings.extras.check_extras(extras, num_steps)


class ShardWriter(StepCalls):
    """Sends the steps of some environments to their shards; has the methods of a memory that a ``Recorder`` calls.

    ``begin``, ``append`` and ``add`` pack frames in a chunk for each environment. A full chunk is sent: up to
    ``max_in_flight`` calls are in flight to each shard, then the writer waits for the oldest. A call that fails is
    repeated until the shard is back; chunks that it has already are dropped there. A shard that came back without the
    steps before a chunk gets the observation before it, so that every sampled stack is one that the policy saw.

    Environments are numbered from 0 within the writer, up to ``num_envs`` - 1. A copy that is sent to another process
    starts empty.
    """

    _hidden_names = frozenset({"counts", "current_stacks", "look_at", "settings", "start_episodes", "store_step"})

    def __init__(self, shards: Calls, settings: WriterSettings) -> None:
        self._shards, self._writer_settings = shards, settings
        # Settings of a shard's memory.
        self.settings = settings.memory
        self.num_envs, self.stack = len(settings.env_ids), self.settings.stack
        self.counts = WriterCounts()
        self._sender = ChunkSender(shards, settings, self.counts)
        self._writer = time.time_ns()  # tells this writer apart from earlier ones of the same environments
        # Of each environment, its shard and its env_id there.
        self._shard_env_ids = [divmod(env_id, shards.num_objects)[::-1] for env_id in settings.env_ids]
        # State of the environments as a memory has it, so that ``add`` and ``observations`` work before a chunk is
        # sent.
        layout = self.settings.layout
        self.current_stacks = CurrentStacks(
            layout,
            FrameStacker(self.settings.frame, self.stack, self.num_envs, self.settings.stack_padding, layout.depths),
            np.arange(self.num_envs, dtype=np.int32),
            np.zeros(self.num_envs, np.bool_),
        )
        # The one of each environment that is being filled.
        self._chunks = [OpenChunk(self.settings, settings.priority) for _ in settings.env_ids]
        # ``set_values`` of the next step: Q of the chosen actions and largest Q, of all environments.
        self._values = self._unknown_values = np.full((2, self.num_envs), np.nan, np.float32)

    @property
    def step_writer(self) -> ShardWriter:
        """This writer."""
        return self

    def __reduce__(self) -> Any:
        return type(self), (self._shards, self._writer_settings)

    def __repr__(self) -> str:
        return one_line(self, lambda: (plural(self.num_envs, "environment"), f"stack {self.stack}"))

    def start_episodes(self, frames: Frames, envs: npt.NDArray[np.int32], starts: RunStarts = NO_RUN) -> None:
        """Start episodes with checked frames; ``starts``: the paddings of their first observations."""
        if starts.paddings is None:
            starts = RunStarts(np.full(len(envs), BY_SETTING, np.uint8), None)
        self.current_stacks.is_open[envs] = True
        self.current_stacks.stacker.append(envs, frames, *starts)
        for row, env in enumerate(envs.tolist()):
            self._chunks[env].add_frame(rows_of(frames, row), BEGINS_EPISODE, starts.of_row(row))
        self._send_full()

    def store_step(self, step: Step, starts: RunStarts = NO_RUN) -> None:
        """Store a step of several environments; ``starts``: the runs that their next observations begin."""
        stacks = self.current_stacks
        envs, actions, rewards, terminated, truncated, frames, extras = check_step(
            self.settings, step, stacks.all_envs, stacks.is_open
        )
        bits = terminated * TERMINATED + truncated * TRUNCATED
        if starts.paddings is not None:
            bits |= (starts.paddings > 0) * BORDER
        values, self._values = self._values, self._unknown_values
        stacks.is_open[envs] = ~(terminated | truncated)
        self.counts.appended += len(envs)
        stacks.stacker.append(envs, frames, *starts)
        for row, env in enumerate(envs.tolist()):
            chunk, of_row = self._chunks[env], {name: field[row] for name, field in (extras or {}).items()}
            chunk.add_frame(rows_of(frames, row), bits[row], starts.of_row(row))
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
                f"{plural(self.num_envs, 'environment')}; "
                "give one number for each"
            )
        self._values = np.stack(pair)

    def look_at(self, step: UnusualStep) -> None:
        """Do nothing: a writer has no memory, whose report counts such steps."""

    def flush(self) -> None:
        """Send all steps, full chunks or not, and wait until the shards have stored them."""
        self._send(env for env, chunk in enumerate(self._chunks) if chunk.num_frames)
        self._sender.finish()

    def _send_full(self) -> None:
        offsets = self._sender.offsets
        addresses = zip(self._chunks, self._shard_env_ids, strict=True)
        full = [env for env, (chunk, address) in enumerate(addresses) if chunk.is_full(offsets.get(address, 0))]
        if full:
            self._send(full)

    def _send(self, envs: Iterable[int]) -> None:
        by_shard: dict[int, list[Chunk]] = {}
        stacks = self.current_stacks.stacker.stacks()
        for env in envs:
            shard, env_id = self._shard_env_ids[env]
            observation = self.settings.layout.join([part[env : env + 1].copy() for part in stacks])
            by_shard.setdefault(shard, []).append(self._chunks[env].seal(env_id, self._writer, observation))
        for shard, chunks in by_shard.items():
            self._sender.send(shard, chunks)


class ChunkedSteps(StepCalls):
    """Stores the steps of ``num_envs`` environments in shards: by writers in actors, or by its own calls.

    Arguments:
        calls: Calls to the shards.
        settings: Of each shard's memory.
        num_envs: Number of environments of all shards.
        timeout_s: Seconds until a shard that does not answer counts as lost.
    """

    def __init__(self, calls: Calls, settings: MemorySettings, num_envs: int, timeout_s: float) -> None:
        self._calls, self._settings, self.num_envs, self._timeout_s = calls, settings, num_envs, timeout_s
        # Of its own calls; None before the first of them.
        self._writer: ShardWriter | None = None

    def writer(
        self,
        env_ids: Sequence[int] | None = None,
        *,
        max_in_flight: int = 2,
        priority: Priorities | None = np.abs,
    ) -> ShardWriter:
        """Return an object that stores the steps of ``env_ids``, for an actor: give it to a ``Recorder``.

        It numbers its environments from 0. It can be sent to another process as long as it is not used. Each
        environment has one writer; a later one replaces an earlier one.

        Arguments:
            env_ids: Numbers of environments of the replay; ``None`` means all.
            max_in_flight: Calls to each shard before the writer waits.
            priority: Initial priorities of transitions from their n-step TD errors (``ShardWriter.set_values``);
                ``None`` gives new transitions the largest priority so far.
        """
        envs = self._check_env_ids(range(self.num_envs) if env_ids is None else env_ids)
        rule = "at least 1 call is in flight; give 2, so that packing and sending overlap"
        max_in_flight = whole_number("max_in_flight", max_in_flight, 1, rule=rule)
        settings = WriterSettings(
            self._settings, envs, max_in_flight=max_in_flight, timeout_s=self._timeout_s, priority=priority
        )
        return ShardWriter(self._calls, settings)

    def _check_env_ids(self, env_ids: Sequence[int]) -> tuple[int, ...]:
        """Return ``env_ids`` as a tuple; raise ``InvalidSettingsError`` for numbers that are unknown or repeated."""
        checked = tuple(int(env_id) for env_id in env_ids)
        if len(set(checked)) != len(checked) or not checked or min(checked) < 0 or max(checked) >= self.num_envs:
            raise InvalidSettingsError(
                f"env_ids is {list(checked)}: a writer has environments of 0 to {self.num_envs - 1}, each once; give "
                "others, or build the replay with a larger num_envs"
            )
        return checked

    @property
    def step_writer(self) -> ShardWriter:
        """The writer of this object's own ``begin``, ``append`` and ``add``."""
        if self._writer is None:
            # It does not wait for the rate limiter: the process that samples would wait for itself.
            settings = WriterSettings(
                self._settings,
                tuple(range(self.num_envs)),
                timeout_s=self._timeout_s,
                waits_for_limiter=False,
                priority=None,
            )
            self._writer = ShardWriter(self._calls, settings)
        return self._writer

    def send(self) -> None:
        """Send all steps of ``begin``, ``append`` and ``add``, and wait until the shards have stored them."""
        if self._writer is not None:
            self._writer.flush()
