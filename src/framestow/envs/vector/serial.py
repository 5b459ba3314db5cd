"""Step many environments in this process as one vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from framestow.checks import check_seed
from framestow.envs.vector.arguments import (
    EnvFactory,
    EnvSpaces,
    VectorStep,
    batch_spaces,
    check_distinct,
    check_equal_spaces,
    check_factories,
    error_text,
    identity_of,
    make_env,
)
from framestow.envs.vector.checked_vector_env import CheckedVectorEnv, MadeEnvs
from framestow.envs.vector.one_env import AutoresetName, StepOutcome, find_mode, reset_env, step_env
from framestow.errors import EnvironmentFailedError
from framestow.keywords import suggests_keywords


@suggests_keywords
class SerialVectorEnv(CheckedVectorEnv):
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
            for env_id, make in enumerate(factories):
                self.envs.append(make_env(make, env_id))
            check_distinct(range(len(self.envs)), list(map(identity_of, self.envs)))
            check_equal_spaces([EnvSpaces(env.observation_space, env.action_space) for env in self.envs])
            single = EnvSpaces(self.envs[0].observation_space, self.envs[0].action_space)
            batched = batch_spaces(single, len(self.envs))
        except BaseException:
            with suppress(Exception):  # the first error says why
                self.close()
            raise
        first = self.envs[0]
        self._begin(MadeEnvs(len(self.envs), single, batched, first.metadata, first.render_mode), mode, seed)
        # The last observation of each environment; None before its first reset.
        self._observations: list[Any] = [None] * self.num_envs

    def step(self, actions: Any) -> VectorStep:
        """Step every environment with its action; all actions are checked before the first environment steps.

        Returns:
            Observations, rewards ``float64`` ``(num_envs,)``, terminated, truncated and ``infos``.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or an environment that needs a reset.
            EnvironmentFailedError: an environment raised.
        """
        self._require_working()
        each = self._check_actions(actions)
        observations, rewards, terminated, truncated, infos = zip(*self._outcomes(each), strict=True)
        self._observations = list(observations)
        terminations, truncations = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        np.logical_or(terminations, truncations, out=self._states.has_ended)
        batched = self._states.batch_infos(infos, range(self.num_envs))
        return self._batch_observations(), np.array(rewards, np.float64), terminations, truncations, batched

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

    def _reset_envs(
        self, seeds: dict[int, int | None], options: Mapping[int, dict[str, Any] | None]
    ) -> tuple[Any, list[dict[str, Any]]]:
        infos = []
        for env_id, seed in seeds.items():
            try:
                self._observations[env_id], info = reset_env(self.envs[env_id], seed, options.get(env_id))
            except BaseException as error:
                self._fail(env_id, "its reset", error)
                raise
            infos.append(info)
        self._states.mark_reset(list(seeds))
        return self._batch_observations(), infos

    def _apply(self, operation: Callable[..., Any], doing: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        results = []
        for env_id, own in arguments.items():
            try:
                results.append(operation(self.envs[env_id], *own))
            except Exception as error:
                raise _failure(env_id, doing, error, "the environments can still be stepped") from error
        return results

    def _last_observations(self) -> list[Any]:
        return self._observations

    def _restore_observations(self, observations: Sequence[Any]) -> None:
        self._observations = deepcopy(list(observations))

    def _outcomes(self, actions: Sequence[Any] | npt.NDArray[Any]) -> list[StepOutcome]:
        mode, has_ended = self._states.mode, self._states.has_ended.tolist()
        has_losses = self._states.has_losses
        outcomes = []
        for env_id, action in enumerate(actions):
            try:
                outcome = self._outcome_instead(env_id) if has_losses else None
                outcomes.append(outcome or step_env(mode, self.envs[env_id], action, has_ended[env_id]))
            except BaseException as error:
                self._fail(env_id, f"action {action}", error)
                raise
        return outcomes

    def _outcome_instead(self, env_id: int) -> StepOutcome | None:
        """Return the outcome of an environment that must not step, for a lost episode; ``None`` for any other one."""
        states = self._states
        is_lost, is_reset = env_id in states.unreported, bool(states.resets_due([env_id]))
        if not (is_lost or is_reset):
            return None
        info: dict[str, Any] = {}
        observation = last = self._observations[env_id]
        if is_reset:
            observation, info = reset_env(self.envs[env_id], states.first_seeds.get(env_id))
        if is_lost:
            info = states.report_loss(env_id, info, last)
        if is_reset:
            states.mark_reported([env_id])
        return StepOutcome(observation, 0.0, False, is_lost, info)

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


def _failure(
    env_id: int, doing: str, error: Exception, way_out: str = "reset all environments to continue"
) -> EnvironmentFailedError:
    failure = EnvironmentFailedError(
        f"environment {env_id} raised {type(error).__name__} at {doing}: {error_text(error)}; {way_out}",
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
