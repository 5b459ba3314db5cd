"""Environments with the calls of OpenAI Baselines, stepped in this process or in workers; for two drop-in packages.

OpenAI Baselines (2017) has ``reset()``, ``step_async(actions)`` and ``step_wait()``, which returns observations,
rewards, dones and infos. An environment that ends is reset at once. Stable-Baselines3 continues this interface.

=================  ===================================================================================
``LocalEnvs``      steps environments one after another, for both classes ``DummyVecEnv``
``WorkerEnvs``     steps them in worker processes, for both classes ``SubprocVecEnv``
``VecEnvCalls``    the calls that all four classes have
=================  ===================================================================================
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from framestow.envs.vector.arguments import (
    EnvFactory,
    EnvSpaces,
    NoStepPendingError,
    check_distinct,
    check_factories,
    identity_of,
)
from framestow.envs.vector.foreign_envs import check_reset, check_step
from framestow.envs.vector.one_env import EnvCalls, StepOutcome, render_env
from framestow.envs.workers.pool import OnWorkerLost, StartMethod
from framestow.envs.workers.shared_arrays import SpaceParts, is_array_space
from framestow.envs.workers.worker_vector_env import WorkerVectorEnv
from framestow.errors import InvalidStepError
from framestow.interface import clause

Env: TypeAlias = gymnasium.Env[Any, Any]
MakeEnv: TypeAlias = Callable[[EnvFactory, int], Env]
"""Makes an environment, given its function and number; a function of a module, which workers import."""

TRUNCATED, LAST_OBSERVATION = "TimeLimit.truncated", "terminal_observation"
"""Keys of an info: whether a time limit ended the episode, and the last observation of an episode that ended."""

# Keys that a worker adds to an info; the parent takes them out again.
_REWARD, _RESET_INFO = "framestow.reward", "framestow.reset_info"


class VecStep(NamedTuple):
    """Result of a step of all environments."""

    observations: Any
    rewards: npt.NDArray[Any]
    dones: npt.NDArray[np.bool_]
    infos: Sequence[dict[str, Any]]
    reset_infos: Sequence[dict[str, Any]]
    """The info of the last reset of each environment."""


class LocalEnvs:
    """Environments that are stepped one after another in this process.

    Observations have the dtype of their space, cast as NumPy assigns. Rewards are ``float32``.

    Raises:
        InvalidSettingsError: no functions, or two of them returned one environment.
    """

    def __init__(self, env_fns: Sequence[EnvFactory], make: MakeEnv) -> None:
        self.envs: list[Env] = []
        try:
            for env_id, env_fn in enumerate(check_factories(env_fns)):
                self.envs.append(make(env_fn, env_id))
            check_distinct(range(len(self.envs)), list(map(identity_of, self.envs)))
        except BaseException:
            with suppress(Exception):  # the first error says why
                self.close()
            raise
        first = self.envs[0]
        self.num_envs = len(self.envs)
        self.spaces = EnvSpaces(first.observation_space, first.action_space)
        """Spaces of the first environment."""
        self.metadata: Mapping[str, Any] = first.metadata
        """Metadata of the first environment."""
        self._parts = SpaceParts(first.observation_space)
        self._reset_infos: list[dict[str, Any]] = [{}] * self.num_envs
        # The caller's actions between ``send`` and ``receive``.
        self._actions: Any = None

    def reset_all(
        self, seeds: Sequence[int | None], options: Sequence[dict[str, Any]]
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Reset each environment with its seed and options; return the observations and infos."""
        self._actions = None
        batch = _Batch(self._parts, self.num_envs)
        for env_id, env in enumerate(self.envs):
            observation, self._reset_infos[env_id] = reset_plainly(env, seeds[env_id], options[env_id])
            batch.write(env_id, observation)
        return batch.joined(), list(self._reset_infos)

    def send(self, actions: Any) -> None:
        """Keep the actions for ``receive``."""
        self._actions = actions

    def receive(self) -> VecStep:
        """Step each environment with its action.

        Raises:
            NoStepPendingError: there are no actions.
        """
        actions = self._actions
        if actions is None:
            raise NoStepPendingError("there are no actions: step_wait() plays those of step_async(); call it first")
        rewards, dones = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, np.bool_)
        infos, batch = [], _Batch(self._parts, self.num_envs)
        for env_id, env in enumerate(self.envs):
            played = step_and_reset(env, actions[env_id])
            rewards[env_id], dones[env_id] = played.reward, played.terminated or played.truncated
            if played.reset_info is not None:
                self._reset_infos[env_id] = played.reset_info
            infos.append(copy.deepcopy(played.info) if len(played.info) > 1 else played.info)
            batch.write(env_id, played.observation)
        self._actions = None
        return VecStep(batch.joined(), rewards, dones, infos, list(self._reset_infos))

    def apply(self, operation: Callable[..., Any], doing: str, env_ids: Sequence[int], *arguments: Any) -> list[Any]:  # noqa: ARG002
        """Call ``operation`` with each environment of ``env_ids`` and the arguments; return the results."""
        return [operation(self.envs[env_id], *arguments) for env_id in env_ids]

    def close(self) -> None:
        """Close every environment; if some raise, raise the first error after closing all."""
        errors = []
        for env in self.envs:
            try:
                env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


