"""Many environments in this process behind one vector environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from framestow.argument_checks import checked_seed
from framestow.envs.seeding import seed_of_each
from framestow.envs.vector.autoreset import POLICIES, StepOutcome, find_mode, lost_outcome
from framestow.envs.vector.calls import (
    ClosedError,
    EnvSpaces,
    batched_spaces,
    check_equal_spaces,
    checked_factories,
    one_action_each,
    require_none_left_idle,
    split_options,
    error_text,
)
from framestow.envs.vector.calls import tiled as tile
from framestow.envs.vector.env_state import put_state
from framestow.envs.vector.infos import batched_infos
from framestow.envs.vector.vector_state import (
    LostEpisodes,
    restart_stateless_envs,
    check_vector_state,
    env_entry,
    vector_state,
)
from framestow.errors import EnvironmentFailedError, InvalidStepError

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


class SerialVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Steps its environments one after another, in all three of Gymnasium's autoreset modes.

    Any observation and action space that Gymnasium can batch works; one that it cannot is refused at construction.
    Observations, rewards and flags are fresh arrays at every call: they belong to the caller. The mode stands in this
    instance's own ``metadata["autoreset_mode"]``.

    ``reset(seed=number)`` spreads the number with `framestow.envs.seeding.spawn_seeds`; a list seeds each environment
    as it is. ``reset(options={"reset_mask": mask})`` resets only those of the ``(num_envs,)`` boolean mask, and the
    others keep their episodes; the caller's ``options`` stay as they are.

    When an environment raises, the call raises `EnvironmentFailedError` naming it and its action. Those before it have
    then been stepped and those after it have not, so only a reset of all of them goes on from there.

    Args:
        env_fns: makes the environments, called once each; their spaces must be equal.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        seed: what the first reset takes when it is given none.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        *,
        seed: int | None = None,
    ) -> None:
        mode = find_mode(autoreset_mode)
        self._policy = POLICIES[mode]
        self._pending_seed = checked_seed(seed)
        factories = checked_factories(env_fns)
        self.envs: list[gymnasium.Env[Any, Any]] = []
        try:
            for make in factories:
                self.envs.append(make())
            check_equal_spaces([EnvSpaces(env.observation_space, env.action_space) for env in self.envs])
            single = EnvSpaces(self.envs[0].observation_space, self.envs[0].action_space)
            batched = batched_spaces(single, len(self.envs))
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = single
        self.observation_space, self.action_space = batched
        self.num_envs = len(self.envs)
        self.metadata = {**self.envs[0].metadata, "autoreset_mode": mode}
        self.render_mode = self.envs[0].render_mode
        self._has_ended = np.zeros(self.num_envs, np.bool_)
        self._needs_reset = np.ones(self.num_envs, np.bool_)  # never begun, or in doubt after a failure
        self._lost = LostEpisodes(self._pending_seed, self.num_envs)
        self._observations: list[Any] = [None] * self.num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Returns the observations of all, the others' as they were, and the ``infos`` of those that were reset.
        """
        self._require_open()
        mask, env_options = split_options(options, self.num_envs)
        require_none_left_idle(mask, self._needs_reset)
        if seed is None and self._needs_reset.all():
            seed = self._pending_seed
        seeds = seed_of_each(seed, self.num_envs)
        if isinstance(seed, (int, np.integer)):
            self._lost.seed_from(int(seed))
        numbers, infos = np.flatnonzero(mask).tolist(), []
        for number in numbers:
            env_seed = self._lost.first_seeds.get(number) if seeds[number] is None else seeds[number]
            own_options = None if env_options is None else dict(env_options)  # it may pop from them
            try:
                self._observations[number], info = self.envs[number].reset(seed=env_seed, options=own_options)
            except BaseException as error:
                self._fail(number, "its reset", error)
                raise
            infos.append(info)
        self._lost.note_reset(numbers)
        self._needs_reset[mask] = False
        self._has_ended[mask] = False
        self._pending_seed = None
        return self._batched(), self._batched_infos(infos, numbers)

    def step(
        self, actions: Any
    ) -> tuple[Any, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], dict[str, Any]]:
        """Step every environment with its action, all actions being checked before the first one moves.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or an environment that waits for a reset.
            EnvironmentFailedError: an environment raised.
        """
        self._require_open()
        if self._needs_reset.any():
            raise InvalidStepError("environments have no running episode: they need one to be stepped; call reset()")
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        self._policy.check(self._has_ended)
        observations, rewards, terminated, truncated, infos = zip(*self._outcomes(each), strict=True)
        self._observations = list(observations)
        terminations, truncations = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        self._has_ended = terminations | truncations
        batched = self._batched_infos(infos, range(self.num_envs))
        return self._batched(), np.array(rewards, np.float64), terminations, truncations, batched

    def render(self, *, tiled: bool = False) -> tuple[Any, ...] | npt.NDArray[np.uint8]:  # type: ignore[override]
        """One picture an environment, each what its ``render`` gives; ``tiled`` lays them out as one picture."""
        self._require_open()
        pictures = tuple(env.render() for env in self.envs)
        return tile(pictures) if tiled else pictures  # type: ignore[arg-type]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every environment, or read it where it is no method."""
        self._require_open()
        found = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(each(*args, **kwargs) if callable(each) else each for each in found)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment: a list or tuple has one value each, anything else is set in all."""
        self._require_open()
        each = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise InvalidStepError(f"values are {len(each)}: {self.num_envs} environments need one each")
        for env, value in zip(self.envs, each, strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close every environment, also those after one whose ``close`` raises; the first such error is raised."""
        errors: list[EnvironmentFailedError] = []
        for number, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:
                errors.append(_failure(number, "its close", error))
        self.closed = True
        if errors:
            raise errors[0]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, in plain values; `WorkerVectorEnv` goes on from it as well.

        Of an environment that has no state (`framestow.envs.vector.env_state` says which) it holds only why.
        """
        self._require_open()
        return vector_state(
            self._policy.mode,
            [env_entry(env) for env in self.envs],
            has_ended=self._has_ended,
            needs_reset=self._needs_reset,
            observations=self._observations,
            pending_seed=self._pending_seed,
            lost=self._lost,
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, in this or another process, here or in a `WorkerVectorEnv`.

        An environment without a state begins anew, and a ``UserWarning`` says so: the next step gives for it the last
        observation, reward 0 and truncated, ``infos["episode_lost"]`` says why, and it is then reset as after any end.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that an environment refuses;
                the environments before that one then have theirs, so that all need a reset to go on otherwise.
        """
        self._require_open()
        check_vector_state(state, self._policy.mode, self.num_envs)
        self._needs_reset[:] = True
        for env, entry in zip(self.envs, state["envs"], strict=True):
            if entry["state"] is not None:
                put_state(env, entry["state"])
        self._has_ended, self._needs_reset = np.array(state["has_ended"]), np.array(state["needs_reset"])
        self._observations = deepcopy(list(state["observations"]))
        self._pending_seed = state["pending_seed"]
        self._lost.load_state_dict(state["lost"])
        restart_stateless_envs(state, self._lost)

    def _outcomes(self, actions: Sequence[Any] | npt.NDArray[Any]) -> list[StepOutcome]:
        step, has_ended = self._policy.step, self._has_ended.tolist()
        has_losses = bool(self._lost.unreported or self._lost.first_seeds)
        outcomes = []
        for number, action in enumerate(actions):
            try:
                if has_losses:
                    outcomes.append(self._outcome_after_losses(number, action))
                else:
                    outcomes.append(step(self.envs[number], action, has_ended[number]))
            except BaseException as error:
                self._fail(number, f"action {action}", error)
                raise
        return outcomes

    def _outcome_after_losses(self, number: int, action: Any) -> StepOutcome:
        """Step an environment of a vector in which some lost their episode, or are still to be seeded."""
        mode, lost, env = self._policy.mode, self._lost, self.envs[number]
        has_ended, seed = bool(self._has_ended[number]), lost.first_seeds.get(number)
        if number in lost.unreported:
            why = lost.unreported.pop(number)
            outcome = lost_outcome(mode, self._observations[number], why, lambda: env.reset(seed=seed))
            if mode is AutoresetMode.SAME_STEP:
                lost.note_reset([number])
            return outcome
        if has_ended and seed is not None and mode is AutoresetMode.NEXT_STEP:
            observation, info = env.reset(seed=seed)
            lost.note_reset([number])
            return StepOutcome(observation, 0.0, False, False, info)
        return self._policy.step(env, action, has_ended)

    def _batched_infos(self, infos: Sequence[dict[str, Any]], numbers: Sequence[int]) -> dict[str, Any]:
        try:
            return batched_infos(infos, numbers, self.num_envs)
        except InvalidStepError:
            self._needs_reset[:] = True  # the environments have moved, and nobody has seen how
            raise

    def _batched(self) -> Any:
        try:
            return _concatenated(self.single_observation_space, self._observations)
        except Exception as error:
            self._needs_reset[:] = True  # as above
            misfit = _misfit(self.single_observation_space, self._observations)
            if misfit is None:
                raise
            raise misfit from error

    def _fail(self, number: int, doing: str, error: BaseException) -> None:
        """Raise an error that names the environment, whose course is now in doubt as that of all others."""
        self._needs_reset[:] = True
        if isinstance(error, Exception):
            raise _failure(number, doing, error) from error

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its environments play no more; make a new one")


def _failure(number: int, doing: str, error: Exception) -> EnvironmentFailedError:
    failure = EnvironmentFailedError(
        f"environment {number} raised {type(error).__name__} at {doing}: {error_text(error)}; "
        "reset all environments to go on",
        environment=number,
    )
    failure.__cause__ = error
    return failure


def _concatenated(space: gymnasium.Space[Any], observations: Sequence[Any]) -> Any:
    empty: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, empty)


def _misfit(space: gymnasium.Space[Any], observations: Sequence[Any]) -> EnvironmentFailedError | None:
    """Give the error that names the environment whose observation Gymnasium cannot batch."""
    for number, observation in enumerate(observations):
        try:
            _concatenated(space, [observation])
        except Exception as error:
            return EnvironmentFailedError(
                f"environment {number} gave an observation that is none of {space}: {error_text(error)}; mend the "
                "environment or its space, and reset all environments to go on",
                environment=number,
            )
    return None
