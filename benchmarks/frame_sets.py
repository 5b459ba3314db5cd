"""The named sets of frames on which packing is measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from atari_frames import ATARI_100K, GAMES, recorded, recording
from recorded_frames import CONTROL_FRAMES, CONTROL_TASKS, NUM_FRAMES, saved_recording
from scripted_players import SCRIPTED_PLAYERS
from synthetic_frames import SYNTHETIC

Frames = NDArray[np.uint8]  # (num_frames, *frame)


class NotRecordedError(Exception):
    """Frames that another environment records (record_scenes.py) are missing."""


def random_play(game: str) -> Frames:
    return recorded(game)


def scripted_play(game: str) -> Frames:
    return recording(game, is_scripted=True).frames


def scene(name: str, num_frames: int = NUM_FRAMES) -> Frames:
    recording = saved_recording(name, num_frames)
    if recording is None:
        raise NotRecordedError(f"{name} is not recorded: `make scenes` does it")
    return recording.frames


def crafter_start() -> Frames:
    return scene("crafter_colour")[:CONTROL_FRAMES]


def channels_first(name: str, num_frames: int = NUM_FRAMES) -> Frames:
    return np.ascontiguousarray(scene(name, num_frames).transpose(0, 3, 1, 2))


# Per set and name: a function that returns the frames. A name in two sets means the same frames.
FRAME_SETS: dict[str, dict[str, Callable[[], Frames]]] = {
    "the ten": {game: partial(random_play, game) for game in GAMES},
    "Atari-100k": {game: partial(random_play, game) for game in ATARI_100K},
    "scripted": {f"{game}-scripted": partial(scripted_play, game) for game in SCRIPTED_PLAYERS},
    "scenes": {
        "doom_deathmatch_grey": partial(scene, "doom_deathmatch_grey"),
        "doom_deathmatch_colour": partial(scene, "doom_deathmatch_colour"),
        "doom_deathmatch_channels_first": partial(channels_first, "doom_deathmatch_colour"),
        "doom_gathering_grey": partial(scene, "doom_gathering_grey"),
        "doom_gathering_colour": partial(scene, "doom_gathering_colour"),
        "crafter_colour": partial(scene, "crafter_colour"),
        "super_mario_grey": partial(scene, "super_mario_grey"),
        "super_mario_colour": partial(scene, "super_mario_colour"),
        "mini_world_colour": partial(scene, "mini_world_colour"),
    },
    "colour": {
        **{f"{task}_colour": partial(scene, f"{task}_colour", CONTROL_FRAMES) for task in CONTROL_TASKS},
        "walker_channels_first": partial(channels_first, "walker_colour", CONTROL_FRAMES),
        "crafter_colour_start": crafter_start,
    },
    "synthetic": {name: partial(make, NUM_FRAMES) for name, make in SYNTHETIC.items()},
}