class _Batch:
    """New arrays for the observations of all environments, written row by row."""

    def __init__(self, parts: SpaceParts, num_envs: int) -> None:
        self._parts = parts
        self._arrays = [np.empty((num_envs, *(part.shape or ())), part.dtype) for part in parts.arrays]
        self._others: list[list[Any]] = [[]] * num_envs

    def write(self, env_id: int, observation: Any) -> None:
        arrays, self._others[env_id] = self._parts.split(observation)
        for rows, array in zip(self._arrays, arrays, strict=True):
            rows[env_id] = array

    def joined(self) -> Any:
        return self._parts.join(self._arrays, self._parts.batch_others(self._others))


class WorkerEnvs(WorkerVectorEnv):
    """A ``WorkerVectorEnv`` that steps as ``SubprocVecEnv``: with unchecked actions, and infos that are not batched.

    Rewards are what ``np.stack`` makes of those that the environments return. A lost episode ends as by a time limit:
    reward 0, ``TimeLimit.truncated``, the last observation received, and the reason in ``episode_lost``.

    Arguments:
        env_fns: functions that make the environments, in the workers; all environments must have equal spaces.
        make: calls such a function, and changes or refuses what it returns.
        step_timeout: seconds without an answer after which a worker counts as hung; ``None`` waits for ever.
        num_workers: number of processes; ``None`` takes one for each environment.
        start_method, on_worker_lost, daemon: as of ``WorkerVectorEnv``.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        make: MakeEnv,
        *,
        num_workers: int | None,
        start_method: StartMethod | None,
        step_timeout: float | None,
        on_worker_lost: OnWorkerLost,
        daemon: bool,
    ) -> None:
        self._calls = EnvCalls(make, _reset_in_worker, _step_in_worker)
        factories = check_factories(env_fns)
        super().__init__(
            factories,
            AutoresetMode.SAME_STEP,
            num_workers=len(factories) if num_workers is None else num_workers,
            start_method=start_method,
            step_timeout=math.inf if step_timeout is None else step_timeout,
            on_worker_lost=on_worker_lost,
            daemon=daemon,
        )
        self.spaces = EnvSpaces(self.single_observation_space, self.single_action_space)
        """Spaces of one environment."""
        self.metadata = dict(self._pool.made.metadata)
        self._reset_infos: list[dict[str, Any]] = [{}] * self.num_envs

    def reset_all(
        self, seeds: Sequence[int | None], options: Sequence[dict[str, Any]]
    ) -> tuple[Any, tuple[dict[str, Any], ...]]:
        """Reset each environment with its seed and options; return the observations and infos.

        A seed of the first environment also seeds the environments that are replaced later.
        """
        self._require_working()
        seeds_of_resets = self._states.begin_reset(np.ones(self.num_envs, np.bool_), seeds)
        if seeds[0] is not None:
            self._states.seed_replacements(seeds[0])
        observations, self._reset_infos = self._reset_envs(seeds_of_resets, dict(enumerate(options)))
        return observations, tuple(self._reset_infos)

    def send(self, actions: Any) -> None:
        """Start a step of every environment with its action.

        Raises:
            InvalidStepError: another number of actions, or an environment that needs a reset.
            StepPendingError: a step is in flight.
        """
        self._require_not_stepping()
        self._states.check_step()
        rows = self._pool.shared.actions
        is_shared = isinstance(actions, np.ndarray) and rows is not None
        if is_shared and (actions.dtype, actions.shape) == (rows.dtype, rows.shape):  # type: ignore[union-attr]
            rows[:] = actions  # type: ignore[index]
            return self._send_step(None)
        each = list(actions)
        if len(each) != self.num_envs:
            raise InvalidStepError(
                f"there are {len(each)} actions: {clause(self.num_envs, 'environment', 'need')} one each; give exactly "
                "so many"
            )
        return self._send_step(each)

    def receive(self) -> VecStep:
        """Wait for the step that ``send`` began.

        Raises:
            NoStepPendingError: no step is in flight.
            EnvironmentFailedError: an environment raised; all need a reset.
            WorkerLostError: a worker was lost.
        """
        return self._receive_step(None, self._step_of)

    def apply(self, operation: Callable[..., Any], doing: str, env_ids: Sequence[int], *arguments: Any) -> list[Any]:
        """Call ``operation``, a function of a module, with each environment of ``env_ids`` and the arguments.

        Returns the results in this order. ``doing`` names the operation in an error of an environment.
        """
        self._require_not_stepping()
        each = sorted(set(env_ids))
        results = dict(zip(each, self._apply(operation, doing, dict.fromkeys(each, arguments)), strict=True))
        return [results[env_id] for env_id in env_ids]

    def _step_of(self, answers: list[Any]) -> VecStep:
        """Return a step from the answer of each worker: an info of ``_step_in_worker``, or that of a lost episode."""
        rewards: list[Any] = self._pool.shared.rewards.tolist()
        infos, lost = [], []
        for env_id, info in enumerate(answers):
            if not info:
                info = {TRUNCATED: False}  # noqa: PLW2901
            elif TRUNCATED not in info:
                last = {key: info.pop(key) for key in ("episode_lost", "final_obs", "final_info")}
                self._reset_infos[env_id] = info
                info = {"episode_lost": last["episode_lost"], TRUNCATED: True, LAST_OBSERVATION: last["final_obs"]}  # noqa: PLW2901
                lost.append(env_id)
            rewards[env_id] = info.pop(_REWARD, rewards[env_id])
            self._reset_infos[env_id] = info.pop(_RESET_INFO, self._reset_infos[env_id])
            infos.append(info)
        return VecStep(
            self._last.of_all(self.copies_observations),
            _stack_rewards(rewards, lost),
            self._states.has_ended.copy(),
            tuple(infos),
            tuple(self._reset_infos),
        )


def _stack_rewards(rewards: list[Any], lost: Sequence[int]) -> npt.NDArray[Any]:
    """Return the rewards as one array; those of lost episodes are 0 in the dtype of the others."""
    known = [reward for env_id, reward in enumerate(rewards) if env_id not in lost]
    if not lost or not known:
        return np.stack(rewards)
    stacked = np.stack(known)
    all_rewards = np.zeros((len(rewards), *stacked.shape[1:]), stacked.dtype)
    all_rewards[[env_id for env_id in range(len(rewards)) if env_id not in lost]] = stacked
    return all_rewards


class VecEnvCalls:
    """The calls that Baselines' and Stable-Baselines3's vector environments share.

    A subclass sets ``_envs``. The seeds and options of the next reset are where Stable-Baselines3 has them.
    """

    num_envs: int
    reset_infos: Sequence[dict[str, Any]]
    """The info of the last reset of each environment."""
    _envs: LocalEnvs | WorkerEnvs
    _seeds: list[int | None]
    _options: list[dict[str, Any]]
    closed = False
    """Whether ``close`` was called."""

    def reset(self) -> Any:
        """Reset all environments and return their first observations; a step in flight is discarded.

        The seeds of ``seed`` and the options are used once.
        """
        observations, self.reset_infos = self._envs.reset_all(self._seeds, self._options)
        self._seeds, self._options = [None] * self.num_envs, [{} for _ in range(self.num_envs)]
        return observations

    def step_async(self, actions: Any) -> None:
        """Start a step of all environments; ``step_wait`` returns it.

        Each environment gets its row of ``actions`` as it is: not checked, clipped or cast.
        """
        self._envs.send(actions)

    def step_wait(self) -> tuple[Any, npt.NDArray[Any], npt.NDArray[np.bool_], Any]:
        """Return observations, rewards, dones and infos of the step that ``step_async`` began.

        An ended environment is reset: its observation is the first of its next episode. Its info has the last one in
        ``terminal_observation``, and in ``TimeLimit.truncated`` whether a time limit ended it.
        """
        step = self._envs.receive()
        self.reset_infos = step.reset_infos
        return step.observations, step.rewards, step.dones, step.infos

    def close(self) -> None:
        """Close the environments, and end the workers; a second call does nothing."""
        if not self.closed:
            self.closed = True
            self._envs.close()

    def has_attr(self, attr_name: str) -> bool:
        """Return whether all environments, or environments that they wrap, have the attribute."""
        return all(self._apply(_has_attr, f"the search for {attr_name!r}", None, attr_name))

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """Return an attribute of the environments of ``indices``, or of all.

        Raises:
            AttributeError: an environment does not have it.
        """
        return self._found(self._apply(_get_attr, f"the reading of {attr_name!r}", indices, attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Set an attribute of the outermost wrapper of the environments of ``indices``, or of all, to one value."""
        self._apply(setattr, f"the setting of {attr_name!r}", indices, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the environments of ``indices``, or of all, and return the results.

        Raises:
            AttributeError: an environment does not have it.
        """
        called = self._apply(_call_method, f"{method_name!r}", indices, method_name, method_args, method_kwargs)
        return self._found(called)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return whether each environment of ``indices``, or each of all, is wrapped in a ``wrapper_class``."""
        return self._apply(_is_wrapped, "the search for a wrapper", indices, wrapper_class)

    def _pictures(self) -> list[Any]:
        return self._apply(render_env, "render", None)

    def _apply(
        self, operation: Callable[..., Any], doing: str, indices: int | Iterable[int] | None, *arguments: Any
    ) -> list[Any]:
        if indices is None:
            indices = range(self.num_envs)
        elif isinstance(indices, (int, np.integer)):
            indices = [int(indices)]
        numbers = range(self.num_envs)
        try:
            env_ids = [numbers[index] for index in indices]  # as of a list: from the end if negative
        except IndexError:
            raise IndexError(
                f"indices are {indices}: the environments are 0 to {self.num_envs - 1}; leave indices out for all"
            ) from None
        return self._envs.apply(operation, doing, env_ids, *arguments)

    @staticmethod
    def _found(results: Sequence[tuple[bool, Any]]) -> list[Any]:
        for is_there, value in results:
            if not is_there:
                raise AttributeError(value)
        return [value for _, value in results]


class _Played(NamedTuple):
    """Result of a step of one environment, which was reset if its episode ended."""

    observation: Any
    reward: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    """Always has ``TimeLimit.truncated``; of an ended episode also ``terminal_observation``."""
    reset_info: dict[str, Any] | None
    """Info of the reset; ``None`` if there was none."""


def step_and_reset(env: Env, action: Any) -> _Played:
    """Step an environment with an unchecked action, and reset it if its episode ends."""
    results = env.step(action)
    check_step("the environment", results)
    observation, reward, terminated, truncated, info = results
    info = {**info, TRUNCATED: bool(truncated and not terminated)}
    reset_info = None
    if terminated or truncated:
        # Copied before the reset, since an environment may use its arrays and infos again.
        info = copy.deepcopy({**info, LAST_OBSERVATION: observation})
        observation, reset_info = env.reset()
    return _Played(observation, reward, bool(terminated), bool(truncated), info, reset_info)


def make_patched_env(make: EnvFactory, env_id: int) -> Env:  # noqa: ARG001
    """Return the environment that ``make`` makes; Stable-Baselines3 wraps it if it is of old ``gym``."""
    env = make()
    if isinstance(env, gymnasium.Env):
        return env
    # Here, so that a worker need not import Stable-Baselines3, and PyTorch with it.
    from stable_baselines3.common.vec_env.patch_gym import _patch_env  # noqa: PLC0415

    return _patch_env(env)


def reset_plainly(env: Env, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    """Reset an environment; options are an argument only if there are some, since older environments have none."""
    results = env.reset(seed=seed, options=options) if options else env.reset(seed=seed)
    check_reset("the environment", results)
    return results


def _reset_in_worker(env: Env, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
    observation, info = reset_plainly(env, seed, options)
    return _as_in_space(observation, env.observation_space), info


def _step_in_worker(mode: AutoresetMode, env: Env, action: Any, has_ended: bool) -> StepOutcome:  # noqa: ARG001
    """Step an environment; the info is empty if it would only say that no time limit ended the episode."""
    observation, reward, terminated, truncated, info, reset_info = step_and_reset(env, action)
    is_number = type(reward) is float or type(reward) is np.float64
    if not is_number:
        info[_REWARD] = reward
    if reset_info is not None:
        info[_RESET_INFO] = reset_info
    observation = _as_in_space(observation, env.observation_space)
    return StepOutcome(observation, reward if is_number else 0.0, terminated, truncated, info if len(info) > 1 else {})


def _as_in_space(observation: Any, space: gymnasium.Space[Any]) -> Any:
    """Return an observation with the dtype of its space if no value changes; else unchanged, and it is refused later.

    Many environments return ``int64`` in a Box of ``uint8``.
    """
    if type(observation) is np.ndarray and observation.dtype == space.dtype:
        return observation
    if isinstance(space, spaces.Dict):
        return {key: _as_in_space(observation[key], each) for key, each in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_as_in_space(*each) for each in zip(observation, space.spaces, strict=True))
    if is_array_space(space):
        array, dtype = np.asarray(observation), np.dtype(space.dtype)
        if not np.can_cast(array.dtype, dtype, casting="same_kind"):
            with np.errstate(invalid="ignore"):
                cast = array.astype(dtype)
            return cast if np.array_equal(array, cast) else observation
    return observation


def _has_attr(env: Env, name: str) -> bool:
    return _get_attr(env, name)[0]


def _get_attr(env: Env, name: str) -> tuple[bool, Any]:
    """Return True and the attribute, or False and why there is none; so a worker's ``AttributeError`` is one here."""
    try:
        return True, env.get_wrapper_attr(name)
    except AttributeError as error:
        return False, str(error)


def _call_method(env: Env, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[bool, Any]:
    is_there, method = _get_attr(env, name)
    return is_there, method(*arguments, **keywords) if is_there else method


def _is_wrapped(env: Any, wrapper_class: type[Any]) -> bool:
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
