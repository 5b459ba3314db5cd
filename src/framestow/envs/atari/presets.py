"""Named recipes of how an Atari game becomes an environment, as data.

What each takes from its source, and what cannot be identical, stands in ``docs/environments.md``.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

import numpy as np

from framestow.argument_checks import real_number, whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import STACK_PADDINGS, StackPadding

CHANGED = "change it with dataclasses.replace"
BELOW_1 = math.nextafter(1.0, 0.0)


@dataclass(frozen=True)
class Preset:
    """How an Atari game is played and shown; ``dataclasses.replace`` makes a variant.

    Raises:
        InvalidSettingsError: where a value cannot work.
    """

    name: str
    """What the recipe is called; it is written beside whatever was trained with it."""

    source: str
    """Where the recipe comes from."""

    frame_skip: int = 4
    """Emulator frames an agent step: the action is held for so many."""

    sticky_probability: float = 0.0
    """Chance at each emulator frame that the action executed last is executed again, whatever was asked."""

    action_set: Literal["minimal", "full"] = "minimal"
    """The actions that do something in this game, or all 18 of the console."""

    life_loss: Literal["ignored", "terminates", "terminates_after_step"] = "ignored"
    """Whether a lost life ends the episode (``terminated=True``): never; at the emulator frame that lost it, where the
    frame skip stops; or after the whole agent step, and then only while lives are left. The game is not restarted for
    it: the next reset goes on with the running game."""

    noop_steps_after_life_loss: int = 0
    """Agent steps of no action by which the reset after a lost life goes on; with 0 it gives the frame that the life
    was lost with, and no emulator frame passes."""

    max_noops: int = 0
    """A new game begins with 1 to so many emulator frames of no action, uniformly drawn; 0 for none."""

    opening: Literal["none", "fire_frame", "fire_steps"] = "none"
    """What a reset plays after the no-ops, in games that have FIRE: nothing; FIRE for one emulator frame, in a new game
    only and in place of the last no-op; or FIRE and then the third action, an agent step each, at every reset, after a
    lost life too, and only where there are three actions."""

    reset_frame: Literal["maximum", "last"] = "maximum"
    """Whether a reset that ends with no-ops or a FIRE frame shows the maximum of its last two raw frames or the last
    one alone. One that ends with an agent step shows that step's frame."""

    maximum_of: Literal["grey", "rgb"] = "grey"
    """Whether the maximum of two raw frames is taken of their grey values or colour by colour."""

    resize: Literal["area", "bilinear"] = "area"
    """OpenCV's INTER_AREA (mean over the source area) or INTER_LINEAR (four nearest pixels)."""

    frame_shape: tuple[int, int] = (84, 84)
    """Height and width of a frame in pixels."""

    reward_limit: float | None = None
    """An agent step's reward is clipped to plus and minus this; ``None`` leaves it. Scores are never clipped."""

    max_episode_frames: int = 18_000
    """Emulator frames after which a game is truncated, no-ops included; 18,000 are five minutes."""

    stack_padding: StackPadding = "first_frame"
    """What fills the stack where an episode is younger than it. The environment gives single frames and has no use for
    this: it is for the memory that stacks them."""

    evaluation_epsilon: float = 0.001
    """Probability of a random action when what was trained with this is evaluated."""

    def __post_init__(self) -> None:
        choices = {
            "action_set": ("minimal", "full"),
            "life_loss": ("ignored", "terminates", "terminates_after_step"),
            "opening": ("none", "fire_frame", "fire_steps"),
            "reset_frame": ("maximum", "last"),
            "maximum_of": ("grey", "rgb"),
            "resize": ("area", "bilinear"),
            "stack_padding": STACK_PADDINGS,
        }
        for field, allowed in choices.items():
            _require(getattr(self, field) in allowed, field, getattr(self, field), f"it must be one of {allowed}")
        _check_shape(self.frame_shape)
        object.__setattr__(self, "frame_shape", tuple(map(int, self.frame_shape)))
        for field, least, rule in (
            ("frame_skip", 1, "at least one emulator frame is needed"),
            ("max_noops", 0, "it must be 0 or more"),
            ("noop_steps_after_life_loss", 0, "it must be 0 or more"),
            ("max_episode_frames", 1, "it must be 1 or more"),
        ):
            whole_number(f"preset's {field}", getattr(self, field), least, rule=f"{rule}; {CHANGED}")
        sticky, limit, epsilon = self.sticky_probability, self.reward_limit, self.evaluation_epsilon
        real_number("preset's sticky_probability", sticky, 0, BELOW_1, rule=f"0 up to below 1; {CHANGED}")
        if limit is not None:
            rule = f"above 0; {CHANGED}"
            real_number("preset's reward_limit", limit, 0, rule=rule, is_least_excluded=True, may_be_infinite=True)
        real_number("preset's evaluation_epsilon", epsilon, 0, 1, rule=f"it is a probability, 0 to 1; {CHANGED}")

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for a file; ``Preset(**d)`` brings it back."""
        return {**asdict(self), "frame_shape": list(self.frame_shape)}


def _check_shape(shape: Any) -> None:
    is_pair = isinstance(shape, (tuple, list)) and len(shape) == 2
    is_pair = is_pair and all(isinstance(side, (int, np.integer)) and side >= 1 for side in shape)
    _require(is_pair, "frame_shape", shape, "it is (height, width), 1 or more each")


def _require(holds: bool, field: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidSettingsError(f"preset's {field} is {value!r}: {rule}; {CHANGED}")


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
            # The Lua code asks image.scale for "bilinear", which in Torch means the area's mean when it shrinks.
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
            # Its player acts with the epsilon that its training ends with.
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


def differing_fields(theirs: Mapping[str, Any], ours: Preset, but: Collection[str] = ("name", "source")) -> list[str]:
    """Say in which fields a preset written by `Preset.to_dict` differs from another, leaving out those of ``but``.

    A field that it lacks, because it was written before there was one, counts as having its default.

    >>> differing_fields({**find_preset("nature").to_dict(), "max_noops": 7}, find_preset("nature"))
    ['max_noops 7 against 30']
    """
    differing = []
    for field in fields(Preset):
        here = getattr(ours, field.name)
        there = theirs.get(field.name, field.default)
        there = tuple(there) if isinstance(there, list) else there
        if field.name not in but and there != here:
            differing.append(f"{field.name} {there!r} against {here!r}")
    return differing


def find_preset(preset: str | Preset) -> Preset:
    """Give the recipe of that name, or the one handed in; raises `InvalidSettingsError` with the nearest names.

    >>> find_preset("machado2018").sticky_probability
    0.25
    """
    if isinstance(preset, Preset):
        return preset
    if preset in PRESETS:
        return PRESETS[preset]
    nearest = difflib.get_close_matches(str(preset).lower(), PRESETS, n=1, cutoff=0.4)
    way_out = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(map(repr, PRESETS))}"
    raise InvalidSettingsError(f"preset {preset!r} is unknown: it names no recipe; {way_out}")
