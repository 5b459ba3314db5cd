"""State of an environment, layer by layer: the environment itself and each wrapper around it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium

from framestow.envs.atari.games import GAMES_NOT_RESTORED
from framestow.envs.vector.plain_values import (
    MISSING,
    PYTHON_KINDS,
    Described,
    PlainObjects,
    StateReader,
    StateWriter,
    UnreadableError,
    keeps_all_in_attributes,
    path_of,
    plain_copy,
    refused,
)
from framestow.errors import IncompatibleError


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


_KINDS = (*ENVIRONMENT_KINDS, *PYTHON_KINDS, PlainObjects())
# What an environment was made with, and Gymnasium's record of it: the same in the one that takes the state.
_MADE_WITH = frozenset(
    ("env", "spec", "_cached_spec", "metadata", "_metadata", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs")
)
_START_TIME = "episode_start_time"  # of RecordEpisodeStatistics: means something in its own process only


def take_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Everything that the future of an environment with its wrappers depends on; ``None`` where that cannot be read.

    It holds numbers, text, bytes, arrays, and lists and dictionaries of them, all copies: what
    `framestow.training.checkpoint` packs. An environment made alike that takes it by `put_state`, in another process
    too, gives bit for bit what this one will give. `why_no_state` says what stands in the way of one.

    A layer that has ``state_dict`` and ``load_state_dict`` speaks for itself, and for no other layer. Of any other, the
    attributes are read: plain values, arrays, containers, random generators, enumerations, the generators of spaces,
    ale-py emulators, and plain objects of classes from the environment's own package.
    Rather none than a wrong one: an attribute of any other kind, arrays that overlap, sets (whose order is part of a
    course and would change) and compiled objects mean that there is no state. What environments share with one another
    in their classes or modules cannot be seen.
    """
    return _read_layers(env)[0]


def why_no_state(env: gymnasium.Env[Any, Any]) -> str:
    """Say which part of an environment has no state that can be read; empty where all of it has."""
    return _read_layers(env)[1]


def put_state(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    """Have an environment, made like the one that `take_state` was asked about, go on from there.

    Raises:
        IncompatibleError: the state is of other layers, or of the same made with other arguments. Nothing has changed
            then, unless a layer's own ``load_state_dict`` has refused it.
    """
    layers = _layers_of(env)
    described, ours = state.get("layers", []), [path_of(type(layer)) for layer in layers]
    theirs = [layer["class"] for layer in described]
    if theirs != ours:
        raise IncompatibleError(f"state is of {theirs}, outermost first: this is {ours}; make the environment alike")
    writer = StateWriter(layers, _KINDS)
    try:
        written = [_written(writer, layer, each["attributes"]) for layer, each in zip(layers, described, strict=True)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, IncompatibleError):
            raise
        raise IncompatibleError(f"state cannot be read, {error!r}: it is damaged; take it from a copy") from error
    for layer, each in zip(reversed(layers), reversed(described), strict=True):
        if each["own"] is not None:
            layer.load_state_dict(plain_copy(each["own"], path_of(type(layer))))
    for layer, each, attributes in zip(layers, described, written, strict=True):
        _set_attributes(layer, attributes, speaks_for_itself=each["own"] is not None)
    writer.finish()


def _layers_of(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Env[Any, Any]]:
    """The outermost wrapper first, the environment itself last."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def _read_layers(env: gymnasium.Env[Any, Any]) -> tuple[dict[str, Any] | None, str]:
    layers = _layers_of(env)
    reader = StateReader(layers, _KINDS)
    try:
        return {"layers": [_read_layer(reader, layer) for layer in layers]}, ""
    except UnreadableError as reason:
        return None, str(reason)
    except RecursionError:
        return None, f"{path_of(type(env))} holds values nested too deep"
    except Exception as error:  # of a user's object that does not even let itself be looked at
        return None, f"{path_of(type(env))} raised {error!r} while it was read"


def _read_layer(reader: StateReader, layer: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    kind = type(layer)
    attributes = {name: value for name, value in getattr(layer, "__dict__", {}).items() if name not in _MADE_WITH}
    own = None
    if hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict"):
        own = _own_state(layer)
        attributes = {name: value for name, value in attributes.items() if _is_gymnasiums(name, value)}
    elif not keeps_all_in_attributes(kind):
        raise UnreadableError(f"{path_of(kind)} keeps values outside of its attributes")
    elif isinstance(layer, gymnasium.wrappers.RecordEpisodeStatistics):
        attributes[_START_TIME] = time.perf_counter() - attributes[_START_TIME]
    elif isinstance(layer, gymnasium.wrappers.PassiveEnvChecker) and attributes.get("_previous_data") is not None:
        # It only compares two steps' arrays, by identity: a course has nothing of it, and no copy would do.
        attributes |= {"checked_step": True, "checked_data_reuse": True, "_previous_data": None}
    described = {name: reader.read(value, f"{kind.__qualname__}.{name}") for name, value in attributes.items()}
    return {"class": path_of(kind), "own": own, "attributes": described}


def _own_state(layer: Any) -> Any:
    place = f"{type(layer).__qualname__}.state_dict()"
    try:
        own = layer.state_dict()
    except Exception as error:
        raise UnreadableError(f"{place} raised {error!r}") from error
    return plain_copy(own, place)


def _is_gymnasiums(name: str, value: Any) -> bool:
    """What every environment has from Gymnasium, and a ``state_dict`` written for one class forgets."""
    return name in ("_np_random", "_np_random_seed") or isinstance(value, gymnasium.Space)


def _written(writer: StateWriter, layer: gymnasium.Env[Any, Any], described: dict[str, Any]) -> dict[str, Any]:
    present, place = getattr(layer, "__dict__", {}), type(layer).__qualname__
    written = {
        name: writer.write(each, present.get(name, MISSING), f"{place}.{name}") for name, each in described.items()
    }
    if isinstance(layer, gymnasium.wrappers.RecordEpisodeStatistics):
        written[_START_TIME] = time.perf_counter() - written[_START_TIME]
    return written


def _set_attributes(layer: gymnasium.Env[Any, Any], attributes: dict[str, Any], speaks_for_itself: bool) -> None:
    if not speaks_for_itself:
        for name in [name for name in vars(layer) if name not in attributes and name not in _MADE_WITH]:
            del vars(layer)[name]
    if attributes:
        vars(layer).update(attributes)
