"""Named recipes of how an Atari game becomes an environment, as data.

What each takes from its source, and what cannot be identical, stands in ``docs/environments.md``.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any, Literal

from framestow.errors import InvalidSettingsError


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

    life_loss: Literal["ignored", "terminates"] = "ignored"
    """Whether losing a life ends the episode (``terminated=True``, the frame skip stops there). The game is never
    restarted for it: the next reset goes on with the running game, without an emulator frame in between."""

    max_noops: int = 0
    """A new game begins with 1 to so many emulator frames of no action, uniformly drawn; 0 for none."""

    fire_on_reset: bool = False
    """Whether each reset, after the no-ops, holds FIRE for one agent step where the game has that action."""

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

    def __post_init__(self) -> None:
        choices = {
            "action_set": ("minimal", "full"),
            "life_loss": ("ignored", "terminates"),
            "maximum_of": ("grey", "rgb"),
            "resize": ("area", "bilinear"),
        }
        for field, allowed in choices.items():
            _require(getattr(self, field) in allowed, field, getattr(self, field), f"it must be one of {allowed}")
        shape = tuple(self.frame_shape)
        object.__setattr__(self, "frame_shape", shape)
        _require(self.frame_skip >= 1, "frame_skip", self.frame_skip, "at least one emulator frame is needed")
        _require(0.0 <= self.sticky_probability < 1.0, "sticky_probability", self.sticky_probability, "0 up to below 1")
        _require(self.max_noops >= 0, "max_noops", self.max_noops, "it must be 0 or more")
        _require(len(shape) == 2 and min(shape) >= 1, "frame_shape", shape, "it is (height, width), 1 or more each")
        _require(self.reward_limit is None or self.reward_limit > 0, "reward_limit", self.reward_limit, "above 0")
        _require(self.max_episode_frames >= 1, "max_episode_frames", self.max_episode_frames, "it must be 1 or more")

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for a file; ``Preset(**d)`` brings it back."""
        return {**asdict(self), "frame_shape": list(self.frame_shape)}


def _require(holds: bool, field: str, value: object, rule: str) -> None:
    if not holds:
        raise InvalidSettingsError(f"preset's {field} is {value!r}: {rule}; change it with dataclasses.replace")


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
        ),
    )
}


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
