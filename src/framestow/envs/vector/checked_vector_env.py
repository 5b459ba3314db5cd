"""What both vector environments of framestow share: checked calls, episodes, seeds, lost episodes and saved states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from framestow.checks import check_seed
from framestow.envs.seeding import replacement_seed, seed_of_each
from framestow.envs.vector.arguments import (
    ClosedError,
    EnvSpaces,
    check_keys,
    describe_vector_env,
    one_action_each,
    one_value_each,
    split_options,
    tile_images,
)
from framestow.envs.vector.infos import batch_infos
from framestow.envs.vector.one_env import (
    call_env,
    check_autoreset,
    env_entry,
    render_env,
    restore_env,
    set_env_attr,
)
from framestow.errors import IncompatibleError, InvalidStepError
from framestow.interface import one_line, plural, warn_caller

# Entries of a saved state.
_KEYS = ("autoreset_mode", "envs", "has_ended", "needs_reset", "observations", "pending_seed", "lost")
_KEYS_OF_LOST = ("untold", "first_seeds", "num_replacements", "entropy")


class MadeEnvs(NamedTuple):
    """Properties of the environments that were made."""

    num_envs: int
    spaces: EnvSpaces
    """Spaces of one environment."""
    batched: EnvSpaces  # spaces of all environments together
    metadata: Mapping[str, Any]
    render_mode: str | None


class CheckedVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]], ABC):
    """A vector environment that checks the arguments of a call before any environment moves.

    A subclass makes the environments and calls ``_begin`` with what they have in common. It says how environments are
    stepped and reset, and how an operation is applied to each.
    """

    def _begin(self, made: MadeEnvs, mode: AutoresetMode, seed: int | None) -> None:
        self.num_envs, self.render_mode = made.num_envs, made.render_mode
        self.single_observation_space, self.single_action_space = made.spaces
        self.observation_space, self.action_space = made.batched
        self.metadata = {**made.metadata, "autoreset_mode": mode}
        # Which episodes run, have ended or were lost, and the seeds of the next resets.
        self._states = EpisodeStates(mode, made.num_envs, seed)

    def __repr__(self) -> str:
        return one_line(self, lambda: describe_vector_env(self))

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        A reset of all environments discards a step in flight.

        Arguments:
            seed: One number from which each environment gets a seed, or one for each. ``None`` takes the constructor's
                at the first reset, and keeps the generators as they are later.
            options: Passed to each ``reset``, without ``reset_mask``, ``(num_envs,)`` booleans.

        Returns:
            The observations of all environments, and the ``infos`` of those that were reset.

        Raises:
            StepPendingError: a step is in flight, and this is no reset of all environments.
            EnvironmentFailedError, WorkerLostError: as ``step``.
        """
        self._require_working()
        mask, env_options = split_options(options, self.num_envs)
        if not mask.all():
            self._require_not_stepping()
        seeds = self._states.begin_reset(mask, seed)
        observations, infos = self._reset_envs(seeds, dict.fromkeys(seeds, env_options))
        return observations, self._states.batch_infos(infos, list(seeds))

    def render(self, *, tiled: bool = False) -> tuple[Any, ...] | npt.NDArray[np.uint8]:  # type: ignore[override]
        """Return the result of each environment's ``render``; with ``tiled`` one image with all of them in a grid."""
        self._require_not_stepping()
        pictures = tuple(self._apply(render_env, "render", self._same_for_each()))
        return tile_images(pictures) if tiled else pictures

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call the method ``name`` of every environment, or read the attribute ``name`` if it is no method.

        Raises:
            EnvironmentFailedError: a call raised, or its result cannot be pickled for this process; the environments
                can still be stepped.
        """
        self._require_not_stepping()
        return tuple(self._apply(call_env, f"{name!r}", self._same_for_each(name, args, kwargs)))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return the attribute ``name`` of every environment, one value for each."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Arguments:
            name: Name of the attribute.
            values: A list or tuple with a value for each environment; any other value is for all.
        """
        self._require_not_stepping()
        each = one_value_each(values, self.num_envs)
        self._apply(set_env_attr, f"the setting of {name!r}", {i: (name, value) for i, value in enumerate(each)})

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all environments as plain values; the other kind of vector environment can load it too.

        An environment takes part if it has the methods ``state`` and ``restore``
        (``framestow.envs.vector.one_env.StatefulEnv``). The entry of any other has only the reason.
        """
        self._require_not_stepping()
        entries = self._apply(env_entry, "the reading of its state", self._same_for_each())
        return self._states.state_dict(entries, self._last_observations())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of ``state_dict``, of a ``SerialVectorEnv`` or ``WorkerVectorEnv`` of any process.

        An environment without a saved state restarts, with a ``UserWarning``. Its next step returns the last
        observation, reward 0 and ``truncated``, and ``infos["episode_lost"]`` gives the reason. Then it is reset.

        Raises:
            IncompatibleError: another number of environments, another mode, or a state that does not fit an
                environment; all environments then need a reset.
            EnvironmentFailedError: an environment raised another error; all environments then need a reset.
        """
        self._require_not_stepping()
        self._states.check_state(state)
        self._states.require_reset()
        saved = {env_id: (entry["state"],) for env_id, entry in enumerate(state["envs"]) if entry["state"] is not None}
        refusals = [why for why in self._apply(restore_env, "the loading of its state", saved) if why is not None]
        if refusals:
            raise IncompatibleError(refusals[0])
        self._restore_observations(state["observations"])
        self._states.load_state_dict(state)

    def _check_actions(self, actions: Any) -> Sequence[Any] | npt.NDArray[Any]:
        """Return one action for each environment; raise ``InvalidStepError`` unless all can step with these actions."""
        self._states.check_step()
        return one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)

    def _require_working(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its environments cannot be used; make a new one")

    def _require_not_stepping(self) -> None:
        self._require_working()

    @abstractmethod
    def _reset_envs(
        self, seeds: dict[int, int | None], options: Mapping[int, dict[str, Any] | None]
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Reset the environments of ``seeds``; return the observations of all, and the infos of those.

        ``options`` has the options of each environment; without an entry there are none.
        """

    def _same_for_each(self, *arguments: Any) -> dict[int, tuple[Any, ...]]:
        return dict.fromkeys(range(self.num_envs), arguments)

    @abstractmethod
    def _apply(self, operation: Callable[..., Any], doing: str, arguments: Mapping[int, tuple[Any, ...]]) -> list[Any]:
        """Call ``operation``, a function of a module, with each environment of ``arguments`` and its arguments.

        Returns the results in this order. ``doing`` names the operation in an error of an environment.
        """

    @abstractmethod
    def _last_observations(self) -> list[Any]:
        """Return the last observation of each environment; ``None`` before its first reset."""

    @abstractmethod
    def _restore_observations(self, observations: Sequence[Any]) -> None:
        """Continue from the observations that ``_last_observations`` returned."""


class EpisodeStates:
    """Which environments have a running, ended or lost episode, and the seeds of their next resets.

    A running episode is lost with the worker process of its environment, or if it is resumed without a saved state. The
    step that reports it does not step that environment:

    | mode | observation | reward, flags | ``infos`` |
    |---|---|---|---|
    | NEXT_STEP, DISABLED | the last one received | 0, truncated | ``episode_lost`` |
    | SAME_STEP | the first of the next episode | 0, truncated | ``episode_lost``, the last one in ``final_obs`` |

    An environment without a running episode loses none: with NEXT_STEP its step is a reset, reward 0, no flag.

    A replaced environment is seeded at its first reset. The seed of the ``k``-th replacement of environment ``i`` is
    from ``SeedSequence(seed, spawn_key=(i, k))``. So the same losses give the same run, and no game is played twice.
    """

    def __init__(self, mode: AutoresetMode, num_envs: int, seed: int | None) -> None:
        self.mode, self.num_envs = mode, num_envs
        self.has_ended = np.zeros(num_envs, np.bool_)
        """By environment: its episode ended in the last step. The mode says what the next step does then."""
        self.needs_reset = np.ones(num_envs, np.bool_)
        """By environment: it was never reset, or needs it after a failure."""
        self.unreported: dict[int, str] = {}
        """Environments whose next step must report a lost episode, each with the reason."""
        self.first_seeds: dict[int, int] = {}
        """Replaced environments that were not reset yet, each with its seed."""
        # By environment: how often it was replaced, so that no replacement plays an earlier game again.
        self._num_replacements = [0] * num_envs
        # Seed of the first reset that gives none; None after any reset.
        self._pending_seed = check_seed(seed)
        # What the seeds of all replacements are derived from.
        self._entropy: Any = np.random.SeedSequence(self._pending_seed).entropy

    @property
    def has_losses(self) -> bool:
        """Whether a step must report a loss, or a reset must take the seed of a replacement."""
        return bool(self.unreported or self.first_seeds)

    def begin_reset(
        self, mask: npt.NDArray[np.bool_], seed: int | Sequence[int | None] | None
    ) -> dict[int, int | None]:
        """Return the seed for the reset of each environment in ``mask``; ``None`` keeps its generators as they are.

        Arguments:
            mask: The environments to reset, ``(num_envs,)``.
            seed: One number from which each environment gets a seed, or one for each. Without it, the first reset takes
                the constructor's, and a replaced environment takes that of its replacement.

        Raises:
            InvalidStepError: ``mask`` leaves out an environment that has no episode, so no observation.
            InvalidSettingsError: the seed is no seed, or not one for each environment.
        """
        left_idle = self.needs_reset & ~mask
        if left_idle.any():
            raise InvalidStepError(
                f"reset_mask leaves out environments {np.flatnonzero(left_idle).tolist()}, which have no episode: "
                "step() needs one in every environment; reset all environments first"
            )
        if seed is None and self.needs_reset.all():
            seed = self._pending_seed
        seeds = seed_of_each(seed, self.num_envs)
        if isinstance(seed, (int, np.integer)):
            self.seed_replacements(seed)
        return {
            env_id: self.first_seeds.get(env_id) if seeds[env_id] is None else seeds[env_id]
            for env_id in np.flatnonzero(mask).tolist()
        }

    def seed_replacements(self, seed: int) -> None:
        """Derive the seeds of environments that are replaced from now on from ``seed``."""
        self._entropy = np.random.SeedSequence(check_seed(seed)).entropy

    def mark_reset(self, env_ids: Sequence[int]) -> None:
        """Mark environments whose reset is complete."""
        self.mark_reported(env_ids)
        self.needs_reset[env_ids], self.has_ended[env_ids] = False, False
        self._pending_seed = None

    def mark_reported(self, env_ids: Iterable[int]) -> None:
        """Mark environments that were reset, also by a step: their lost episodes need no report any more."""
        for env_id in env_ids:
            self.unreported.pop(env_id, None)
            self.first_seeds.pop(env_id, None)

    def check_step(self) -> None:
        """Raise ``InvalidStepError`` unless every environment can step now."""
        if self.needs_reset.any():
            raise InvalidStepError("environments have no running episode: step() needs one; call reset()")
        check_autoreset(self.mode, self.has_ended)

    def require_reset(self) -> None:
        """Take no step before a reset of all environments: some have stepped, and the caller gets no result."""
        self.needs_reset[:] = True

    def lose(self, env_ids: Sequence[int], why: str) -> list[int]:
        """Draw the seeds of environments that are replaced; return those whose running episode is lost by that."""
        for env_id in env_ids:
            self.first_seeds[env_id] = replacement_seed(self._entropy, env_id, self._num_replacements[env_id])
            self._num_replacements[env_id] += 1
        is_idle = self.needs_reset.copy()
        if self.mode is not AutoresetMode.SAME_STEP:  # SAME_STEP has already begun the next episode
            is_idle |= self.has_ended
        running = [env_id for env_id in env_ids if not is_idle[env_id]]
        for env_id in running:
            self.unreported.setdefault(env_id, why)
        return running

    def resets_due(self, env_ids: Iterable[int]) -> list[int]:
        """Return those of ``env_ids`` that a step resets by the seed of their replacement, instead of stepping them."""
        if self.mode is AutoresetMode.SAME_STEP:
            return [env_id for env_id in env_ids if env_id in self.unreported]
        if self.mode is AutoresetMode.DISABLED:
            return []
        replaced = [env_id for env_id in env_ids if env_id in self.first_seeds and env_id not in self.unreported]
        return [env_id for env_id in replaced if self.has_ended[env_id]]

    def report_loss(self, env_id: int, reset_info: dict[str, Any], last_observation: Any) -> dict[str, Any]:
        """Return the info of a step that reports the lost episode of an environment, which counts as reported.

        Arguments:
            env_id: Number of the environment.
            reset_info: With SAME_STEP the info of its reset, else empty.
            last_observation: The last observation of the lost episode, which the info then owns.
        """
        info = {**reset_info, "episode_lost": self.unreported.pop(env_id)}
        if self.mode is AutoresetMode.SAME_STEP:
            info |= {"final_obs": last_observation, "final_info": {}}
        return info

    def batch_infos(self, infos: Sequence[dict[str, Any]], env_ids: Sequence[int]) -> dict[str, Any]:
        """Combine the infos of ``env_ids`` as Gymnasium does; if it cannot, all environments need a reset.

        Raises:
            InvalidStepError: Gymnasium cannot combine them.
        """
        try:
            return batch_infos(infos, env_ids, self.num_envs)
        except InvalidStepError:
            self.require_reset()
            raise

    def state_dict(self, envs: list[dict[str, Any]], observations: Sequence[Any]) -> dict[str, Any]:
        """Return the state of the vector environment; all values are copies.

        Arguments:
            envs: The entry of each environment, from ``framestow.envs.vector.one_env.env_entry``.
            observations: The last observation of each environment.
        """
        return {
            "autoreset_mode": self.mode.value,
            "envs": envs,
            "has_ended": self.has_ended.copy(),
            "needs_reset": self.needs_reset.copy(),
            "observations": deepcopy(list(observations)),
            "pending_seed": self._pending_seed,
            "lost": {
                "untold": {str(env_id): why for env_id, why in self.unreported.items()},
                "first_seeds": {str(env_id): seed for env_id, seed in self.first_seeds.items()},
                "num_replacements": list(self._num_replacements),
                "entropy": self._entropy,
            },
        }

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise ``IncompatibleError`` unless the state is of the same number of environments and the same mode."""
        check_keys(state, _KEYS, "vector environment")
        check_keys(state["lost"], _KEYS_OF_LOST, "vector environment")
        each = [state[key] for key in ("envs", "has_ended", "needs_reset", "observations")]
        for values in (*each, state["lost"]["num_replacements"]):
            count = len(values) if isinstance(values, (list, tuple)) or np.ndim(values) else 0
            if state["autoreset_mode"] != self.mode.value or count != self.num_envs:
                raise IncompatibleError(
                    f"state is of {plural(count, 'environment')} with {state['autoreset_mode']}: these are "
                    f"{self.num_envs} with {self.mode.value}; use the same number and mode"
                )
        for entry in state["envs"]:
            check_keys(entry, ("state", "why"), "vector environment")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checked state of ``state_dict``, whose environments are restored already.

        The running episodes of environments without a saved state are lost, with a ``UserWarning``. All environments
        without a saved state are seeded like replacements.
        """
        self.has_ended[:], self.needs_reset[:] = state["has_ended"], state["needs_reset"]
        self._pending_seed = state["pending_seed"]
        lost = state["lost"]
        self.unreported = {int(env_id): str(why) for env_id, why in lost["untold"].items()}
        self.first_seeds = {int(env_id): int(seed) for env_id, seed in lost["first_seeds"].items()}
        self._num_replacements = [int(count) for count in lost["num_replacements"]]
        self._entropy = lost["entropy"]
        whys = {env_id: entry["why"] for env_id, entry in enumerate(state["envs"]) if entry["state"] is None}
        if self.needs_reset.all():
            return
        running = []
        for env_id, why in whys.items():
            running += self.lose([env_id], f"resumed without a state: {why}")
        if running:
            warn_caller(
                f"environments {running} restart, and their episodes count as truncated: they have no saved state, "
                f"{', '.join(sorted({whys[env_id] for env_id in running}))}",
                UserWarning,
            )
