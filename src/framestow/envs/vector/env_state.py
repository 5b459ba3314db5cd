"""Save and restore the state of any environment, layer by layer: the environment and its wrappers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from framestow.envs.vector.plain_values import (
    MISSING,
    PYTHON_KINDS,
    Described,
    Kind,
    PlainObjectKind,
    StateReader,
    StateWriter,
    UnreadableError,
    has_only_attributes,
    incompatible,
    path_of,
    plain_copy,
)
from framestow.errors import IncompatibleError


class SpaceKind(Kind):
    """Spaces; their only state is the random generator of ``sample``."""

    name, is_shared = "space", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return isinstance(value, gymnasium.Space)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:
        """Describe the generators of the space and of its parts; ``None`` for a generator not made yet."""
        inside = list(_spaces_in(value))
        generators = [reader.read(vars(space).get("_np_random"), f"the generator of {place}") for space in inside]
        return {"generators": generators}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        """Return ``present``, and defer setting its generators."""
        spaces = list(_spaces_in(present)) if isinstance(present, gymnasium.Space) else []
        if len(spaces) != len(described["generators"]):
            raise incompatible(place, f"it was a space of {len(described['generators'])} and is {present!r}")
        for space, generator in zip(spaces, described["generators"], strict=True):
            made = writer.write(generator, MISSING, f"the generator of {place}")
            writer.defer(partial(setattr, space, "_np_random", made))
        return present


def _spaces_in(space: gymnasium.Space[Any]) -> Iterator[gymnasium.Space[Any]]:
    """Yield a space and all its parts in a fixed order."""
    yield space
    for part in vars(space).values():
        parts = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else (part,)
        for each in parts:
            if isinstance(each, gymnasium.Space):
                yield from _spaces_in(each)


class EmulatorKind(Kind):
    """ale-py emulators whose saved state is complete."""

    name, is_shared = "emulator", True

    def has(self, value: Any, reader: StateReader) -> bool:  # noqa: ARG002
        return _is_emulator(value)

    def read(self, value: Any, place: str, reader: StateReader) -> Described:  # noqa: ARG002
        """Describe the emulator by its serialized state, random generator included."""
        from framestow.envs.atari.games import GAMES_NOT_RESTORED  # noqa: PLC0415  # needs ale-py, which is optional here

        game = _game_of(value)
        if value.getFloat("repeat_action_probability"):
            raise UnreadableError(
                f"{place} is an emulator with sticky actions, and its state leaves out the last action"
            )
        if value.getBool("sound_obs") or game in GAMES_NOT_RESTORED:
            raise UnreadableError(f"{place} is an emulator of {game} whose state ale-py does not restore exactly")
        return {"game": game, "state": value.cloneState(include_rng=True).serialize()}

    def write(self, described: Described, present: Any, place: str, writer: StateWriter) -> Any:
        if not _is_emulator(present) or _game_of(present) != described["game"]:
            raise incompatible(place, f"it was an emulator of {described['game']}")
        try:
            state = sys.modules["ale_py"].ALEState(described["state"])
        except Exception as error:
            raise incompatible(place, f"the state of its emulator is damaged, {error}") from error
        writer.defer(partial(present.restoreState, state))
        return present


def _is_emulator(value: Any) -> bool:
    ale_py = sys.modules.get("ale_py")  # an emulator can only exist once ale-py is imported
    return ale_py is not None and isinstance(value, ale_py.ALEInterface)


def _game_of(emulator: Any) -> str:
    return Path(emulator.getString("rom_file")).stem


_KINDS = (SpaceKind(), EmulatorKind(), *PYTHON_KINDS, PlainObjectKind())
# Arguments of an environment, and Gymnasium's record of them: equal in the environment that loads the state.
_CONSTRUCTION = frozenset(
    ("env", "spec", "_cached_spec", "metadata", "_metadata", "_saved_kwargs", "_ezpickle_args", "_ezpickle_kwargs")
)
_START_TIME = "episode_start_time"  # of RecordEpisodeStatistics: valid in one process only


def take_state(env: gymnasium.Env[Any, Any]) -> dict[str, Any] | None:
    """Return the complete state of an environment with its wrappers, or ``None`` if part of it cannot be read.

    The state is a copy made of numbers, text, bytes, arrays, and lists and dictionaries of them. An environment made
    with the same arguments continues from it bit for bit after `put_state`, in another process too. `why_no_state`
    names the part that cannot be read.

    A layer with ``state_dict`` and ``load_state_dict`` is saved by them. Of any other layer the attributes are read:
    plain values, arrays, containers, random generators, enumerations, generators of spaces, ale-py emulators, and
    plain objects of the environment's own package.

    Not supported: attributes of any other type, overlapping arrays, sets (their order would change) and compiled
    objects. Not detected: values that environments share in their classes or modules.
    """
    return _read_layers(env)[0]


def why_no_state(env: gymnasium.Env[Any, Any]) -> str:
    """Return which part of an environment cannot be read; empty if all of it can."""
    return _read_layers(env)[1]


def put_state(env: gymnasium.Env[Any, Any], state: dict[str, Any]) -> None:
    """Restore a state of `take_state` in an environment that was made with the same arguments.

    Raises:
        IncompatibleError: the state is of other layers, or of layers made with other arguments. The environment is
            unchanged, unless a layer's own ``load_state_dict`` raised.
    """
    layers = _layers_of(env)
    described, ours = state.get("layers", []), [path_of(type(layer)) for layer in layers]
    theirs = [layer["class"] for layer in described]
    if theirs != ours:
        raise IncompatibleError(
            f"state is of {theirs}, outermost first: this is {ours}; make the environment with the same wrappers"
        )
    writer = StateWriter(layers, _KINDS)
    try:
        written = [
            _write_layer(writer, layer, each["attributes"]) for layer, each in zip(layers, described, strict=True)
        ]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, IncompatibleError):
            raise
        raise IncompatibleError(f"state cannot be read, {error!r}: it is damaged; use a copy") from error
    for layer, each in zip(reversed(layers), reversed(described), strict=True):
        if each["own"] is not None:
            layer.load_state_dict(plain_copy(each["own"], path_of(type(layer))))
    for layer, each, attributes in zip(layers, described, written, strict=True):
        _set_attributes(layer, attributes, has_own_state=each["own"] is not None)
    writer.apply()


def _layers_of(env: gymnasium.Env[Any, Any]) -> list[gymnasium.Env[Any, Any]]:
    """Return the wrappers, outermost first, and the environment last."""
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
        return None, f"{path_of(type(env))} has values nested too deep"
    except Exception as error:  # a property of a user's object may raise anything
        return None, f"{path_of(type(env))} raised {error!r} while it was read"


def _read_layer(reader: StateReader, layer: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    kind = type(layer)
    attributes = {name: value for name, value in getattr(layer, "__dict__", {}).items() if name not in _CONSTRUCTION}
    own = None
    if hasattr(kind, "state_dict") and hasattr(kind, "load_state_dict"):
        own = _own_state(layer)
        attributes = {name: value for name, value in attributes.items() if _is_gymnasiums(name, value)}
    elif not has_only_attributes(kind):
        raise UnreadableError(f"{path_of(kind)} has values outside its attributes, in slots or compiled code")
    elif isinstance(layer, gymnasium.wrappers.RecordEpisodeStatistics):
        attributes[_START_TIME] = time.perf_counter() - attributes[_START_TIME]
    elif isinstance(layer, gymnasium.wrappers.PassiveEnvChecker) and attributes.get("_previous_data") is not None:
        # It only compares the arrays of two steps by identity, which a copy cannot keep and no result depends on.
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
    """Return whether an attribute is of ``gymnasium.Env``, which a user's ``state_dict`` usually leaves out."""
    return name in ("_np_random", "_np_random_seed") or isinstance(value, gymnasium.Space)


def _write_layer(writer: StateWriter, layer: gymnasium.Env[Any, Any], described: dict[str, Any]) -> dict[str, Any]:
    present, place = getattr(layer, "__dict__", {}), type(layer).__qualname__
    written = {
        name: writer.write(each, present.get(name, MISSING), f"{place}.{name}") for name, each in described.items()
    }
    if isinstance(layer, gymnasium.wrappers.RecordEpisodeStatistics):
        written[_START_TIME] = time.perf_counter() - written[_START_TIME]
    return written


def _set_attributes(layer: gymnasium.Env[Any, Any], attributes: dict[str, Any], has_own_state: bool) -> None:
    if not has_own_state:
        for name in [name for name in vars(layer) if name not in attributes and name not in _CONSTRUCTION]:
            del vars(layer)[name]
    if attributes:
        vars(layer).update(attributes)
