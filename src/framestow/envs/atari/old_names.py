"""Old names of Atari games, such as ``BreakoutDeterministic-v4``, which say rules as well as a game.

=======================================  =======================  ==========================
name                                     frame skip               sticky probability
=======================================  =======================  ==========================
``Breakout-v0``, ``-v4``                 drawn from 2, 3 and 4    0.25 (v0), 0 (v4)
``BreakoutDeterministic-v0``, ``-v4``    4; SpaceInvaders 3       0.25 (v0), 0 (v4)
``BreakoutNoFrameskip-v0``, ``-v4``      1: a wrapper skips       0.25 (v0), 0 (v4)
``Breakout-ram-v0``, ...                 as without ``-ram``      as without ``-ram``
=======================================  =======================  ==========================

All have the minimal action set. The observation of a ``-ram`` name is the console's 128 bytes of RAM. Gymnasium's
documentation of Atari versions is the source. ``ALE/Breakout-v5`` counts as a spelling of the game.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from framestow.envs.atari.games import find_rom, title
from framestow.envs.atari.presets import PRESETS, Preset
from framestow.errors import InvalidSettingsError

FrameSkip = int | tuple[int, int]  # a pair draws from the first number to the second, excluded

_FRAME_SKIPS: dict[str | None, FrameSkip] = {None: (2, 5), "deterministic": 4, "noframeskip": 1}
_STICKY_PROBABILITIES = {"v0": 0.25, "v4": 0.0, "v5": 0.25}
_MAX_EPISODE_FRAMES = 108_000  # emulator frames, as ale-py registers them
_OLD_NAME = re.compile(
    r"(?:ale/)?(?P<game>.+?)(?P<ram>-ram)?(?P<skip>noframeskip|deterministic)?-(?P<version>v[045])", re.IGNORECASE
)


class OldName(NamedTuple):
    """What an old name says."""

    game: str  # as Gymnasium writes it
    frame_skip: FrameSkip
    sticky_probability: float
    is_ram: bool

    def agrees(self, preset: Preset) -> bool:
        """Return whether ``preset`` plays by these rules; to frame skip 1 any wrapper's, or preset's, is added."""
        return (
            not self.is_ram
            and self.frame_skip in (1, preset.frame_skip)
            and self.sticky_probability == preset.sticky_probability
            and preset.action_set == "minimal"
        )

    @property
    def equal_call(self) -> str:
        """Python code that makes the same environment by Gymnasium."""
        ram = ", obs_type='ram'" if self.is_ram else ""
        return (
            f"gymnasium.make('ALE/{self.game}-v5', frameskip={self.frame_skip}, "
            f"repeat_action_probability={self.sticky_probability}{ram})"
        )

    @property
    def equal_preset(self) -> str:
        """Python code that makes a preset with these rules."""
        return (
            f"replace(find_preset('machado2018'), frame_skip={self.frame_skip}, "
            f"sticky_probability={self.sticky_probability}, action_set='minimal', "
            f"max_episode_frames={_MAX_EPISODE_FRAMES:_})"
        )


def find_old_name(game: str) -> OldName | None:
    """Return what an old name says; ``None`` for any other spelling of a game.

    >>> find_old_name("BreakoutDeterministic-v4")
    OldName(game='Breakout', frame_skip=4, sticky_probability=0.0, is_ram=False)
    >>> find_old_name("Breakout"), find_old_name("ALE/Breakout-v5")
    (None, None)

    Raises:
        UnknownGameError: an old name of an unknown game.
    """
    match = _OLD_NAME.fullmatch(str(game).strip())
    if match is None or (match["version"].lower() == "v5" and not match["ram"]):
        return None
    version, skip = match["version"].lower(), match["skip"] and match["skip"].lower()
    rom = find_rom(match["game"])
    frame_skip = 4 if version == "v5" else _FRAME_SKIPS[skip]
    if rom == "space_invaders" and skip == "deterministic":
        frame_skip = 3  # with 4 its shots, which blink, cannot be seen
    return OldName(title(rom), frame_skip, _STICKY_PROBABILITIES[version], bool(match["ram"]))


def check_old_name(game: str, preset: Preset) -> None:
    """Raise ``InvalidSettingsError``, with the call that equals it, for an old name whose rules ``preset`` lacks."""
    old = find_old_name(game)
    if old is None or old.agrees(preset):
        return
    if old.is_ram or not isinstance(old.frame_skip, int):
        lacks = "observes the RAM" if old.is_ram else "draws its frame skip from 2, 3 and 4"
        raise InvalidSettingsError(
            f"game {game!r} {lacks}: framestow's presets have pictures and a fixed frame skip; for the same "
            f"environment use SerialVectorEnv([lambda: {old.equal_call}]), else write {old.game!r}"
        )
    names = [repr(each.name) for each in PRESETS.values() if old.agrees(each)]
    by_name = f"give preset={' or '.join(names)}, or " if names else "give "
    raise InvalidSettingsError(
        f"game {game!r} has frame skip {old.frame_skip}, sticky probability {old.sticky_probability:g} and the minimal "
        f"action set: preset {preset.name!r} has {preset.frame_skip}, {preset.sticky_probability:g} and the "
        f"{preset.action_set} one; {by_name}preset={old.equal_preset}"
    )
