"""Vector environments with the calls of Stable-Baselines3, whose algorithms and wrappers take them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from stable_baselines3.common.vec_env import base_vec_env

from framestow.envs.vector.arguments import EnvFactory
from framestow.envs.workers.pool import OnWorkerLost, StartMethod
from framestow.integrations.drop_in.vec_envs import LocalEnvs, VecEnvCalls, WorkerEnvs, make_patched_env


class _VecEnv(VecEnvCalls, base_vec_env.VecEnv):  # type: ignore[misc]  # a library without types
    """The calls of ``VecEnvCalls`` as a ``VecEnv`` of Stable-Baselines3."""

    def __init__(self, envs: LocalEnvs | WorkerEnvs) -> None:
        self._envs = envs
        try:
            super().__init__(envs.num_envs, *envs.spaces)
        except BaseException:
            self.close()
            raise
        self.metadata = dict(envs.metadata)

    def get_images(self) -> Sequence[Any]:
        """Return the picture that each environment renders; with another render mode than ``"rgb_array"`` a warning."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"render_mode is {self.render_mode}: pictures need environments that are made with "
                "render_mode='rgb_array'",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self._pictures()


class DummyVecEnv(_VecEnv):
    """Vector environment that steps its environments one after another in this process.

    Same as Stable-Baselines3's ``DummyVecEnv``: arguments, and the types and values of all results. Rewards are
    ``float32``; observations have the dtype of their space.

    Different: ``terminal_observation`` is a copy made before the reset, so it is the true last observation of an
    environment that uses one array for all. Nested ``Dict`` and ``Tuple`` observations work.

    Arguments:
        env_fns: functions that make the environments, each called once. Environments of old ``gym`` are wrapped with
            shimmy, as Stable-Baselines3 does.

    Raises:
        InvalidSettingsError: no functions, or two of them returned one environment.
    """

    _envs: LocalEnvs

    def __init__(self, env_fns: Sequence[EnvFactory]) -> None:
        super().__init__(LocalEnvs(env_fns, make_patched_env))

    @property
    def envs(self) -> list[Any]:
        """The environments."""
        return self._envs.envs


class SubprocVecEnv(_VecEnv):
    """Vector environment that steps its environments in worker processes.

    Same as Stable-Baselines3's ``SubprocVecEnv``: rewards are what ``np.stack`` makes of those of the environments, and
    infos are a tuple.

    Different: a worker that dies or hangs, or an environment that raises, is an error that names environment and
    action and has the worker's traceback; or the worker is replaced. Pictures go through shared memory. Observations
    have the dtype of their space. Environments need equal spaces.

    With ``on_worker_lost="restart"`` a lost episode ends as by a time limit: its last step has reward 0,
    ``TimeLimit.truncated``, the last observation received as ``terminal_observation``, and the reason in
    ``info["episode_lost"]``. So a replay buffer stores one step that was not played. A replaced environment starts as
    its function makes it: what ``set_attr`` set is gone, and ``Monitor`` overwrites its file.

    Arguments:
        env_fns: functions that make the environments, each called once, in a worker.
        start_method: ``"fork"``, ``"spawn"`` or ``"forkserver"``; ``None`` takes ``"forkserver"`` if available.
        num_workers: number of processes; ``None`` takes one for each environment.
        step_timeout: seconds without an answer after which a worker counts as hung; ``None`` waits for ever.
        on_worker_lost: ``"raise"`` an error, or ``"restart"`` the worker, with a ``RuntimeWarning``. A worker that is
            lost three times without a step in between raises in any case.
        daemon: as for ``multiprocessing.Process``; environments that start processes need ``False``.

    Raises:
        InvalidSettingsError: invalid settings, or unequal spaces.
        EnvironmentFailedError: an environment could not be made.
        WorkerLostError: a worker died before it made its environments.
    """

    _envs: WorkerEnvs

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        start_method: StartMethod | None = None,
        *,
        num_workers: int | None = None,
        step_timeout: float | None = None,
        on_worker_lost: OnWorkerLost = "raise",
        daemon: bool = True,
    ) -> None:
        super().__init__(
            WorkerEnvs(
                env_fns,
                make_patched_env,
                num_workers=num_workers,
                start_method=start_method,
                step_timeout=step_timeout,
                on_worker_lost=on_worker_lost,
                daemon=daemon,
            )
        )

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Process ids of the workers, in the order of their environments."""
        return self._envs.worker_pids
