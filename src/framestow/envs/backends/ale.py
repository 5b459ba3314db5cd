"""Play Atari games with ALE's own vector environment, which uses C++ threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from framestow.argument_checks import checked_seed, whole_number
from framestow.envs.atari.games import find_rom, title
from framestow.envs.atari.presets import Preset, PresetName, find_preset
from framestow.envs.recording.recordable import DeferredInterrupts, RestartedEpisodes, VectorStep
from framestow.envs.seeding import emulator_seed, replacement_seed, seed_of_each
from framestow.envs.vector.autoreset import POLICIES, AutoresetName, find_mode
from framestow.envs.vector.calls import ClosedError, one_action_each, require_none_left_idle, split_options
from framestow.envs.vector.infos import EpisodeTally
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError


def ale_settings(preset: Preset, mode: AutoresetMode) -> dict[str, Any]:
    """Return the arguments of ``AtariVectorEnv`` for ``preset``.

    ALE deviates from presets in five ways, listed in docs/environments.md: the maximum is always of grey values; a
    reset returns the last raw frame alone; 0 to ``max_noops`` no-ops are drawn and do not count as episode frames;
    FIRE is before the no-ops; a lost life does not cut the frame skip short.

    Raises:
        InvalidSettingsError: ALE lacks another setting of the preset; the message names the field.
    """
    _require(preset.resize == "area", preset, "resize", "it always averages over the area")
    _require(preset.opening != "fire_steps", preset, "opening", "it plays no agent steps within a reset")
    noop_steps = (0, 1) if mode is AutoresetMode.NEXT_STEP else (0,)
    _require(
        preset.life_loss == "ignored" or preset.noop_steps_after_life_loss in noop_steps,
        preset,
        "noop_steps_after_life_loss",
        f"it steps all games together, which with {mode.value} gives {' or '.join(map(str, noop_steps))}",
    )
    return {
        "frameskip": preset.frame_skip,
        "repeat_action_probability": preset.sticky_probability,
        "full_action_space": preset.action_set == "full",
        "noop_max": preset.max_noops + 1,  # exclusive upper bound
        "use_fire_reset": preset.opening == "fire_frame",
        "img_height": preset.frame_shape[0],
        "img_width": preset.frame_shape[1],
        "max_num_frames_per_episode": preset.max_episode_frames,
        "stack_num": 1,
        "grayscale": True,
        "maxpool": True,
        "reward_clipping": False,
        "episodic_life": False,
        "life_loss_info": False,
    }


def _require(holds: bool, preset: Preset, field: str, rule: str) -> None:
    if not holds:
        raise InvalidSettingsError(
            f"preset {preset.name!r} has {field} {getattr(preset, field)!r}: ALE's vector environment does not support "
            f'it, {rule}; use backend="framestow"'
        )


Flags = npt.NDArray[np.bool_]


class GameTally(EpisodeTally):
    """Score, length, lives and frame number of ``n`` games."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.lives: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self._frame_numbers = np.zeros(num_envs, np.int64)

    def read_infos(self, games: Flags, infos: dict[str, Any]) -> None:
        """Store the lives and frame numbers of ``games`` from ALE's ``infos``."""
        self.lives[games] = infos["lives"][games]
        self._frame_numbers[games] = infos["episode_frame_number"][games]

    def infos(self, games: Flags) -> dict[str, Any]:
        """Return lives and frame numbers of ``games`` as Gymnasium's dictionary of arrays with masks."""
        return {
            "lives": np.where(games, self.lives, 0),
            "_lives": games.copy(),
            "episode_frame_number": np.where(games, self._frame_numbers, 0),
            "_episode_frame_number": games.copy(),
        }


NOOP = 0  # the first action of both action sets
Frames = npt.NDArray[np.uint8]


