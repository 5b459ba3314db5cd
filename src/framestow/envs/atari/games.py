"""Find the ROM of an Atari game, whatever the spelling of its name."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache

from ale_py import roms

from framestow.errors import UnknownGameError

GAMES_NOT_RESTORED = ("qbert", "tetris")
"""ROMs that ale-py 0.12.1 does not restore exactly: the restored game takes a different course."""

# ale-py ships these ROMs, but loading one through its single-player interface ends the whole process.
TWO_PLAYER_ROMS = frozenset({"combat", "joust", "maze_craze", "warlords"})

# A game in Gymnasium's spellings, such as ALE/Breakout-v5 and BreakoutNoFrameskip-v4, in lower case.
_GYMNASIUM_NAME = re.compile(r"^(?:ale/)?(?P<game>.+?)(?:noframeskip|deterministic)?(?:-v\d+)?$")


def find_rom(game: str) -> str:
    """Return the name of a game's ROM, whatever the spelling of the game.

    Raises:
        UnknownGameError: the game is unknown (the message names the nearest games), or it needs two players.

    >>> [
    ...     find_rom(game)
    ...     for game in (
    ...         "Breakout",
    ...         "SpaceInvaders",
    ...         "space_invaders",
    ...         "ALE/MsPacman-v5",
    ...     )
    ... ]
    ['breakout', 'space_invaders', 'space_invaders', 'ms_pacman']
    """
    roms_by_key = _roms_by_key()
    match = _GYMNASIUM_NAME.match(str(game).strip().lower())
    key = _letters(match["game"]) if match else ""
    if key in roms_by_key:
        return roms_by_key[key]
    if key in {_letters(rom) for rom in TWO_PLAYER_ROMS}:
        raise UnknownGameError(f"game {game!r} is for two players: ALE's environments have one; choose another game")
    nearest = difflib.get_close_matches(key, roms_by_key, n=4, cutoff=0.5)
    way_out = (
        f"did you mean {_in_words(nearest, roms_by_key)}?"
        if nearest
        else "framestow.envs.atari.games.list_games() lists all games"
    )
    raise UnknownGameError(f"game {game!r} is unknown: ale-py has no such game; {way_out}")


def list_games() -> list[str]:
    """Return the names of all games, as Gymnasium writes them: ``Adventure``, ``AirRaid``, ..."""
    return [title(rom) for rom in sorted(_roms_by_key().values())]


def title(rom: str) -> str:
    """Return the name of a ROM's game as Gymnasium writes it.

    >>> title("space_invaders")
    'SpaceInvaders'
    """
    return rom.title().replace("_", "")


@lru_cache(maxsize=1)
def _roms_by_key() -> dict[str, str]:
    return {_letters(rom): rom for rom in roms.get_all_rom_ids() if rom not in TWO_PLAYER_ROMS}


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name)


def _in_words(keys: list[str], roms_by_key: dict[str, str]) -> str:
    names = [title(roms_by_key[key]) for key in keys]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
