"""Environments of other packages; worker processes can import each function that makes one."""

from __future__ import annotations

import os
import warnings
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict

EPISODE = 25  # steps at most


class InItsProcess(gymnasium.Wrapper):
    """Report the id of the process it runs in."""

    @property
    def process_id(self) -> int:
        return os.getpid()


def room() -> gymnasium.Env:
    """Make MiniGrid unchanged: a ``Dict`` of an image of codes, a direction and a mission of a custom space."""
    import minigrid  # noqa: F401, PLC0415  # registers its environments

    return InItsProcess(gymnasium.make("MiniGrid-FourRooms-v0", max_steps=EPISODE, disable_env_checker=True))


def painted_room() -> gymnasium.Env:
    """Make MiniGrid in colours: a ``Dict`` with an image of (56, 56, 3)."""
    from minigrid.wrappers import RGBImgPartialObsWrapper  # noqa: PLC0415

    return RGBImgPartialObsWrapper(room())


def picture_of_a_room() -> gymnasium.Env:
    """Make MiniGrid with the image alone, which a memory can store."""
    from minigrid.wrappers import ImgObsWrapper  # noqa: PLC0415

    return ImgObsWrapper(painted_room())


def fetch() -> gymnasium.Env:
    """Make MiniGrid with another mission in each episode."""
    import minigrid  # noqa: F401, PLC0415

    return InItsProcess(gymnasium.make("MiniGrid-Fetch-8x8-N3-v0", max_steps=EPISODE, disable_env_checker=True))


def car_racing() -> gymnasium.Env:
    """Make CarRacing: images of (96, 96, 3), actions of three floats."""
    with warnings.catch_warnings():  # modules made by SWIG warn on import
        warnings.simplefilter("ignore")
        import Box2D  # noqa: F401, PLC0415
    return InItsProcess(gymnasium.make("CarRacing-v3", max_episode_steps=EPISODE, disable_env_checker=True))


def two_pictures() -> gymnasium.Env:
    """Make CarRacing with a nested ``Dict`` of the image, half of it and the speed, of several dtypes."""
    env = car_racing()
    space = Dict(
        {
            "picture": env.observation_space,
            "near": Dict({"half": Box(0, 255, (48, 96, 3), "uint8"), "speed": Box(0, 1e9, (1,), "float32")}),
        }
    )
    return gymnasium.wrappers.TransformObservation(env, _two_pictures, space)


def _two_pictures(picture: Any) -> dict[str, Any]:
    return {"picture": picture, "near": {"half": picture[48:], "speed": picture[90:, 10:20].mean(dtype="f4")[None]}}
