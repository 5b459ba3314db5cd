"""Frames made from palette numbers equal frames made from ALE's colours with OpenCV."""

from __future__ import annotations

from dataclasses import replace

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import roms

from framestow.envs import PRESETS, Preset, find_preset
from framestow.envs.atari.games import find_rom, list_games
from framestow.envs.atari.screen import Screen

INTERPOLATIONS = {"area": cv2.INTER_AREA, "bilinear": cv2.INTER_LINEAR}
NATURE, MACHADO = find_preset("nature"), find_preset("machado2018")  # maximum colour by colour, and of greys
VARIANTS = [
    replace(MACHADO, name="bilinear", resize="bilinear"),
    replace(NATURE, name="bilinear in colour", resize="bilinear", frame_shape=(105, 80)),
    replace(NATURE, name="by whole factors", frame_shape=(105, 80)),
    replace(MACHADO, name="one axis grows", frame_shape=(300, 84)),
    replace(MACHADO, name="unscaled", frame_shape=(210, 160)),
    replace(NATURE, name="odd", frame_shape=(61, 97)),
]


def plain_frame(preset, raw_frames) -> np.ndarray:
    """Make a frame of ALE's grey or colours, by NumPy's maximum and OpenCV's luminance and resize."""
    picture = np.max([rgb if preset.maximum_of == "rgb" else grey for grey, rgb in raw_frames[-2:]], axis=0)
    if preset.maximum_of == "rgb":
        picture = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    height, width = preset.frame_shape
    return cv2.resize(picture, (width, height), interpolation=INTERPOLATIONS[preset.resize])


def play(game: str, presets: list[Preset], num_steps: int) -> set[int]:
    """Play at random in steps of 1 to 4 raw frames, compare each frame, and return the palette numbers seen."""
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 3)
    ale.loadROM(roms.get_rom_path(find_rom(game)))
    screens = [Screen(ale, preset) for preset in presets]
    generator, numbers = np.random.default_rng(3), set()
    actions = ale.getLegalActionSet()
    for _ in range(num_steps):
        raw_frames, action = [], actions[generator.integers(len(actions))]
        for screen in screens:
            screen.begin_step()
        for _ in range(generator.integers(1, 5)):
            ale.act(action)
            raw_frames.append((ale.getScreenGrayscale(), ale.getScreenRGB()))
            numbers.update(np.unique(ale.getScreen()).tolist())
            for screen in screens:
                screen.read()
        for preset, screen in zip(presets, screens, strict=True):
            assert np.array_equal(plain_frame(preset, raw_frames), screen.frame())
        if ale.game_over():
            ale.reset_game()
    return numbers


@pytest.mark.parametrize("preset", [*PRESETS.values(), *VARIANTS], ids=lambda preset: preset.name)
# Few changes, many, and a screen of 250 rows.
@pytest.mark.parametrize(
    "game", [*(pytest.param(game, marks=pytest.mark.exhaustive) for game in ("Breakout", "Enduro")), "AirRaid"]
)
def test_every_frame_equals_the_one_from_ales_colours(game, preset):
    play(game, [preset], num_steps=100)


@pytest.mark.exhaustive
@pytest.mark.parametrize("game", list_games())
def test_every_frame_of_every_game_equals_the_one_from_ales_colours(game):
    assert len(play(game, [MACHADO, NATURE], num_steps=150)) > 1


def test_the_caller_may_write_to_a_frame_of_the_screen():
    ale = ale_py.ALEInterface()
    ale.loadROM(roms.get_rom_path("pong"))
    screen = Screen(ale, NATURE)
    screen.begin_step()
    ale.act(0)
    screen.read()
    frame = screen.frame()
    expected = frame.copy()

    frame[:] = 1

    assert np.array_equal(expected, screen.frame())
