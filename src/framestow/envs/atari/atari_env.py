"""One Atari game as a Gymnasium environment, right to the last frame."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt
from ale_py import roms

from framestow.argument_checks import checked_seed
from framestow.envs.atari.games import GAMES_NOT_RESTORED, find_rom, title
from framestow.envs.atari.presets import Preset, differing_fields, find_preset
from framestow.envs.atari.screen import Screen
from framestow.envs.seeding import emulator_seed
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError

_KEYS = frozenset(
    ("rom", "preset", "phase", "emulator", "held_action", "frame", "score", "agent_steps", "pending_seed", "generator")
)

# What a preset says besides how frames, rewards and ends come about.
_NOT_THE_ENVIRONMENTS = frozenset(("name", "source", "stack_padding", "evaluation_epsilon"))


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """State of a generator as strings and ints (of up to 128 bits)."""
    return dict(generator.bit_generator.state)


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """Build a generator that goes on where the one of `generator_state` stood."""
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = state
    return generator


def check_state(state: dict[str, Any], rom: str, preset: Preset) -> None:
    """Refuse a state that does not belong to this game and preset, before anything is changed."""
    missing = sorted(_KEYS - set(state))
    if missing:
        raise IncompatibleError(f"state lacks {missing}: it is no AtariEnv's; hand in what state_dict() gave")
    if state["rom"] != rom:
        raise IncompatibleError(f"state is of the game {state['rom']!r}: this is {rom!r}; make the environment of it")
    differing = differing_fields(state["preset"], preset, but=_NOT_THE_ENVIRONMENTS)
    if differing:
        raise IncompatibleError(
            f"state is of the preset {state['preset'].get('name')!r}: it differs in {', '.join(differing)}; "
            "use that preset"
        )
    shape = np.shape(state["frame"])
    if shape != preset.frame_shape:
        raise IncompatibleError(f"state's frame has shape {shape}: {preset.frame_shape} is needed; it is damaged")
    try:
        ale_py.ALEState(state["emulator"])
    except Exception as error:
        raise IncompatibleError(f"state's emulator part is not ale-py's: {error}; it is damaged") from error


EMULATOR_FRAMES_PER_SECOND = 60
Phase = Literal["unstarted", "running", "life_lost", "over"]


class AtariEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """An Atari game by a preset's recipe: one observation is one frame, ``uint8`` of the preset's shape.

    ``step`` holds the action for the preset's frame skip and gives the maximum of the last two raw frames *of that
    step*; where the game ends early, of those that were seen (`Screen` has the table). Stacking is
    the business of whoever keeps the frames.

    Where the preset says so, a lost life ends the episode but not the game: the next ``reset`` goes on with it, by the
    preset's no-op steps and opening, or, where it has neither, with the frame that the life was lost with. Any other
    ``reset``, and every one with a seed, starts a new game.

    Sticky actions are drawn here and not by the emulator, because the emulator's own state leaves out the action it
    holds: a game restored from it went another way (seen with ale-py 0.12.1).

    ``info`` holds ``lives``, ``episode_frame_number`` (emulator frames of this game) and, when the game is over or
    truncated, ``episode``: ``{"r": its unclipped score, "l": its agent steps}``, over all lives. A game that a reset
    means to go on with may end in the steps which that reset plays; then it is told in the reset's ``info``.

    Raises:
        UnknownGameError: no such game; the message names the nearest.
        InvalidSettingsError: an unknown preset, render mode or seed.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}  # type: ignore[misc]

    def __init__(
        self,
        game: str,
        preset: str | Preset = "machado2018",
        seed: int | None = None,
        *,
        render_mode: str | None = None,
    ) -> None:
        self.rom, self.preset = find_rom(game), find_preset(preset)
        first_seed = checked_seed(seed)
        self._pending_seed = int(np.random.SeedSequence(first_seed).entropy)  # type: ignore[arg-type]
        if render_mode not in (None, "rgb_array"):
            raise InvalidSettingsError(
                f"render_mode is {render_mode!r}: Atari environments give 'rgb_array' or None; choose one of them"
            )
        self.render_mode = render_mode
        self.metadata = {  # type: ignore[misc]
            "render_modes": ["rgb_array"],
            "render_fps": EMULATOR_FRAMES_PER_SECOND / self.preset.frame_skip,
        }
        self._ale: Any = _new_emulator(self.preset)
        self._unused_emulator_seed: int | None = None
        self._seed_emulator(self._pending_seed)
        self._screen = Screen(self._ale, self.preset)
        in_full = self.preset.action_set == "full"
        actions = self._ale.getLegalActionSet() if in_full else self._ale.getMinimalActionSet()
        self._emulator_actions = tuple(int(action.value) for action in actions)
        self._opening_steps = self._find_opening_steps()
        self.action_space = gymnasium.spaces.Discrete(len(self._emulator_actions))
        self.observation_space = gymnasium.spaces.Box(0, 255, self.preset.frame_shape, np.uint8)
        self._phase: Phase = "unstarted"
        self._held_action = int(ale_py.Action.NOOP.value)
        self._score, self._agent_steps = 0.0, 0
        self._ended_in_reset: dict[str, float] | None = None

    @property
    def game(self) -> str:
        """The game's name as Gymnasium writes it, such as ``SpaceInvaders``."""
        return title(self.rom)

    def action_meanings(self) -> list[str]:
        """Name what each action does, in order: ``NOOP``, ``FIRE``, ``UP``, ..."""
        return [ale_py.Action(action).name for action in self._emulator_actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Start a new game, or go on after a lost life; returns the first frame and ``info``.

        A seed sets both generators, the emulator's and this environment's. Without one the first reset takes the seed
        that the environment was made with, and later ones go on drawing. ``options`` are not used.
        """
        self._require_open()
        seed = checked_seed(seed)
        if seed is None and self._phase == "unstarted":
            seed = self._pending_seed
        super().reset(seed=seed, options=options)
        self._ended_in_reset = None
        if seed is None and self._phase == "life_lost":
            self._play_noop_steps()
        else:
            if seed is not None:
                self._seed_emulator(seed)
            self._start_game()
        self._play_opening_steps()
        self._phase = "running"
        info = self._info()
        if self._ended_in_reset:
            info["episode"] = self._ended_in_reset
        return self._screen.frame(), info

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold an action for the preset's frame skip; returns frame, reward, terminated, truncated and ``info``.

        Raises:
            InvalidStepError: the action is none of the action space, or the episode is over; nothing has happened.
        """
        emulator_action = self._emulator_actions[self._checked(action)]
        self._require_running()
        ale = self._ale
        lives = ale.lives()
        reward = self._hold(emulator_action)
        self._agent_steps += 1
        terminated, truncated = ale.game_over(False), ale.game_truncated()
        info = self._info()
        if terminated or truncated:
            self._phase = "over"
            info["episode"] = {"r": self._score, "l": self._agent_steps}
        elif self._has_lost_life(lives):
            self._phase = "life_lost"
            terminated = True
        limit = self.preset.reward_limit
        clipped = reward if limit is None else min(max(reward, -limit), limit)
        return self._screen.frame(), clipped, terminated, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Give the screen in colour, ``uint8`` of about (210, 160, 3), or ``None`` without a render mode.

        After `load_state_dict` it is the old screen until the next step or new game: the emulator draws only as it
        runs.
        """
        self._require_open()
        return self._ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Let the emulator go; more than once does no harm."""
        self._phase = "unstarted"
        self._ale = None

    def state_dict(self) -> dict[str, Any]:
        """Everything that the future depends on, as ints, floats, strings, bytes, arrays and dicts of them.

        Another `AtariEnv` of the same game and preset that takes it in, in another process too, gives bit for bit what
        this one will give. Qbert and Tetris are the exceptions: ale-py 0.12.1 does not restore them exactly.
        The action space's own generator (``action_space.sample``) is not part of it.
        """
        self._require_open()
        return {
            "rom": self.rom,
            "preset": self.preset.to_dict(),
            "phase": self._phase,
            "emulator": self._ale.cloneState(include_rng=True).serialize(),
            "held_action": self._held_action,
            "frame": self._screen.frame(),
            "score": self._score,
            "agent_steps": self._agent_steps,
            "pending_seed": self._pending_seed,
            "generator": None if self._phase == "unstarted" else generator_state(self.np_random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave, in this or another process; a ``UserWarning`` where not exactly.

        Raises:
            IncompatibleError: the state is of another game or preset, or not of this kind; nothing has changed.
        """
        self._require_open()
        check_state(state, self.rom, self.preset)
        if self.rom in GAMES_NOT_RESTORED:
            warnings.warn(
                f"{self.game} is not restored exactly by ale-py {ale_py.__version__}: what follows is a valid game, "
                "but another one than without the interruption",
                stacklevel=2,
            )
        if state["generator"] is not None:
            self.np_random = generator_from(state["generator"])
        self._ale.restoreState(ale_py.ALEState(state["emulator"]))
        self._unused_emulator_seed = None
        self._phase = state["phase"]
        self._held_action = int(state["held_action"])
        self._screen.restore(state["frame"])
        self._score, self._agent_steps = float(state["score"]), int(state["agent_steps"])
        self._pending_seed = state["pending_seed"]

    def _seed_emulator(self, seed: int) -> None:
        of_emulator = emulator_seed(seed)
        if of_emulator != self._unused_emulator_seed:
            self._ale.setInt("random_seed", of_emulator)
            self._ale.loadROM(roms.get_rom_path(self.rom))  # the emulator looks at its seed only here: some 50 ms
            self._unused_emulator_seed = of_emulator

    def _find_opening_steps(self) -> tuple[int, ...]:
        has_fire = int(ale_py.Action.FIRE.value) in self._emulator_actions
        if self.preset.opening != "fire_steps" or not has_fire or len(self._emulator_actions) < 3:
            return ()
        return int(ale_py.Action.FIRE.value), self._emulator_actions[2]

    def _start_game(self) -> None:
        self._score, self._agent_steps = 0.0, 0
        self._unused_emulator_seed = None
        self._restart_emulator()
        preset = self.preset
        num_noops = int(self.np_random.integers(1, preset.max_noops + 1)) if preset.max_noops else 0
        fires = preset.opening == "fire_frame" and int(ale_py.Action.FIRE.value) in self._emulator_actions
        for _ in range(num_noops - fires):
            self._run_one_frame(ale_py.Action.NOOP)
        if fires:
            self._run_one_frame(ale_py.Action.FIRE)

    def _play_opening_steps(self) -> None:
        for action in self._opening_steps:
            lives = self._ale.lives()
            if self._keeps_running(action) and self._has_lost_life(lives):
                self._play_noop_steps()

    def _play_noop_steps(self) -> None:
        for _ in range(self.preset.noop_steps_after_life_loss):
            if not self._keeps_running(int(ale_py.Action.NOOP.value)):
                return

    def _keeps_running(self, emulator_action: int) -> bool:
        """Play an agent step within a reset; False where it ended the game, and then a new one has been started."""
        self._hold(emulator_action)
        if not self._ale.game_over():
            return True
        if self._agent_steps:
            self._ended_in_reset = {"r": self._score, "l": self._agent_steps}
        self._start_game()
        return False

    def _has_lost_life(self, lives_before: int) -> bool:
        lives, rule = self._ale.lives(), self.preset.life_loss
        return (lives < lives_before) and (rule == "terminates" or (rule == "terminates_after_step" and lives > 0))

    def _restart_emulator(self) -> None:
        self._ale.reset_game()
        self._held_action = int(ale_py.Action.NOOP.value)
        self._screen.begin_step()
        self._screen.read()

    def _run_one_frame(self, action: ale_py.Action) -> None:
        self._held_action = int(action.value)
        self._score += self._ale.act(self._held_action)
        if self.preset.reset_frame == "last":
            self._screen.begin_step()
        self._screen.read()
        if self._ale.game_over():
            self._score = 0.0
            self._restart_emulator()

    def _hold(self, emulator_action: int) -> float:
        """Run the emulator for one agent step, cut short where the episode ends; gives the raw reward."""
        ale, read = self._ale, self._screen.read
        act, game_over = ale.act, ale.game_over
        ends_with_life, lives = self.preset.life_loss == "terminates", ale.lives()
        held_action, reward = self._held_action, 0
        self._screen.begin_step()
        for sticks in self._drawn_sticks():
            if not sticks:
                held_action = emulator_action
            reward += act(held_action)
            read()
            if game_over() or (ends_with_life and ale.lives() < lives):
                break
        self._held_action = held_action
        self._score += reward
        return float(reward)

    def _drawn_sticks(self) -> Sequence[bool]:
        """Whether each emulator frame of a step repeats the action executed last (Machado et al. 2018).

        All are drawn, also where the step ends early: the next step's then do not depend on how this one ended.
        """
        probability, frame_skip = self.preset.sticky_probability, self.preset.frame_skip
        if probability == 0.0:
            return (False,) * frame_skip
        draw = self.np_random.random
        return [draw() < probability for _ in range(frame_skip)]  # one by one: an array of four takes twice as long

    def _info(self) -> dict[str, Any]:
        return {"lives": self._ale.lives(), "episode_frame_number": self._ale.getEpisodeFrameNumber()}

    def _checked(self, action: np.int64 | int) -> int:
        count = len(self._emulator_actions)
        number = action.item() if type(action) is np.int64 else action  # what spaces and vector environments give
        if type(number) is int and 0 <= number < count:
            return number
        if isinstance(action, np.ndarray) and action.ndim == 0:
            action = action[()]
        if isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer)) or not 0 <= action < count:
            raise InvalidStepError(
                f"action is {action!r}: {self.game} with {self.preset.action_set} actions takes whole numbers from 0 "
                f"to {count - 1}; draw from action_space"
            )
        return int(action)

    def _require_running(self) -> None:
        if self._phase != "running":
            self._require_open()
            raise InvalidStepError(f"episode of {self.game} is {self._phase}: a step needs a running one; call reset()")

    def _require_open(self) -> None:
        if self._ale is None:
            raise InvalidStepError(f"environment of {self.game} is closed: it plays no more; make a new one")


def _new_emulator(preset: Preset) -> ale_py.ALEInterface:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", preset.max_episode_frames)
    return ale
