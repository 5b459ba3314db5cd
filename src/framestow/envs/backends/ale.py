"""ALE's own vector environment: games played by threads in C++, in the form of framestow's environments."""

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
from framestow.envs.atari.presets import Preset, find_preset
from framestow.envs.recording.recordable import RestartedEpisodes, DeferredInterrupts, VectorStep
from framestow.envs.seeding import emulator_seed, replacement_seed, seed_of_each
from framestow.envs.vector.autoreset import POLICIES, find_mode
from framestow.envs.vector.calls import ClosedError, one_action_each, require_none_left_idle, split_options
from framestow.envs.vector.infos import EpisodeTally
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError


def ale_settings(preset: Preset, mode: AutoresetMode) -> dict[str, Any]:
    """Arguments of ``AtariVectorEnv`` for ``preset``, where it can do what the preset asks.

    What ALE does otherwise is refused, but for the deviations that docs/environments.md lists: the maximum is
    always of grey values, a reset shows the last raw frame alone, 0 to ``max_noops`` no-ops are drawn and not counted
    in the cap, a FIRE comes before them, and no frame skip is cut short where a life is lost.

    Raises:
        InvalidSettingsError: ALE's vector environment has no such thing; the message names the field.
    """
    _require(preset.resize == "area", preset, "resize", "it averages over the area always")
    _require(preset.opening != "fire_steps", preset, "opening", "it plays no whole steps within a reset")
    noop_steps = (0, 1) if mode is AutoresetMode.NEXT_STEP else (0,)
    _require(
        preset.life_loss == "ignored" or preset.noop_steps_after_life_loss in noop_steps,
        preset,
        "noop_steps_after_life_loss",
        f"it steps all of its games or none, so that with {mode.value} there are {' or '.join(map(str, noop_steps))}",
    )
    return {
        "frameskip": preset.frame_skip,
        "repeat_action_probability": preset.sticky_probability,
        "full_action_space": preset.action_set == "full",
        "noop_max": preset.max_noops + 1,  # it draws below this
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
            f"preset {preset.name!r} has {field} {getattr(preset, field)!r}: ALE's vector environment cannot do that, "
            f'{rule}; take backend="framestow"'
        )


Flags = npt.NDArray[np.bool_]


class GameTally(EpisodeTally):
    """Score, length, lives and frame number of each of ``n`` games."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.lives: npt.NDArray[np.int64] = np.zeros(num_envs, np.int64)
        self._frame_numbers = np.zeros(num_envs, np.int64)

    def look(self, games: Flags, told: dict[str, Any]) -> None:
        """Take in the lives and frame numbers of ``games`` from what ALE ``told``."""
        self.lives[games] = told["lives"][games]
        self._frame_numbers[games] = told["episode_frame_number"][games]

    def infos(self, games: Flags) -> dict[str, Any]:
        """Lives and frame numbers of ``games``, as Gymnasium's dictionary of arrays with masks."""
        return {
            "lives": np.where(games, self.lives, 0),
            "_lives": games.copy(),
            "episode_frame_number": np.where(games, self._frame_numbers, 0),
            "_episode_frame_number": games.copy(),
        }


NOOP = 0  # the first of either action set
Frames = npt.NDArray[np.uint8]


