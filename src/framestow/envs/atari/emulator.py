"""Run the emulator with one Atari game: start games, play agent steps, save and restore its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ale_py
import numpy as np
from ale_py import roms

from framestow.envs.atari.presets import Preset
from framestow.envs.atari.screen import Screen
from framestow.envs.seeding import emulator_seed

NOOP, FIRE = int(ale_py.Action.NOOP.value), int(ale_py.Action.FIRE.value)


class Emulator:
    """The emulator with one game, the score of that game, and the screen that makes frames of raw frames.

    The caller draws with its own generator. This class draws the sticky actions, not the emulator: the emulator's saved
    state leaves out the last action, so a restored game would take a different course (seen with ale-py 0.12.1).

    Arguments:
        rom: name of the ROM.
        preset: settings of the emulator, the screen and the steps.
        seed: seed of the emulator for the first game.
    """

    def __init__(self, rom: str, preset: Preset, seed: int) -> None:
        self._rom, self._preset = rom, preset
        self.ale = _new_emulator(preset)
        self.score = 0.0
        """Sum of the unclipped rewards of the game, over all lives."""
        # Emulator action of the last raw frame, which a sticky action repeats.
        self._last_action = NOOP
        # Seed that the emulator was given and has not used, because no game began since; None otherwise. Setting a seed
        # loads the ROM again.
        self._unused_seed: int | None = None
        self.seed(seed)
        self.screen = Screen(self.ale, preset)
        in_full = preset.action_set == "full"
        actions = self.ale.getLegalActionSet() if in_full else self.ale.getMinimalActionSet()
        self.actions = tuple(int(action.value) for action in actions)
        """The emulator's number of each action of the preset's action set, in order."""

    def seed(self, seed: int) -> None:
        """Load the game with this seed, which the next ``start`` uses."""
        of_emulator = emulator_seed(seed)
        if of_emulator != self._unused_seed:
            self.ale.setInt("random_seed", of_emulator)
            self.ale.loadROM(roms.get_rom_path(self._rom))  # the emulator reads its seed only here; takes about 50 ms
            self._unused_seed = of_emulator

    def start(self, generator: np.random.Generator) -> None:
        """Start a new game, with the preset's number of no-op frames and its FIRE frame."""
        self.score = 0.0
        self._unused_seed = None
        self._restart()
        preset = self._preset
        num_noops = int(generator.integers(1, preset.max_noops + 1)) if preset.max_noops else 0
        fires = preset.opening == "fire_frame" and FIRE in self.actions
        for _ in range(num_noops - fires):
            self._run_one_frame(NOOP)
        if fires:
            self._run_one_frame(FIRE)

    def play(self, action: int, generator: np.random.Generator) -> float:
        """Run the emulator for one agent step, or until the episode ends; return the unclipped reward."""
        ale, read = self.ale, self.screen.read
        act, game_over = ale.act, ale.game_over
        ends_with_life, lives = self._preset.life_loss == "terminates", ale.lives()
        last_action, reward = self._last_action, 0
        self.screen.begin_step()
        for sticks in self._draw_sticks(generator):
            if not sticks:
                last_action = action
            reward += act(last_action)
            read()
            if game_over() or (ends_with_life and ale.lives() < lives):
                break
        self._last_action = last_action
        self.score += reward
        return float(reward)

    def ends_episode(self, lives_before: int) -> bool:
        """Return whether the preset ends the episode by a life lost in a step that began with ``lives_before``."""
        lives, rule = self.ale.lives(), self._preset.life_loss
        return (lives < lives_before) and (rule == "terminates" or (rule == "terminates_after_step" and lives > 0))

    def state(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "emulator": self.ale.cloneState(include_rng=True).serialize(),
            "held_action": self._last_action,
            "frame": self.screen.frame(),
            "score": self.score,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a ``state`` of the same game and preset."""
        self.ale.restoreState(ale_py.ALEState(state["emulator"]))
        self._unused_seed = None
        self._last_action = int(state["held_action"])
        self.screen.restore(state["frame"])
        self.score = float(state["score"])

    def _restart(self) -> None:
        self.ale.reset_game()
        self._last_action = NOOP
        self.screen.begin_step()
        self.screen.read()

    def _run_one_frame(self, action: int) -> None:
        self._last_action = action
        self.score += self.ale.act(action)
        if self._preset.reset_frame == "last":
            self.screen.begin_step()
        self.screen.read()
        if self.ale.game_over():
            self.score = 0.0
            self._restart()

    def _draw_sticks(self, generator: np.random.Generator) -> Sequence[bool]:
        """Draw for each emulator frame whether it repeats the previous action (Machado et al. 2018).

        A step that ends early draws for all frames, so that the draws of the next step do not depend on it.
        """
        probability, frame_skip = self._preset.sticky_probability, self._preset.frame_skip
        if probability == 0.0:
            return (False,) * frame_skip
        draw = generator.random
        return [draw() < probability for _ in range(frame_skip)]  # drawing an array of four takes twice as long


def _new_emulator(preset: Preset) -> Any:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("max_num_frames_per_episode", preset.max_episode_frames)
    return ale
