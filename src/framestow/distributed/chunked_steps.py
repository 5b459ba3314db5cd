"""``ChunkedSteps``: the writers of a memory that is in shards."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from framestow.checks import whole_number
from framestow.distributed.calls import Calls
from framestow.distributed.chunk_sender import WriterSettings
from framestow.distributed.chunks import Priorities
from framestow.distributed.shard_writer import ShardWriter, StepCalls
from framestow.errors import InvalidSettingsError
from framestow.replay.memory_settings import MemorySettings


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