class AleVectorEnv(VectorEnv[Frames, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Atari games by a preset's recipe, played by ALE's ``AtariVectorEnv``: in threads, and less exact.

    One frame ``(n, 84, 84)`` an observation, as ``make_atari`` gives them elsewhere, and the same infos; rewards are
    clipped here and scores are not. Every frame within a game is the one that `AtariEnv` gives. *The last one of a
    game is not:* ALE leaves out the raw frame that ended it and shows the step before, or a mixture. Its other
    deviations are in docs/environments.md. What goes another way than the preset says, unless listed there, is
    refused.

    All games are stepped or none, so the first observation after a lost life (where that ends the episode) comes with
    NEXT_STEP from a step of no action, whose reward counts in the score only; with the other modes it is the frame
    that the life was lost with.

    The emulators' state cannot be kept: a run resumed from `state_dict` has lost the episodes that were running, tells
    so in the next step and begins others.

    Args:
        game: as ``make_atari`` takes it.
        num_envs: how many games, 1 or more.
        preset: a name, or a `Preset`.
        seed: what the first reset takes when it is given none; spread over the games.
        autoreset_mode: ``NEXT_STEP``, ``SAME_STEP`` or ``DISABLED``, or its value as a string.
        num_threads: threads that play; ``None`` takes one a core, at most one a game.

    Raises:
        UnknownGameError: no such game; the message names the nearest.
        InvalidSettingsError: the preset asks for what ALE cannot do, or an argument cannot work.
    """

    def __init__(
        self,
        game: str,
        num_envs: int,
        preset: str | Preset = "machado2018",
        seed: int | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        num_threads: int | None = None,
    ) -> None:
        self.rom, self.preset = find_rom(game), find_preset(preset)
        self._policy = POLICIES[find_mode(autoreset_mode)]
        settings = ale_settings(self.preset, self._policy.mode)
        self._entropy = int(np.random.SeedSequence(checked_seed(seed)).entropy)  # type: ignore[arg-type]
        num_envs = whole_number("num_envs", num_envs, 1, rule="a vector environment has 1 or more; give a number")
        if num_threads is not None:
            num_threads = whole_number("num_threads", num_threads, 1, rule="1 or more play; None takes one a core")
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
        self._has_lost_life = np.zeros(num_envs, np.bool_)  # its episode has ended, its game goes on
        self._frames = np.zeros((num_envs, *self.preset.frame_shape), np.uint8)
        self._tally = GameTally(num_envs)
        self._interrupts = DeferredInterrupts()
        self._num_resumptions = 0
        self._restarted: RestartedEpisodes | None = None

    @property
    def game(self) -> str:
        """The game's name as Gymnasium writes it."""
        return title(self.rom)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Start an episode in every game, or in those of ``options["reset_mask"]``; gives the frames of all.

        After a lost life the game goes on, unless there is a seed. In a resumed run the first reset is of all.
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
        """Step every game with its action, all being checked before ALE sees one.

        Raises:
            InvalidStepError: too few or too many actions, one out of range, or a game that waits for a reset.
        """
        games = self._open_games()
        if self._needs_reset.any():
            raise InvalidStepError("environments have no running episode: they need one to be stepped; call reset()")
        each = one_action_each(actions, self.single_action_space, self.action_space, self.num_envs)
        self._policy.check(self._has_ended)
        if self._restarted is not None:
            return self._told_of_lost_episodes(self._restarted)
        with self._interrupts:  # what was sent has to be received
            return self._stepped(games, np.array(each, np.int64))

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """Let the games and their threads go."""
        self._games = None

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run has to know of this one, as plain values; the games themselves cannot be kept."""
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
        """Go on from what `state_dict` gave: the next step tells which episodes are lost, and others begin.

        Raises:
            IncompatibleError: another game, number of games or mode, or frames of another shape.
        """
        self._open_games()
        frames = np.array(state["frames"], np.uint8)
        theirs = state["rom"], state["autoreset_mode"], frames.shape
        ours = self.rom, self._policy.mode.value, self._frames.shape
        if theirs != ours:
            raise IncompatibleError(f"state is of {theirs}, game, mode and shape: these are {ours}; make the same ones")
        self._frames, self._entropy = frames, int(state["entropy"])
        self._has_ended, self._needs_reset = np.array(state["has_ended"]), np.array(state["needs_reset"])
        self._num_resumptions = int(state["num_resumptions"]) + 1
        if not self._needs_reset.any():
            self._restarted = RestartedEpisodes(
                self._policy.mode, self._has_ended.copy(), self._frames.copy, self._start_others
            )

    def _stepped(
        self, games: _Games, actions: npt.NDArray[np.int64]
    ) -> tuple[Frames, npt.NDArray[np.float64], Flags, Flags, dict[str, Any]]:
        was_reset = self._has_ended  # none but with NEXT_STEP
        goes_on = was_reset & self._has_lost_life
        actions[goes_on] = NOOP
        frames, raw_rewards, terminated, truncated, told = games.step(actions)
        self._frames = frames[:, 0]
        is_over, has_lost_life = terminated | truncated, self._taken_in(raw_rewards, was_reset, goes_on, told)
        has_lost_life &= ~is_over
        finished = self._tally.finished(is_over)
        self._start_games(games, is_over & goes_on)
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

    def _taken_in(self, rewards: npt.NDArray[Any], was_reset: Flags, goes_on: Flags, told: dict[str, Any]) -> Flags:
        """Bring the tally up to date; gives where a life was lost that ends the episode."""
        everyone, is_new = np.ones(self.num_envs, np.bool_), was_reset & ~goes_on
        lives_before = self._tally.lives.copy()
        self._tally.begin(is_new)
        self._tally.look(everyone, told)
        self._tally.add(rewards, were_acted=~was_reset)
        if self.preset.life_loss == "ignored":
            return np.zeros(self.num_envs, np.bool_)
        counts = (self._tally.lives > 0) | (self.preset.life_loss == "terminates")
        return np.asarray((self._tally.lives < lives_before) & ~was_reset & counts, np.bool_)

    def _same_step_infos(self, games: _Games, is_over: Flags, ended: Flags, finished: dict[str, Any]) -> dict[str, Any]:
        """Start the games that are over anew, and tell how they ended."""
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
        told_seeds = np.array([-1 if seed is None else emulator_seed(seed) for seed in each])
        frames, told = games.reset(seed=told_seeds, options=None if mask.all() else {"reset_mask": mask})
        self._frames[mask] = frames[mask, 0]
        self._tally.begin(mask)
        self._tally.look(mask, told)

    def _start_others(self) -> tuple[Frames, dict[str, Any]]:
        """Start games that no other seed plays, in a resumed run."""
        everyone = np.ones(self.num_envs, np.bool_)
        self._start_games(self._open_games(), everyone, self._seeds_of_resumption())
        return self._frames.copy(), self._tally.infos(everyone)

    def _seeds_of_resumption(self) -> list[int]:
        return [replacement_seed(self._entropy, number, self._num_resumptions - 1) for number in range(self.num_envs)]

    def _told_of_lost_episodes(self, restarted: RestartedEpisodes) -> VectorStep:
        answer = restarted.step()
        waits = answer[3].copy() if self._policy.mode is not AutoresetMode.SAME_STEP else answer[2].copy()
        self._has_ended, self._has_lost_life = waits, np.zeros(self.num_envs, np.bool_)
        if restarted.is_over:
            self._restarted = None
        return answer

    def _open_games(self) -> _Games:
        if self._games is None:
            raise ClosedError("vector environment is closed: its games play no more; make a new one")
        return self._games


class _Games(AtariVectorEnv):  # type: ignore[misc]
    """ALE's own, with a metadata dictionary of its own: its constructor writes into whichever it finds."""

    def __init__(self, rom: str, num_envs: int, **settings: Any) -> None:
        self.metadata: dict[str, Any] = {}
        super().__init__(rom, num_envs, **settings)
