"""Step many environments in this process as one vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from framestow.checks import check_seed
from framestow.envs.vector.autoreset import AutoresetName, StepOutcome, find_mode, make_lost_outcome
from framestow.envs.vector.calls import (
    ClosedError,
    EnvSpaces,
    batch_spaces,
    check_equal_spaces,
    check_factories,
    describe_vector_env,
    error_text,
    one_action_each,
    one_value_each,
    split_options,
    tile_images,
)
from framestow.envs.vector.env_state import env_entry, restore_env
from framestow.envs.vector.vector_state import EpisodeStates
from framestow.errors import EnvironmentFailedError, IncompatibleError
from framestow.interface import one_line

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


class SerialVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Vector environment that steps its environments one after another, in any of Gymnasium's autoreset modes.

    Works with every observation and action space that Gymnasium can batch. Observations, rewards and flags are new
    arrays at every call. ``metadata["autoreset_mode"]`` gives the mode.

    ``reset(seed=number)`` derives a seed for each environment with ``framestow.envs.seeding.spawn_seeds``; a list gives
    each environment its seed. ``reset(options={"reset_mask": mask})`` resets only the environments in the boolean
    ``(num_envs,)`` mask.

    If an environment raises, the call raises ``EnvironmentFailedError`` with its number and action. Some environments
    have then stepped and some have not, so all need a reset.

    Arguments:
        env_fns: functions that make the environments, each called once; all environments must have equal spaces.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        seed: seed for the first reset without a seed.

    Raises:
        InvalidSettingsError: no environments, unequal spaces, spaces that Gymnasium cannot batch, or an unknown mode.

    Example::

        env = SerialVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, seed=0)
        observations, infos = env.reset()
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        autoreset_mode: AutoresetMode | AutoresetName = AutoresetMode.NEXT_STEP,
        *,
        seed: int | None = None,
    ) -> None:
        mode = find_mode(autoreset_mode)
        seed = check_seed(seed)
        factories = check_factories(env_fns)
        self.envs: list[gymnasium.Env[Any, Any]] = []
        try:
            for make in factories:
                self.envs.append(make())
            check_equal_spaces([EnvSpaces(env.observation_space, env.action_space) for env in self.envs])
            single = EnvSpaces(self.envs[0].observation_space, self.envs[0].action_space)
            batched = batch_spaces(single, len(self.envs))
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = single
        self.observation_space, self.action_space = batched
        self.num_envs = len(self.envs)
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": mode}
        self.render_mode = self.envs[0].render_mode
        # Which episodes run, have ended or were lost, and the seeds of the next resets.
        self._states = EpisodeStates(mode, self.num_envs, seed)
        # The last observation of each environment; None before its first reset.
        self._observations: list[Any] = [None] * self.num_envs

    def __repr__(self) -> str:
        return one_line(self, lambda: describe_vector_env(self))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Arguments:
            seed: One number from which each environment gets a seed, or one for each. ``None`` takes the constructor's
                at the first reset, and keeps the generators as they are later.
            options: Passed to each ``reset``, without ``reset_mask``, ``(num_envs,)`` booleans.

        Returns:
            The observations of all environments, and the ``infos`` of those that were reset.
        """
        self._require_open()
        mask, env_options = split_options(options, self.num_envs)
        seeds, infos = self._states.begin_reset(mask, seed), []
        for env_id, env_seed in seeds.items():
            each_options = None if env_options is None else dict(env_options)  # an environment may change its copy
            try:
                self._observations[env_id], info = self.envs[env_id].reset(seed=env_seed, options=each_options)
            except BaseException as error:
                self._fail(env_id, "its reset", error)
                raise
            infos.append(info)
        env_ids = list(seeds)
        self._states.mark_reset(env_ids)
        return self._batch_observations(), self._states.batch_infos(infos, env_ids)

    def step(
        self, actions: Any
    ) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Step every environment with its action; all actions are checked before the first environment steps.

        Returns:
            Observations, rewards ``float64`` ``(num_envs,)``, terminated, truncated and ``infos``.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or an environment that needs a reset.
            EnvironmentFailedError: an environment raised.
        """
        self._require_open()
        self._states.check_step()
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        observations, rewards, terminated, truncated, infos = zip(*self._outcomes(each), strict=True)
        self._observations = list(observations)
        terminations, truncations = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        np.logical_or(terminations, truncations, out=self._states.has_ended)
        batched = self._states.batch_infos(infos, range(self.num_envs))
        return self._batch_observations(), np.array(rewards, np.float64), terminations, truncations, batched

    def render(self, *, tiled: bool = False) -> tuple[Any, ...] | npt.NDArray[np.uint8]:  # type: ignore[override]
        """Return the result of each environment's ``render``; with ``tiled`` one image with all of them in a grid."""
        self._require_open()
        pictures = tuple(env.render() for env in self.envs)
        return tile_images(pictures) if tiled else pictures  # type: ignore[arg-type]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every environment, or read the attribute ``name`` if it is no method."""
        self._require_open()
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of every environment, one value for each."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Arguments:
            name: Name of the attribute.
            values: A list or tuple with a value for each environment; any other value is for all.
        """
        self._require_open()
        for env, value in zip(self.envs, one_value_each(values, self.num_envs), strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close every environment; if some raise, raise the first error after closing all."""
        errors: list[EnvironmentFailedError] = []
        for env_id, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:
                errors.append(_failure(env_id, "its close", error))
        self.closed = True
        if errors:
            raise errors[0]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all environments as plain values; a ``WorkerVectorEnv`` can load it too.

        An environment takes part if it has the methods ``state`` and ``restore``
        (``framestow.envs.vector.env_state.StatefulEnv``). The entry of any other has only the reason.
        """
        self._require_open()
        return self._states.state_dict([env_entry(env) for env in self.envs], self._observations)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of ``state_dict``, also one of a ``WorkerVectorEnv`` or of another process.

        An environment without a saved state restarts, with a ``UserWarning``. Its next step returns the last
        observation, reward 0 and ``truncated``, and ``infos["episode_lost"]`` gives the reason. Then it is reset.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that does not fit an
                environment; all environments then need a reset.
            EnvironmentFailedError: an environment raised another error; all environments then need a reset.
        """
        self._require_open()
        self._states.check_state(state)
        self._states.require_reset()
        for env_id, (env, entry) in enumerate(zip(self.envs, state["envs"], strict=True)):
            try:
                if entry["state"] is not None:
                    restore_env(env, entry["state"])
            except IncompatibleError:
                raise
            except Exception as error:
                raise _failure(env_id, "the loading of its state", error) from error
        self._observations = deepcopy(list(state["observations"]))
        self._states.load_state_dict(state)

    def _outcomes(self, actions: Sequence[Any] | npt.NDArray[Any]) -> list[StepOutcome]:
        step, has_ended = self._states.policy.step, self._states.has_ended.tolist()
        has_losses = self._states.lost.has_any
        outcomes = []
        for env_id, action in enumerate(actions):
            try:
                if has_losses:
                    outcomes.append(self._outcome_after_losses(env_id, action))
                else:
                    outcomes.append(step(self.envs[env_id], action, has_ended[env_id]))
            except BaseException as error:
                self._fail(env_id, f"action {action}", error)
                raise
        return outcomes

    def _outcome_after_losses(self, env_id: int, action: Any) -> StepOutcome:
        """Step an environment while some have a lost episode to report or a replacement seed to use."""
        mode, lost, env = self._states.mode, self._states.lost, self.envs[env_id]
        has_ended, seed = bool(self._states.has_ended[env_id]), lost.first_seeds.get(env_id)
        if env_id in lost.unreported:
            why = lost.unreported.pop(env_id)
            outcome = make_lost_outcome(mode, self._observations[env_id], why, lambda: env.reset(seed=seed))
            if mode is AutoresetMode.SAME_STEP:
                lost.mark_reset([env_id])
            return outcome
        if has_ended and seed is not None and mode is AutoresetMode.NEXT_STEP:
            observation, info = env.reset(seed=seed)
            lost.mark_reset([env_id])
            return StepOutcome(observation, 0.0, False, False, info)
        return self._states.policy.step(env, action, has_ended)

    def _batch_observations(self) -> Any:
        try:
            return _concatenate(self.single_observation_space, self._observations)
        except Exception as error:
            self._states.require_reset()
            misfit = _misfit(self.single_observation_space, self._observations)
            if misfit is None:
                raise
            raise misfit from error

    def _fail(self, env_id: int, doing: str, error: BaseException) -> None:
        """Require a reset of all environments, and raise an error that names the failed one."""
        self._states.require_reset()
        if isinstance(error, Exception):
            raise _failure(env_id, doing, error) from error

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its environments cannot be used; make a new one")


def _failure(env_id: int, doing: str, error: Exception) -> EnvironmentFailedError:
    failure = EnvironmentFailedError(
        f"environment {env_id} raised {type(error).__name__} at {doing}: {error_text(error)}; "
        "reset all environments to continue",
        environment=env_id,
    )
    failure.__cause__ = error
    return failure


def _concatenate(space: gymnasium.Space[Any], observations: Sequence[Any]) -> Any:
    empty: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, empty)


def _misfit(space: gymnasium.Space[Any], observations: Sequence[Any]) -> EnvironmentFailedError | None:
    """Return the error for the first environment whose observation Gymnasium cannot batch, or ``None``."""
    for env_id, observation in enumerate(observations):
        try:
            _concatenate(space, [observation])
        except Exception as error:
            return EnvironmentFailedError(
                f"environment {env_id} returned an observation outside {space}: {error_text(error)}; correct the "
                "environment or its space, and reset all environments to continue",
                environment=env_id,
            )
    return None
