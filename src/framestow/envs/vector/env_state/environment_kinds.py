"""Gymnasium's and ale-py's own things in an environment's state: spaces with their generators, emulators."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium

from framestow.envs.restored_games import GAMES_NOT_RESTORED
from framestow.envs.vector.env_state.plain_values import (
    MISSING,
    Described,
    StateReader,
    StateWriter,
    UnreadableError,
    refused,
)


class Spaces:
    """Spaces, which never change but for the generators that their ``sample`` draws from."""

    name, is_shared = "space", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """Any space, users' own too."""
        return isinstance(value, gymnasium.Space)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe the generators, of the spaces inside too; ``None`` where there is none yet."""
        inside = list(_spaces_in(value))
        generators = [reader.read(vars(space).get("_np_random"), f"the generator of {place}") for space in inside]
        return {"generators": generators}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Give the space that is there, and have its generators follow."""
        spaces = list(_spaces_in(present)) if isinstance(present, gymnasium.Space) else []
        if len(spaces) != len(described["generators"]):
            raise refused(place, f"it was a space of {len(described['generators'])} and is {present!r}")
        for space, generator in zip(spaces, described["generators"], strict=True):
            made = writer.write(generator, MISSING, f"the generator of {place}")
            writer.afterwards(partial(setattr, space, "_np_random", made))
        return present


def _spaces_in(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    """A space and, in a fixed order, all that it is made of."""
    yield space
    for part in vars(space).values():
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else (part,)
        for each in parts:
            if isinstance(each, gymnasium.Space):
                yield from _spaces_in(each)


class Emulators:
    """ale-py's emulators, where the state that they give is the whole of it."""

    name, is_shared = "emulator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        """ale-py's interface."""
        return isinstance(value, ale_py.ALEInterface)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Give the emulator's own state, with its generator."""
        game = _game_of(value)
        if value.getFloat("repeat_action_probability"):
            raise UnreadableError(
                f"{place} is an emulator that repeats actions by chance, and its state leaves out the action it holds"
            )
        if value.getBool("sound_obs") or game in GAMES_NOT_RESTORED:
            raise UnreadableError(f"{place} is an emulator of {game} whose state ale-py does not restore exactly")
        return {"game": game, "state": value.cloneState(include_rng=True).serialize()}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Give the emulator that is there, and have it go on from the state."""
        if not isinstance(present, ale_py.ALEInterface) or _game_of(present) != described["game"]:
            raise refused(place, f"it was an emulator of {described['game']}")
        try:
            state = ale_py.ALEState(described["state"])
        except Exception as error:
            raise refused(place, f"its emulator's part is damaged, {error}") from error
        writer.afterwards(partial(present.restoreState, state))
        return present


def _game_of(emulator: Any) -> str:
    return Path(emulator.getString("rom_file")).stem


ENVIRONMENT_KINDS = (Spaces(), Emulators())
