"""Names of games."""

from __future__ import annotations

import re

import pytest

from framestow.envs.atari.games import TWO_PLAYER_ROMS, find_rom, list_games
from framestow.errors import UnknownGameError


@pytest.mark.parametrize(
    ("written", "rom"),
    [
        ("Breakout", "breakout"),
        ("breakout", "breakout"),
        ("space_invaders", "space_invaders"),
        ("SpaceInvaders", "space_invaders"),
        ("space invaders", "space_invaders"),
        ("ALE/Breakout-v5", "breakout"),
        ("BreakoutNoFrameskip-v4", "breakout"),
        ("Ms. Pacman", "ms_pacman"),
        (" Pong ", "pong"),
    ],
)
def test_a_game_is_found_however_people_write_it(written, rom):
    assert find_rom(written) == rom


def test_an_unknown_game_names_the_nearest_ones():
    message = "game 'Brekout' is unknown: ale-py has no such game; did you mean Breakout"

    with pytest.raises(UnknownGameError, match=re.escape(message)):
        find_rom("Brekout")


def test_a_name_unlike_any_game_points_to_the_list_of_games():
    with pytest.raises(
        UnknownGameError,
        match=r"ale-py has no such game; framestow\.envs\.atari\.games\.list_games\(\) lists all games",
    ):
        find_rom("xxxxxxxx")


def test_a_two_player_game_is_refused_because_loading_it_ends_the_process():
    for rom in TWO_PLAYER_ROMS:
        with pytest.raises(UnknownGameError, match="two players"):
            find_rom(rom)


def test_every_known_game_is_found_by_its_own_name():
    assert len(list_games()) > 100
    assert len({find_rom(game) for game in list_games()}) == len(list_games())