class AleVectorEnv(VectorEnv[Frames, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Atari games with the settings of a preset, played in the threads of ALE's ``AtariVectorEnv``.

    Observations are single frames, ``(n, 84, 84)``, with the infos of ``make_atari``; rewards are clipped, scores are
    not. All frames within a game equal those of `AtariEnv`. *The last frame of a game can be wrong:* ALE leaves out
    the raw frame that ended the game. docs/environments.md lists the other deviations from presets.

    All games step together. So with NEXT_STEP the first observation after a lost life is from a no-op step, whose
    reward counts for the score only. In the other modes it is the frame of the lost life.

    Not supported: saving the emulators. A resumed run loses the running episodes, reports them in the next step and
    starts new games.

    Args:
        game: name in any spelling, such as ``Breakout`` or ``ALE/Breakout-v5``.
        num_envs: number of games, 1 or more.
        preset: name of a preset, or a `Preset`.
        seed: seed for the first reset without a seed; each game gets its own seed from it.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        num_threads: number of threads; ``None`` takes one for each core, and no more than games.

    Raises:
        UnknownGameError: the game is unknown; the message names the nearest games.
        InvalidSettingsError: ALE does not support a setting of the preset, or an argument is out of range.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        preset: PresetName | Preset = "machado2018",
        seed: int | None = None,
        *,
        autoreset_mode: AutoresetMode | AutoresetName = AutoresetMode.NEXT_STEP,
        num_threads: int | None = None,
    ) -> None:
        self.rom, self.preset = find_rom(game), find_preset(preset)
        self._policy = POLICIES[find_mode(autoreset_mode)]
        settings = ale_settings(self.preset, self._policy.mode)
        self._entropy = int(np.random.SeedSequence(checked_seed(seed)).entropy)  # type: ignore[arg-type]
        num_envs = whole_number("num_envs", num_envs, 1, rule="it must be 1 or more")
        if num_threads is not None:
            rule = "it must be 1 or more; None takes one for each core"
            num_threads = whole_number("num_threads", num_threads, 1, rule=rule)
        self.num_envs = num_envs
        self._games: _Games | None = _Games(self.rom, num_envs, num_threads=num_threads or 0, **settings)
        self.metadata = {"render_modes": [], "autoreset_mode": self._policy.mode}
        self.render_mode = None
        self.single_action_space = self._games.single_action_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.single_observation_space = Box(0, 255, self.preset.frame_shape, np.uint8)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._has_ended = np.zeros(num_envs, np.bool_)
        self._needs_reset = np.ones(num_envs, np.bool_)
        self._has_lost_life = np.zeros(num_envs, np.bool_)  # the episode has ended, the game has not
        self._frames = np.zeros((num_envs, *self.preset.frame_shape), np.uint8)
        self._tally = GameTally(num_envs)
        self._interrupts = DeferredInterrupts()
        self._num_resumptions = 0
        self._restarted: RestartedEpisodes | None = None

    @property
    def game(self) -> str:
        """Name of the game as Gymnasium writes it."""
        return title(self.rom)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Start an episode in every game, or in those of ``options["reset_mask"]``; return the frames of all.

        After a lost life the game continues, unless there is a seed. The first reset of a resumed run resets all.
        """
        games = self._open_games()
        mask, _ = split_options(options, self.num_envs)
        if self._restarted is not None:
            mask[:] = True
        require_none_left_idle(mask, self._needs_reset)
        if seed is None and self._needs_reset.all():
            seed = self._entropy
        elif seed is None and self._restarted is not None:
            seed = self._seeds_of_resumption()
        seeds = seed_of_each(seed, self.num_envs)
        is_seeded = np.array([each is not None for each in seeds])
        with self._interrupts:
            self._start_games(games, mask & ~(self._has_lost_life & ~is_seeded), seeds)
            self._has_ended[mask] = self._needs_reset[mask] = self._has_lost_life[mask] = False
        self._restarted = None
        return self._frames.copy(), self._tally.infos(mask)

    def step(self, actions: Any) -> tuple[Frames, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        """Step every game with its action; all actions are checked before ALE steps.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or a game that needs a reset.
        """
        games = self._open_games()
        if self._needs_reset.any():
            raise InvalidStepError("environments have no running episode: step() needs one; call reset()")
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        self._policy.check(self._has_ended)
        if self._restarted is not None:
            return self._step_restarted(self._restarted)
        with self._interrupts:  # ALE must receive the results of all actions that it sent
            return self._step_games(games, np.array(each, np.int64))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Release the games and their threads."""
        self._games = None

    def state_dict(self) -> dict[str, Any]:
        """Return the frames, seeds and ended episodes as plain values; the games themselves cannot be saved."""
        self._open_games()
        return {
            "autoreset_mode": self._policy.mode.value,
            "rom": self.rom,
            "has_ended": self._has_ended.copy(),
            "needs_reset": self._needs_reset.copy(),
            "frames": self._frames.copy(),
            "entropy": self._entropy,
            "num_resumptions": self._num_resumptions,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state of `state_dict`: the next step reports the lost episodes, and new games start.

        Raises:
            IncompatibleError: another game, number of games, mode or frame shape.
        """
        self._open_games()
        frames = np.array(state["frames"], np.uint8)
        theirs = state["rom"], state["autoreset_mode"], frames.shape
        ours = self.rom, self._policy.mode.value, self._frames.shape
        if theirs != ours:
            raise IncompatibleError(f"state is of {theirs}, game, mode and shape: these are {ours}; use the same ones")
        self._frames, self._entropy = frames, int(state["entropy"])
        self._has_ended, self._needs_reset = np.array(state["has_ended"]), np.array(state["needs_reset"])
        self._num_resumptions = int(state["num_resumptions"]) + 1
        if not self._needs_reset.any():
            self._restarted = RestartedEpisodes(
                self._policy.mode, self._has_ended.copy(), self._frames.copy, self._start_new_games
            )

    def _step_games(
        self, games: _Games, actions: npt.NDArray[np.int64]
    ) -> tuple[Frames, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        was_reset = self._has_ended  # with NEXT_STEP only
        continues = was_reset & self._has_lost_life
        actions[continues] = NOOP
        frames, raw_rewards, terminated, truncated, ale_infos = games.step(actions)
        self._frames = frames[:, 0]
        is_over, has_lost_life = terminated | truncated, self._count(raw_rewards, was_reset, continues, ale_infos)
        has_lost_life &= ~is_over
        finished = self._tally.finished(is_over)
        self._start_games(games, is_over & continues)
        rewards = np.where(was_reset, 0.0, raw_rewards)
        if self.preset.reward_limit is not None:
            rewards = np.clip(rewards, -self.preset.reward_limit, self.preset.reward_limit)
        terminated, truncated = (terminated & ~was_reset) | has_lost_life, truncated & ~was_reset
        ended = terminated | truncated
        if self._policy.mode is AutoresetMode.SAME_STEP:
            infos = self._same_step_infos(games, is_over, ended, finished)
        else:
            self._has_ended, self._has_lost_life = ended, has_lost_life
            infos = {**self._tally.infos(np.ones(self.num_envs, np.bool_)), **finished}
        return self._frames.copy(), rewards, terminated, truncated, infos

    def _count(self, rewards: npt.NDArray[Any], was_reset: Flags, continues: Flags, ale_infos: dict[str, Any]) -> Flags:
        """Update the tally; return which games lost a life that ends the episode."""
        everyone, is_new = np.ones(self.num_envs, np.bool_), was_reset & ~continues
        lives_before = self._tally.lives.copy()
        self._tally.begin(is_new)
        self._tally.read_infos(everyone, ale_infos)
        self._tally.add(rewards, were_acted=~was_reset)
        if self.preset.life_loss == "ignored":
            return np.zeros(self.num_envs, np.bool_)
        counts = (self._tally.lives > 0) | (self.preset.life_loss == "terminates")
        return np.asarray((self._tally.lives < lives_before) & ~was_reset & counts, np.bool_)

    def _same_step_infos(self, games: _Games, is_over: Flags, ended: Flags, finished: dict[str, Any]) -> dict[str, Any]:
        """Return the infos of a SAME_STEP step, and restart the games that are over."""
        everyone = np.ones(self.num_envs, np.bool_)
        if not ended.any():
            return self._tally.infos(everyone)
        final_obs, final_info = np.full(self.num_envs, None, object), {**self._tally.infos(ended), **finished}
        for number in np.flatnonzero(ended):
            final_obs[number] = self._frames[number].copy()
        self._start_games(games, is_over)
        final = {"final_obs": final_obs, "_final_obs": ended, "final_info": final_info, "_final_info": ended.copy()}
        return {**self._tally.infos(everyone), **final}

    def _start_games(self, games: _Games, mask: Flags, seeds: Sequence[int | None] | None = None) -> None:
        if not mask.any():
            return
        each = [None if seeds is None else seeds[number] for number in np.flatnonzero(mask).tolist()]
        emulator_seeds = np.array([-1 if seed is None else emulator_seed(seed) for seed in each])
        frames, ale_infos = games.reset(seed=emulator_seeds, options=None if mask.all() else {"reset_mask": mask})
        self._frames[mask] = frames[mask, 0]
        self._tally.begin(mask)
        self._tally.read_infos(mask, ale_infos)

    def _start_new_games(self) -> tuple[Frames, dict[str, Any]]:
        """Start new games, with new seeds, in a resumed run."""
        everyone = np.ones(self.num_envs, np.bool_)
        self._start_games(self._open_games(), everyone, self._seeds_of_resumption())
        return self._frames.copy(), self._tally.infos(everyone)

    def _seeds_of_resumption(self) -> list[int]:
        return [replacement_seed(self._entropy, number, self._num_resumptions - 1) for number in range(self.num_envs)]

    def _step_restarted(self, restarted: RestartedEpisodes) -> VectorStep:
        answer = restarted.step()
        waits = answer[3].copy() if self._policy.mode is not AutoresetMode.SAME_STEP else answer[2].copy()
        self._has_ended, self._has_lost_life = waits, np.zeros(self.num_envs, np.bool_)
        if restarted.is_over:
            self._restarted = None
        return answer

    def _open_games(self) -> _Games:
        if self._games is None:
            raise ClosedError("vector environment is closed: its games cannot be used; make a new one")
        return self._games


class _Games(AtariVectorEnv):  # type: ignore[misc]
    """``AtariVectorEnv`` with separate metadata; its constructor writes into a dictionary of the class."""

    def __init__(self, rom: str, num_envs: int, **settings: Any) -> None:
        self.metadata: dict[str, Any] = {}
        super().__init__(rom, num_envs, **settings)
