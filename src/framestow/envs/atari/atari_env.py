"""Play one Atari game as a Gymnasium environment; the last frame of a game is the true one."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal, TypeAlias

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt

from framestow.checks import check_seed
from framestow.envs.atari.emulator import FIRE, NOOP, Emulator
from framestow.envs.atari.games import GAMES_NOT_RESTORED, find_rom, title
from framestow.envs.atari.old_names import check_old_name
from framestow.envs.atari.presets import Preset, PresetName, differing_fields, find_preset
from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError
from framestow.interface import one_line
from framestow.keywords import suggests_keywords

EMULATOR_FRAMES_PER_SECOND = 60
RenderMode: TypeAlias = Literal["rgb_array"]
# ``life_lost``: the episode is over and the game continues at the next reset. ``over``: the game has ended.
Phase = Literal["unstarted", "running", "life_lost", "over"]

# Entries of ``state_dict``.
_KEYS = frozenset(
    ("rom", "preset", "phase", "emulator", "held_action", "frame", "score", "agent_steps", "pending_seed", "generator")
)

# Fields of a preset that change no frame, reward or end of an episode.
_FIELDS_OUTSIDE_THE_ENV = frozenset(("name", "source", "stack_padding", "evaluation_epsilon"))


def check_render_mode(render_mode: Any) -> None:
    """Raise ``InvalidSettingsError`` unless Atari environments can render like this."""
    if render_mode is not None and not (isinstance(render_mode, str) and render_mode == "rgb_array"):
        raise InvalidSettingsError(f"render_mode is {render_mode!r}: it must be 'rgb_array' or None")


@suggests_keywords
class AtariEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """An Atari game with the settings of a preset; an observation is one frame, ``uint8`` of the preset's shape.

    ``step`` repeats the action for the preset's frame skip. The frame is the maximum of the last two raw frames *of
    that step*, also if the game ends early; ``Screen`` has the table. The memory or the ``Recorder`` makes the stacks.

    With some presets a lost life ends the episode but not the game. The next ``reset`` then continues the game, with
    the preset's no-op steps and opening. Without these it returns the frame of the lost life. Any other ``reset``, and
    every reset with a seed, starts a new game.

    ``info`` holds ``lives`` and ``episode_frame_number`` (emulator frames of this game). When the game ends, it also
    holds ``episode``: ``{"r": unclipped score, "l": agent steps}``, over all lives. A game that ends within the steps
    of a reset is reported by that reset.

    Arguments:
        game: name in any spelling, such as ``Breakout`` or ``ALE/Breakout-v5``.
        preset: name of a preset, or a ``Preset``.
        seed: seed of the first reset that has none of its own; ``None`` takes a random one.
        render_mode: ``"rgb_array"`` or ``None``.

    Raises:
        UnknownGameError: the game is unknown; the message names the nearest games.
        InvalidSettingsError: an unknown preset, render mode or seed; or an old name, such as
            ``BreakoutDeterministic-v4``, whose rules the preset lacks.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}  # type: ignore[misc]

    def __init__(
        self,
        game: str,
        preset: PresetName | Preset = "machado2018",
        seed: int | None = None,
        *,
        render_mode: RenderMode | None = None,
    ) -> None:
        self.preset = find_preset(preset)
        check_old_name(game, self.preset)
        self.rom = find_rom(game)
        first_seed = check_seed(seed)
        # Seed of the first reset that gives none.
        self._pending_seed = int(np.random.SeedSequence(first_seed).entropy)  # type: ignore[arg-type]
        check_render_mode(render_mode)
        self.render_mode = render_mode
        self.metadata = {  # type: ignore[misc]
            "render_modes": ["rgb_array"],
            "render_fps": EMULATOR_FRAMES_PER_SECOND / self.preset.frame_skip,
        }
        # The emulator and what it displays; None once the environment is closed.
        self._emulator: Any = Emulator(self.rom, self.preset, self._pending_seed)
        # By action of the action space, the number that the emulator takes.
        self._emulator_actions = self._emulator.actions
        # Emulator actions of the steps that begin an episode; empty with most presets.
        self._opening_steps = self._find_opening_steps()
        self.action_space = gymnasium.spaces.Discrete(len(self._emulator_actions))
        self.observation_space = gymnasium.spaces.Box(0, 255, self.preset.frame_shape, np.uint8)
        self._phase: Phase = "unstarted"
        self._agent_steps = 0  # of the game, over all lives
        # ``info["episode"]`` of a game that ended within the steps of the last reset; None if none did.
        self._ended_in_reset: dict[str, float] | None = None

    def __repr__(self) -> str:
        return one_line(self, lambda: (self.game, self.preset.name))

    __str__ = __repr__  # Gymnasium's is <AtariEnv instance>

    @property
    def game(self) -> str:
        """Name of the game as Gymnasium writes it, such as ``SpaceInvaders``."""
        return title(self.rom)

    def action_meanings(self) -> list[str]:
        """Return the names of all actions in order: ``NOOP``, ``FIRE``, ``UP``, ..."""
        return [ale_py.Action(action).name for action in self._emulator_actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Start a new game, or continue it after a lost life; return the first frame and ``info``.

        Arguments:
            seed: Sets the generators of the emulator and of this environment. ``None`` takes the constructor's seed at
                the first reset, and keeps the generators as they are later.
            options: Not used.
        """
        self._require_open()
        seed = check_seed(seed)
        if seed is None and self._phase == "unstarted":
            seed = self._pending_seed
        super().reset(seed=seed, options=options)
        self._ended_in_reset = None
        if seed is None and self._phase == "life_lost":
            self._play_noop_steps()
        else:
            if seed is not None:
                self._emulator.seed(seed)
            self._start_game()
        self._play_opening_steps()
        self._phase = "running"
        info = self._info()
        if self._ended_in_reset:
            info["episode"] = self._ended_in_reset
        return self._emulator.screen.frame(), info

    def step(self, action: np.int64 | int) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Repeat an action for the preset's frame skip; return frame, reward, terminated, truncated and ``info``.

        Raises:
            InvalidStepError: the action is not in the action space, or no episode is running; the game is unchanged.
        """
        emulator_action = self._emulator_actions[self._action_index(action)]
        self._require_running()
        emulator, ale = self._emulator, self._emulator.ale
        lives = ale.lives()
        reward = emulator.play(emulator_action, self.np_random)
        self._agent_steps += 1
        terminated, truncated = ale.game_over(False), ale.game_truncated()
        info = self._info()
        if terminated or truncated:
            self._phase = "over"
            info["episode"] = {"r": emulator.score, "l": self._agent_steps}
        elif emulator.ends_episode(lives):
            self._phase = "life_lost"
            terminated = True
        limit = self.preset.reward_limit
        clipped = reward if limit is None else min(max(reward, -limit), limit)
        return emulator.screen.frame(), clipped, terminated, truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return the screen in colour, ``uint8`` of about ``(210, 160, 3)``, or ``None`` without a render mode.

        After ``restore`` it is the old screen until the next step or new game, because the emulator draws only
        while it runs.
        """
        self._require_open()
        return self._emulator.ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Release the emulator; a second call does nothing."""
        self._phase = "unstarted"
        self._emulator = None

    def state(self) -> dict[str, Any]:
        """Return the state of the game as ints, floats, strings, bytes, arrays and dicts of them.

        Another ``AtariEnv`` of the same game and preset continues from it bit for bit, in another process too. The
        state leaves out the generator of ``action_space.sample``.

        Not supported: an exact restore of Qbert and Tetris, with ale-py 0.12.1.
        """
        self._require_open()
        return {
            "rom": self.rom,
            "preset": self.preset.to_dict(),
            "phase": self._phase,
            **self._emulator.state(),
            "agent_steps": self._agent_steps,
            "pending_seed": self._pending_seed,
            "generator": None if self._phase == "unstarted" else dict(self.np_random.bit_generator.state),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a ``state`` of the same game and preset, from this or another process.

        A ``UserWarning`` says if ale-py does not restore the game exactly.

        Raises:
            IncompatibleError: the state is of another game or preset, or damaged; the environment is unchanged.
        """
        self._require_open()
        _check_state(state, self.rom, self.preset)
        if self.rom in GAMES_NOT_RESTORED:
            warnings.warn(
                f"{self.game} is not restored exactly by ale-py {ale_py.__version__}: the game continues validly, but "
                "not as it would have without the interruption",
                stacklevel=2,
            )
        if state["generator"] is not None:
            self.np_random = _generator_from(state["generator"])
        self._emulator.restore(state)
        self._phase = state["phase"]
        self._agent_steps = int(state["agent_steps"])
        self._pending_seed = state["pending_seed"]

    def _find_opening_steps(self) -> tuple[int, ...]:
        has_fire = FIRE in self._emulator_actions
        if self.preset.opening != "fire_steps" or not has_fire or len(self._emulator_actions) < 3:
            return ()
        return FIRE, self._emulator_actions[2]

    def _start_game(self) -> None:
        self._agent_steps = 0
        self._emulator.start(self.np_random)

    def _play_opening_steps(self) -> None:
        for action in self._opening_steps:
            lives = self._emulator.ale.lives()
            if self._play_step_in_reset(action) and self._emulator.ends_episode(lives):
                self._play_noop_steps()

    def _play_noop_steps(self) -> None:
        for _ in range(self.preset.noop_steps_after_life_loss):
            if not self._play_step_in_reset(NOOP):
                return

    def _play_step_in_reset(self, emulator_action: int) -> bool:
        """Play an agent step within a reset; if it ends the game, start a new one and return False."""
        self._emulator.play(emulator_action, self.np_random)
        if not self._emulator.ale.game_over():
            return True
        if self._agent_steps:
            self._ended_in_reset = {"r": self._emulator.score, "l": self._agent_steps}
        self._start_game()
        return False

    def _info(self) -> dict[str, Any]:
        ale = self._emulator.ale
        return {"lives": ale.lives(), "episode_frame_number": ale.getEpisodeFrameNumber()}

    def _action_index(self, action: np.int64 | int) -> int:
        count = len(self._emulator_actions)
        number = action.item() if type(action) is np.int64 else action  # the type that action spaces sample
        if type(number) is int and 0 <= number < count:
            return number
        if isinstance(action, np.ndarray) and action.ndim == 0:
            action = action[()]
        if isinstance(action, (bool, np.bool_)) or not isinstance(action, (int, np.integer)) or not 0 <= action < count:
            raise InvalidStepError(
                f"action is {action!r}: {self.game} with {self.preset.action_set} actions takes whole numbers from 0 "
                f"to {count - 1}; sample from action_space"
            )
        return int(action)

    def _require_running(self) -> None:
        if self._phase != "running":
            self._require_open()
            raise InvalidStepError(f"episode of {self.game} is {self._phase}: step() needs a running one; call reset()")

    def _require_open(self) -> None:
        if self._emulator is None:
            raise InvalidStepError(f"environment of {self.game} is closed: it cannot be used; make a new one")


def _check_state(state: dict[str, Any], rom: str, preset: Preset) -> None:
    """Raise ``IncompatibleError`` unless the state is of this game and preset."""
    missing = sorted(_KEYS - set(state))
    if missing:
        raise IncompatibleError(f"state has no {missing}: it is not of an AtariEnv; give what state() returned")
    if state["rom"] != rom:
        raise IncompatibleError(f"state is of the game {state['rom']!r}: this is {rom!r}; use the same game")
    differing = differing_fields(state["preset"], preset, ignored=_FIELDS_OUTSIDE_THE_ENV)
    if differing:
        raise IncompatibleError(
            f"state is of the preset {state['preset'].get('name')!r}: it differs in {', '.join(differing)}; "
            "use that preset"
        )
    shape = np.shape(state["frame"])
    if shape != preset.frame_shape:
        raise IncompatibleError(
            f"state has a frame of shape {shape}: it must be {preset.frame_shape}; give what state() returned"
        )
    try:
        ale_py.ALEState(state["emulator"])
    except Exception as error:
        raise IncompatibleError(
            f"state has an emulator part that ale-py cannot read ({error}): it is damaged; give what state() returned"
        ) from error


def _generator_from(state: dict[str, Any]) -> np.random.Generator:
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = state
    return generator
