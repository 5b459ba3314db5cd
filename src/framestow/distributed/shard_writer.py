"""``ShardWriter``: takes steps as a memory does, and sends them to shards in chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED
from framestow.distributed.calls import Calls
from framestow.distributed.chunk_sender import ChunkSender, WriterCounts, WriterSettings
from framestow.distributed.chunks import Chunk
from framestow.distributed.open_chunk import OpenChunk
from framestow.errors import InvalidStepError
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
from framestow.replay.step_checks import Step, check_env_ids, check_frames, check_step


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
