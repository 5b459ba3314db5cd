"""Environments that others wrote, as they come from PyPI; each maker can be imported by a worker process."""

from __future__ import annotations

import os
import warnings
from typing import Any

import gymnasium
from gymnasium.spaces import Box, Dict

EPISODE = 25  # steps at most


class InItsProcess(gymnasium.Wrapper):
    """Tells in which process it plays."""

    @property
    def process_id(self) -> int:
        return os.getpid()


def room() -> gymnasium.Env:
    """MiniGrid as it is: a ``Dict`` of a picture of codes, a direction and a mission, whose space is its own class."""
    import minigrid  # noqa: F401, PLC0415  # registers its environments

    return InItsProcess(gymnasium.make("MiniGrid-FourRooms-v0", max_steps=EPISODE, disable_env_checker=True))


def painted_room() -> gymnasium.Env:
    """MiniGrid in colours, ``Dict`` with a picture of (56, 56, 3)."""
    from minigrid.wrappers import RGBImgPartialObsWrapper  # noqa: PLC0415

    return RGBImgPartialObsWrapper(room())


def picture_of_a_room() -> gymnasium.Env:
    """The picture alone, which a memory takes."""
    from minigrid.wrappers import ImgObsWrapper  # noqa: PLC0415

    return ImgObsWrapper(painted_room())


def fetch() -> gymnasium.Env:
    """MiniGrid with a mission that is another one in each episode."""
    import minigrid  # noqa: F401, PLC0415

    return InItsProcess(gymnasium.make("MiniGrid-Fetch-8x8-N3-v0", max_steps=EPISODE, disable_env_checker=True))


def car_racing() -> gymnasium.Env:
    """CarRacing: pictures of (96, 96, 3), three floats an action."""
    with warnings.catch_warnings():  # what SWIG made warns on import, and dies where that is an error
        warnings.simplefilter("ignore")
        import Box2D  # noqa: F401, PLC0415
    return InItsProcess(gymnasium.make("CarRacing-v3", max_episode_steps=EPISODE, disable_env_checker=True))


def two_pictures() -> gymnasium.Env:
    """CarRacing as a ``Dict`` of the picture, half of it, and the speed: nested, of several dtypes."""
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
