"""Presets: the settings by which papers and libraries turn an Atari game into an environment.

``docs/environments.md`` compares each preset with its source.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import numpy as np

from framestow.checks import find_by_name, real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import StackPadding

PresetName: TypeAlias = Literal["machado2018", "nature", "baselines", "dopamine", "envpool"]
"""The names of ``PRESETS``."""

_WAY_OUT = "change it with dataclasses.replace"
_BELOW_1 = math.nextafter(1.0, 0.0)


@dataclass(frozen=True)
class Preset:
    """Settings of an Atari environment; ``dataclasses.replace`` makes a variant.

    Raises:
        InvalidSettingsError: a value is out of its range.
    """

    name: str
    """Name of the preset; a run's ``settings.json`` records it."""

    source: str
    """Paper or library that the settings come from."""

    frame_skip: int = 4
    """Emulator frames per agent step; each of them repeats the action."""

    sticky_probability: float = 0.0
    """Probability, at each emulator frame, that the previous action is executed again instead of the chosen one."""

    action_set: Literal["minimal", "full"] = "minimal"
    """The actions that have an effect in this game, or all 18 of the console."""

    life_loss: Literal["ignored", "terminates", "terminates_after_step"] = "ignored"
    """Effect of a lost life. ``"ignored"``: none. ``"terminates"``: the episode ends (``terminated=True``) at the
    emulator frame that lost the life, which cuts the frame skip short. ``"terminates_after_step"``: it ends after the
    whole agent step, and only while lives are left. The next reset then continues the running game."""

    noop_steps_after_life_loss: int = 0
    """Agent steps without action that a reset plays after a lost life. With 0 that reset returns the frame of the
    lost life, and no emulator frame passes."""

    max_noops: int = 0
    """A new game begins with 1 to ``max_noops`` emulator frames without action, drawn uniformly; 0 for none."""

    opening: Literal["none", "fire_frame", "fire_steps"] = "none"
    """Actions that a reset plays after the no-ops, in games with FIRE. ``"fire_frame"``: FIRE for one emulator frame,
    in a new game only, in place of the last no-op. ``"fire_steps"``: FIRE and then the third action, an agent step
    each, at every reset, and only in games with three actions or more."""

    reset_frame: Literal["maximum", "last"] = "maximum"
    """Frame of a reset that ends with no-ops or a FIRE frame: the maximum of its last two raw frames, or the last one
    alone. A reset that ends with an agent step returns the frame of that step."""

    maximum_of: Literal["grey", "rgb"] = "grey"
    """Take the maximum of two raw frames of their grey values, or of each colour before the conversion to grey."""

    resize: Literal["area", "bilinear"] = "area"
    """OpenCV's INTER_AREA (mean over the source area) or INTER_LINEAR (four nearest pixels)."""

    frame_shape: tuple[int, int] = (84, 84)
    """Height and width of a frame in pixels."""

    reward_limit: float | None = None
    """Clip the reward of an agent step to plus and minus this number; ``None`` for no clipping. Scores are never
    clipped."""

    max_episode_frames: int = 18_000
    """Emulator frames after which a game is truncated, no-ops included; 18,000 are five minutes."""

    stack_padding: StackPadding = "first_frame"
    """Padding of a stack at the beginning of an episode. The memory uses it; the environment returns single frames."""

    evaluation_epsilon: float = 0.001
    """Probability of a random action in an evaluation."""

    def __post_init__(self) -> None:
        for field, allowed in _CHOICES.items():
            is_allowed = isinstance(getattr(self, field), str) and getattr(self, field) in allowed
            _require(is_allowed, field, getattr(self, field), f"it must be one of {allowed}")
        for field in ("name", "source"):
            _require(isinstance(getattr(self, field), str), field, getattr(self, field), "it must be a text")
        _check_shape(self.frame_shape)
        object.__setattr__(self, "frame_shape", tuple(map(int, self.frame_shape)))
        for field, least, rule in (
            ("frame_skip", 1, "it must be 1 or more"),
            ("max_noops", 0, "it must be 0 or more"),
            ("noop_steps_after_life_loss", 0, "it must be 0 or more"),
            ("max_episode_frames", 1, "it must be 1 or more"),
        ):
            whole_number(f"preset's {field}", getattr(self, field), least, rule=f"{rule}; {_WAY_OUT}")
        sticky, limit, epsilon = self.sticky_probability, self.reward_limit, self.evaluation_epsilon
        rule = f"it must be a probability from 0 to below 1; {_WAY_OUT}"
        real_number("preset's sticky_probability", sticky, 0, _BELOW_1, rule=rule)
        if limit is not None:
            rule = f"it must be above 0; {_WAY_OUT}"
            real_number("preset's reward_limit", limit, 0, rule=rule, is_least_excluded=True, may_be_infinite=True)
        rule = f"it must be a probability from 0 to 1; {_WAY_OUT}"
        real_number("preset's evaluation_epsilon", epsilon, 0, 1, rule=rule)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain values, for a file; ``Preset(**fields)`` makes the preset again."""
        return {**asdict(self), "frame_shape": list(self.frame_shape)}


_CHOICES = {field: get_args(kind) for field, kind in get_type_hints(Preset).items() if get_origin(kind) is Literal}


def _check_shape(shape: Any) -> None:
    is_pair = isinstance(shape, (tuple, list)) and len(shape) == 2
    is_pair = is_pair and all(isinstance(side, (int, np.integer)) and side >= 1 for side in shape)
    _require(is_pair, "frame_shape", shape, "it must be (height, width), each 1 or more")


def _require(holds: bool, field: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidSettingsError(f"preset's {field} is {value!r}: {rule}; {_WAY_OUT}")


PRESETS: dict[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="machado2018",
            source="Machado et al. 2018, Revisiting the Arcade Learning Environment; frame skip and screen as Dopamine",
            sticky_probability=0.25,
            action_set="full",
        ),
        Preset(
            name="nature",
            source="Mnih et al. 2015, Human-level control through deep reinforcement learning, and its Lua code",
            life_loss="terminates",
            max_noops=30,
            maximum_of="rgb",
            # The Lua code uses image.scale with "bilinear": when it shrinks a picture, Torch averages over the area.
            resize="area",
            reward_limit=1.0,
            stack_padding="zeros",
            evaluation_epsilon=0.05,
        ),
        Preset(
            name="baselines",
            source="OpenAI Baselines, make_atari and wrap_deepmind; Stable-Baselines3's AtariWrapper",
            life_loss="terminates_after_step",
            noop_steps_after_life_loss=1,
            max_noops=30,
            opening="fire_steps",
            reset_frame="last",
            maximum_of="rgb",
            reward_limit=1.0,
            max_episode_frames=108_000,
            # Baselines evaluates with the final epsilon of its training.
            evaluation_epsilon=0.01,
        ),
        Preset(
            name="dopamine",
            source="Castro et al. 2018, Dopamine: AtariPreprocessing with sticky actions, and its runner",
            sticky_probability=0.25,
            reward_limit=1.0,
            max_episode_frames=108_000,
            stack_padding="zeros",
        ),
        Preset(
            name="envpool",
            source="Weng et al. 2022, EnvPool: the defaults of its Atari environments",
            max_noops=30,
            opening="fire_frame",
            reset_frame="last",
            max_episode_frames=108_000,
        ),
    )
}


def find_preset(preset: str | Preset) -> Preset:
    """Return the preset of that name; a ``Preset`` is returned unchanged.

    Raises:
        InvalidSettingsError: no preset has this name; the message gives the nearest name.

    >>> from framestow.envs import find_preset
    >>> find_preset("machado2018").sticky_probability
    0.25
    """
    return preset if isinstance(preset, Preset) else find_by_name("preset", preset, PRESETS)


def differing_fields(
    saved: Mapping[str, Any], preset: Preset, ignored: Collection[str] = ("name", "source")
) -> list[str]:
    """Return the fields in which a preset saved by ``Preset.to_dict`` differs from another, with both values.

    A field that the saved preset lacks, because it is older than the field, counts as its default. Fields in
    ``ignored`` are not compared.

    >>> differing_fields(
    ...     {**find_preset("nature").to_dict(), "max_noops": 7},
    ...     find_preset("nature"),
    ... )
    ['max_noops 7 against 30']
    """
    differing = []
    for field in fields(Preset):
        here = getattr(preset, field.name)
        there = saved.get(field.name, field.default)
        there = tuple(there) if isinstance(there, list) else there
        if field.name not in ignored and there != here:
            differing.append(f"{field.name} {there!r} against {here!r}")
    return differing
