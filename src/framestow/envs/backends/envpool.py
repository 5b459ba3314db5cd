"""Use a pool of EnvPool as a vector environment of framestow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from framestow.envs.recording.recordable import DeferredInterrupts
from framestow.envs.vector.calls import ClosedError, one_action_each, require_none_left_idle, split_options
from framestow.envs.vector.infos import EpisodeTally
from framestow.errors import InvalidSettingsError, InvalidStepError

ROW_NUMBERS = frozenset({"env_id", "players"})  # infos that only number the rows


def with_masks(infos: Mapping[str, Any], rows: npt.NDArray[np.integer[Any]], num_envs: int) -> dict[str, Any]:
    """Return ``infos``, whose arrays have an entry for each of ``rows``, as arrays of ``num_envs`` with masks.

    >>> with_masks({"lives": np.array([3, 5]), "env_id": np.array([0, 2])}, np.array([0, 2]), 3)
    {'lives': array([3, 0, 5]), '_lives': array([ True, False,  True])}
    """
    masked: dict[str, Any] = {}
    for key, value in infos.items():
        if key in ROW_NUMBERS:
            continue
        mask = np.zeros(num_envs, np.bool_)
        mask[rows] = True
        if isinstance(value, Mapping):
            masked[key] = with_masks(value, rows, num_envs)
        else:
            array = np.asarray(value)
            masked[key] = np.zeros((num_envs, *array.shape[1:]), array.dtype)
            masked[key][rows] = array
        masked[f"_{key}"] = mask
    return masked


Flags = npt.NDArray[np.bool_]


class EnvpoolVectorEnv(VectorEnv[Any, Any, npt.NDArray[Any]]):
    """Vector environment over a pool of EnvPool (Weng et al. 2022), with NEXT_STEP, EnvPool's only autoreset mode.

    The pool is made by ``envpool.make_gymnasium(task, num_envs=n, stack_num=1, ...)``; its arguments choose game
    settings, seeds and threads. Tested with EnvPool 1.2.5. This class checks actions, because an action out of range
    would end the process. It adds Gymnasium's masks to infos, and ``infos["episode"]`` with score and length of each
    ended game. An axis of one frame is removed: ``(1, 84, 84)`` becomes ``(84, 84)``.

    If a game ends within a frame skip, EnvPool's last frame is not the true one. Not supported: saving the pool. A
    resumed run restarts with the first games of the pool's seed.

    Args:
        pool: made by ``envpool.make_gymnasium``; this environment owns and closes it.

    Raises:
        InvalidSettingsError: the pool is of another kind, is asynchronous, has several players or stacks frames.

    Example::

        env = EnvpoolVectorEnv(envpool.make_gymnasium("Pong-v5", num_envs=8, stack_num=1, seed=0))
    """

    def __init__(self, pool: Any) -> None:
        config = _checked_config(pool)
        self.pool = pool
        self.num_envs = int(config["num_envs"])
        self.metadata = {**pool.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.render_mode, self.spec = pool.render_mode, None
        space = pool.observation_space
        self._has_frame_axis = config.get("stack_num") == 1 and isinstance(space, Box) and space.shape[:-2] == (1,)
        self.single_observation_space = _without_first_axis(space) if self._has_frame_axis else space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space = pool.action_space
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._observations: Any = None  # None before the first reset
        self._has_ended = np.zeros(self.num_envs, np.bool_)
        self._tally = EpisodeTally(self.num_envs)
        self._interrupts = DeferredInterrupts()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Returns:
            The observations of all environments, and the ``infos`` of those that were reset.

        Raises:
            InvalidSettingsError: a seed is given; a pool has a fixed one.
        """
        self._require_open()
        if seed is not None:
            raise InvalidSettingsError(f"seed is {seed}: a pool has a fixed seed; use make_gymnasium(task, seed=...)")
        mask, _ = split_options(options, self.num_envs)
        require_none_left_idle(mask, np.full(self.num_envs, self._observations is None))
        rows = np.flatnonzero(mask).astype(np.int32)
        with self._interrupts:  # the pool must receive the results of all actions that it sent
            observations, infos = self.pool.reset(None if mask.all() else rows)
            self._observations = self._merged(self._plain(observations), rows)
            self._has_ended[mask] = False
            self._tally.begin(mask)
        return _copied(self._observations), with_masks(infos, rows, self.num_envs)

    def step(self, actions: Any) -> tuple[Any, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Step every environment with its action; all actions are checked before the pool steps.

        Raises:
            InvalidStepError: no reset before, too few or too many actions, or one out of range.
        """
        self._require_open()
        if self._observations is None:
            raise InvalidStepError("environments have no running episode: step() needs one; call reset()")
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        with self._interrupts:
            return self._step_pool(np.array(each, self.single_action_space.dtype))

    def render(self) -> tuple[Any, ...] | None:
        """Return one rendered image for each environment, or ``None`` without a render mode."""
        self._require_open()
        if self.render_mode is None:
            return None
        return tuple(self.pool.render(env_ids=np.arange(self.num_envs, dtype=np.int32)))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Close the pool."""
        self.pool.close()

    def _step_pool(
        self, actions: npt.NDArray[Any]
    ) -> tuple[Any, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        was_reset = self._has_ended
        observations, rewards, terminated, truncated, pool_infos = self.pool.step(actions)
        self._observations = self._plain(observations)
        terminated, truncated = np.array(terminated, np.bool_), np.array(truncated, np.bool_)
        self._has_ended = terminated | truncated
        raw_rewards, is_over = pool_infos.get("reward", rewards), pool_infos.get("terminated", terminated)
        infos = with_masks(pool_infos, np.arange(self.num_envs), self.num_envs)
        is_over = np.asarray(is_over, np.bool_) | truncated
        self._tally.add(raw_rewards, were_acted=~was_reset)
        infos |= self._tally.finished(is_over)
        self._tally.begin(is_over)
        return _copied(self._observations), np.array(rewards, np.float64), terminated, truncated, infos

    def _plain(self, observations: Any) -> Any:
        return observations[:, 0] if self._has_frame_axis else observations

    def _merged(self, observations: Any, rows: npt.NDArray[np.int32]) -> Any:
        if len(rows) == self.num_envs:
            return observations
        if isinstance(observations, Mapping):
            merged = {}
            for key, part in observations.items():
                merged[key] = np.array(self._observations[key])
                merged[key][rows] = part
            return merged
        whole = np.array(self._observations)
        whole[rows] = observations
        return whole

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedError("vector environment is closed: its pool cannot be used; make a new one")


def _checked_config(pool: Any) -> Mapping[str, Any]:
    config = getattr(pool, "config", None)
    if not isinstance(config, Mapping) or not isinstance(getattr(pool, "observation_space", None), gymnasium.Space):
        raise InvalidSettingsError(
            f"pool is a {type(pool).__name__}: it must be a pool with Gymnasium spaces; make it with "
            "envpool.make_gymnasium(task, num_envs=n, stack_num=1)"
        )
    num_envs = config["num_envs"]
    for field, allowed, reason in (
        ("batch_size", (num_envs, 0), "all environments must step together"),
        ("max_num_players", (1,), "an environment must have one player"),
        ("stack_num", (1,), "the memory stacks frames"),
    ):
        if config.get(field, allowed[0]) not in allowed:
            raise InvalidSettingsError(f"pool has {field} {config[field]}: {reason}; make it with {field}={allowed[0]}")
    return config


def _without_first_axis(space: Box) -> Box:
    return Box(space.low[0], space.high[0], dtype=space.dtype.type)


def _copied(observations: Any) -> Any:
    if isinstance(observations, Mapping):
        return {key: _copied(part) for key, part in observations.items()}
    return np.array(observations)
