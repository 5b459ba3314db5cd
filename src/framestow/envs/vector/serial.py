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

from framestow.envs.seeding import check_seed, seed_of_each
from framestow.envs.vector.actions import one_action_each
from framestow.envs.vector.autoreset import POLICIES, find_mode
from framestow.envs.vector.env_spaces import EnvSpaces, batched_spaces, check_equal_spaces
from framestow.envs.vector.reset_options import split_options
from framestow.errors import (
    EnvironmentFailedError,
    IncompatibleError,
    InvalidSettingsError,
    InvalidStepError,
)

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
        self._pending_seed = check_seed(seed)
        self.envs: list[gymnasium.Env[Any, Any]] = []
        try:
            for make in env_fns:
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
        self._observations: list[Any] = [None] * self.num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Returns the observations of all, the others' as they were, and the ``infos`` of those that were reset.
        """
        self._require_open()
        mask, env_options = split_options(options, self.num_envs)
        untouched = self._needs_reset & ~mask
        if untouched.any():
            raise InvalidStepError(
                f"reset_mask leaves out idle environments {np.flatnonzero(untouched).tolist()}: reset all first"
            )
        if seed is None and self._needs_reset.all():
            seed = self._pending_seed
        seeds = seed_of_each(seed, self.num_envs)
        infos: dict[str, Any] = {}
        for number in np.flatnonzero(mask).tolist():
            with self._naming(number, "its reset"):
                self._observations[number], info = self.envs[number].reset(seed=seeds[number], options=env_options)
            infos = self._add_info(infos, info, number)
        self._needs_reset[mask] = False
        self._has_ended[mask] = False
        self._pending_seed = None
        return self._batched(), infos

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
        rewards = np.zeros(self.num_envs, np.float64)
        terminated, truncated = np.zeros(self.num_envs, np.bool_), np.zeros(self.num_envs, np.bool_)
        infos: dict[str, Any] = {}
        for number, (env, action) in enumerate(zip(self.envs, each, strict=True)):
            with self._naming(number, f"action {action}"):
                outcome = self._policy.step(env, action, bool(self._has_ended[number]))
            self._observations[number], rewards[number], terminated[number], truncated[number], info = outcome
            infos = self._add_info(infos, info, number)
        self._has_ended = terminated | truncated
        return self._batched(), rewards, terminated, truncated, infos

    def render(self) -> tuple[Any, ...]:
        """One picture an environment, each what its ``render`` gives."""
        self._require_open()
        return tuple(env.render() for env in self.envs)

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
            raise InvalidStepError(f"values are {len(each)}: {self.num_envs} environments need one each; give so many")
        for env, value in zip(self.envs, each, strict=True):
            env.set_wrapper_attr(name, value)

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close every environment, also those after one whose ``close`` raises; the first such error is raised."""
        errors: list[EnvironmentFailedError] = []
        for number, env in enumerate(self.envs):
            try:
                with self._naming(number, "its close"):
                    env.close()
            except EnvironmentFailedError as error:
                errors.append(error)
        self.closed = True
        if errors:
            raise errors[0]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, in the plain form that the environments' ``state_dict`` have.

        Raises:
            InvalidSettingsError: an environment has no ``state_dict``.
        """
        self._require_open()
        self._require_states()
        return {
            "autoreset_mode": self._policy.mode.value,
            "envs": [env.state_dict() for env in self.envs],  # type: ignore[attr-defined]
            "has_ended": self._has_ended.copy(),
            "needs_reset": self._needs_reset.copy(),
            "observations": deepcopy(self._observations),
            "pending_seed": self._pending_seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, in this or another process.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that an environment refuses.
        """
        self._require_open()
        self._require_states()
        if state["autoreset_mode"] != self._policy.mode.value or len(state["envs"]) != self.num_envs:
            raise IncompatibleError(
                f"state is of {len(state['envs'])} environments with {state['autoreset_mode']}: these are "
                f"{self.num_envs} with {self._policy.mode.value}; make the same ones"
            )
        for env, env_state in zip(self.envs, state["envs"], strict=True):
            env.load_state_dict(env_state)  # type: ignore[attr-defined]
        self._has_ended, self._needs_reset = np.array(state["has_ended"]), np.array(state["needs_reset"])
        self._observations = deepcopy(list(state["observations"]))
        self._pending_seed = state["pending_seed"]

    def _batched(self) -> Any:
        space = self.single_observation_space
        empty: Any = create_empty_array(space, self.num_envs)
        return concatenate(space, self._observations, empty)

    def _naming(self, number: int, doing: str) -> _NamedFailure:
        return _NamedFailure(self, number, doing)

    def _require_open(self) -> None:
        if self.closed:
            raise InvalidStepError("vector environment is closed: its environments play no more; make a new one")

    def _require_states(self) -> None:
        for number, env in enumerate(self.envs):
            if not (hasattr(env, "state_dict") and hasattr(env, "load_state_dict")):
                raise InvalidSettingsError(
                    f"environment {number}, {env}, has no state_dict: its state cannot be kept; reset it after loading"
                )


class _NamedFailure:
    """Turns whatever an environment raises into an error that names it, and marks all of them as in doubt."""

    def __init__(self, owner: SerialVectorEnv, number: int, doing: str) -> None:
        self._owner, self._number, self._doing = owner, number, doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            return
        self._owner._needs_reset[:] = True
        if isinstance(error, Exception):
            raise EnvironmentFailedError(
                f"environment {self._number} raised {type(error).__name__} at {self._doing}: {error}; "
                "reset all environments to go on"
            ) from error
