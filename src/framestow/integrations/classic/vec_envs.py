"""Vector environments with the calls of OpenAI Baselines, for environments of Gymnasium."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.checks import check_seed, whole_number
from framestow.envs.vector.arguments import EnvFactory, make_env, tile_images
from framestow.envs.workers.pool import OnWorkerLost, StartMethod
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.integrations.drop_in.vec_envs import (
    Env,
    LocalEnvs,
    VecEnvCalls,
    WorkerEnvs,
)
from framestow.interface import clause, one_line, plural


class _VecEnv(VecEnvCalls):
    """The calls of ``VecEnvCalls``, and those that only Baselines has."""

    def __init__(self, envs: LocalEnvs | WorkerEnvs) -> None:
        self._envs, self.num_envs = envs, envs.num_envs
        self.observation_space, self.action_space = envs.spaces
        self.metadata = dict(envs.metadata)
        self.reset_infos = [{} for _ in range(self.num_envs)]
        self._seeds, self._options = [None] * self.num_envs, [{} for _ in range(self.num_envs)]

    def __repr__(self) -> str:
        return one_line(self, lambda: [plural(self.num_envs, "environment")])

    @property
    def spec(self) -> Any:
        """Gymnasium's ``EnvSpec`` of the first environment."""
        return self.get_attr("spec", 0)[0]

    @property
    def unwrapped(self) -> _VecEnv:
        """This object."""
        return self

    def reset(self) -> Any:
        """Reset all environments and return their first observations; a step in flight is discarded."""
        return _by_number(super().reset())

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments; ``step_wait`` returns it.

        Each environment gets its row of ``actions`` as it is: not checked, clipped or cast. One environment also takes
        a bare action.

        Raises:
            InvalidStepError: another number of actions.
        """
        super().step_async(_one_each(actions, self.num_envs))

    def step_wait(self) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.bool_], Any]:
        """Return observations, rewards, dones and infos of the step that ``step_async`` began.

        An ended environment is reset: its observation is the first of its next episode. Its info has the last one in
        ``terminal_observation``, and in ``TimeLimit.truncated`` whether a time limit ended it.
        """
        observations, *others = super().step_wait()
        return _by_number(observations), *others

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.bool_], Any]:
        """Step all environments: ``step_async`` and ``step_wait``."""
        self.step_async(actions)
        return self.step_wait()

    def seed(self, seed: int | None = None) -> list[int]:
        """Seed environment i with ``seed + i`` at the next reset; return the seeds. ``None`` draws a random seed."""
        first = check_seed(seed)
        first = int(np.random.randint(2**31)) if first is None else first
        seeds = [first + env_id for env_id in range(self.num_envs)]
        self._seeds = list(seeds)
        return seeds

    def get_images(self) -> list[Any]:
        """Return the picture that each environment renders.

        Raises:
            InvalidStepError: the environments were not made with ``render_mode="rgb_array"``.
        """
        self._check_render_mode("rgb_array")
        return self._pictures()

    def render(self, mode: str = "human") -> npt.NDArray[np.uint8] | None:
        """Show each environment, or with ``"rgb_array"`` return one picture with all of them in a grid.

        Raises:
            InvalidStepError: the environments were made with another ``render_mode``.
        """
        if mode == "rgb_array":
            return tile_images(self.get_images(), rows=math.ceil(math.sqrt(self.num_envs)))
        self._check_render_mode(mode)
        self._pictures()
        return None

    def _check_render_mode(self, mode: str) -> None:
        made_with = set(self.get_attr("render_mode"))
        if made_with != {mode}:
            raise InvalidStepError(
                f"render mode is {mode!r}: the environments were made with render_mode="
                f"{' and '.join(map(repr, sorted(made_with, key=str)))}; make them with render_mode={mode!r}"
            )


class DummyVecEnv(_VecEnv):
    """Vector environment that steps its environments one after another in this process.

    Same as ``DummyVecEnv`` of OpenAI Baselines: arguments, and the types and values of all results. Rewards are
    ``float32``; observations have the dtype of their space, and those of a ``Tuple`` space are a dict by number. A grid
    of pictures has as many rows as Baselines'.

    Different: environments are Gymnasium's. The info of an ended episode has its last observation, a copy that was made
    before the reset. ``seed`` and the calls for attributes are those of Stable-Baselines.

    Arguments:
        env_fns: functions that make the environments, each called once.

    Raises:
        InvalidSettingsError: no functions, an environment that is not Gymnasium's, or two functions that returned one
            environment.

    Example::

        env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 4)
        observations = env.reset()
        observations, rewards, dones, infos = env.step([0, 1, 0, 1])
    """

    _envs: LocalEnvs

    def __init__(self, env_fns: Sequence[EnvFactory]) -> None:
        super().__init__(LocalEnvs(env_fns, make_env))

    @property
    def envs(self) -> list[Env]:
        """The environments."""
        return self._envs.envs


class SubprocVecEnv(_VecEnv):
    """Vector environment that steps its environments in worker processes.

    Same as ``SubprocVecEnv`` of OpenAI Baselines: rewards are what ``np.stack`` makes of those of the environments, and
    infos are a tuple.

    Different: environments are Gymnasium's, with equal spaces. A worker that dies or hangs, or an environment that
    raises, is an error that names environment and action and has the worker's traceback; or the worker is replaced.
    Pictures go through shared memory. Observations have the dtype of their space.

    With ``on_worker_lost="restart"`` a lost episode ends as by a time limit: its last step has reward 0,
    ``TimeLimit.truncated``, the last observation received as ``terminal_observation``, and the reason in
    ``info["episode_lost"]``. That step was not played.

    Arguments:
        env_fns: functions that make the environments, each called once, in a worker.
        spaces: not used; the environments have their spaces.
        context: start method of the processes, ``"spawn"``, ``"fork"`` or ``"forkserver"``.
        in_series: number of environments in each process; it divides ``len(env_fns)``.
        step_timeout: seconds without an answer after which a worker counts as hung; ``None`` waits for ever.
        on_worker_lost: ``"raise"`` an error, or ``"restart"`` the worker, with a ``RuntimeWarning``. A worker that is
            lost three times without a step in between raises in any case.
        daemon: as for ``multiprocessing.Process``; environments that start processes need ``False``.

    Raises:
        InvalidSettingsError: invalid settings, unequal spaces, or an environment that is not Gymnasium's.
        EnvironmentFailedError: an environment could not be made.
        WorkerLostError: a worker died before it made its environments.
    """

    _envs: WorkerEnvs

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        spaces: Any = None,  # noqa: ARG002  # as in Baselines, which does not use it either
        context: StartMethod = "spawn",
        in_series: int = 1,
        *,
        step_timeout: float | None = None,
        on_worker_lost: OnWorkerLost = "raise",
        daemon: bool = True,
    ) -> None:
        super().__init__(
            WorkerEnvs(
                env_fns,
                make_env,
                num_workers=_num_workers(env_fns, in_series),
                start_method=context,
                step_timeout=step_timeout,
                on_worker_lost=on_worker_lost,
                daemon=daemon,
            )
        )

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Process ids of the workers, in the order of their environments."""
        return self._envs.worker_pids


def _num_workers(env_fns: Sequence[EnvFactory], in_series: int) -> int:
    num_envs = len(env_fns)
    rule = f"it must divide the number of environments, {num_envs}; give 1 for a process each"
    in_series = whole_number("in_series", in_series, 1, max(num_envs, 1), rule=rule)
    if num_envs % in_series:
        raise InvalidSettingsError(f"in_series is {in_series}: {rule}")
    return num_envs // in_series


def _one_each(actions: Any, num_envs: int) -> Any:
    """Return one action for each environment, by Baselines' rule: what has another length is one bare action."""
    try:
        is_one_each = len(actions) == num_envs
    except TypeError:
        is_one_each = False
    if is_one_each:
        return actions
    if num_envs != 1:
        needed = clause(num_envs, "environment", "need")
        raise InvalidStepError(f"actions are {actions!r}: {needed} one each; give exactly so many")
    return [actions]


def _by_number(observations: Any) -> Any:
    """Return the observations of a Tuple space as a dict, as Baselines does; others are unchanged."""
    return dict(enumerate(observations)) if isinstance(observations, tuple) else observations
