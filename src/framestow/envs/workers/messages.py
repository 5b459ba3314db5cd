"""What a parent and its workers say to each other: a few raw bytes a step, pickles where there is something to tell.

A frame is a header (length of what follows, sequence number, kind) and a payload. The parent numbers its requests; an
answer carries the number of its request, so that one to a request that was given up is known and dropped.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import cloudpickle

_HEADER = struct.Struct("<QQB")
HEADER_NBYTES = _HEADER.size
_COUNT = struct.Struct("<H")


class Command(IntEnum):
    """What a worker can be asked."""

    MAKE = 0
    MAP = 1
    RESET = 2
    STEP = 3
    CALL = 4
    SET = 5
    RENDER = 6
    TAKE_STATES = 7
    PUT_STATES = 8
    CLOSE = 9


class Outcome(IntEnum):
    """What became of a request."""

    DONE = 0
    FAILED = 1


class Frame(NamedTuple):
    """One message."""

    sequence: int
    kind: int
    payload: bytes


class StepOf(NamedTuple):
    """How one environment is to be stepped."""

    number: int
    """Which environment."""
    has_ended: bool
    """Whether its episode had ended before this step."""
    half: int
    """Half of the slab that its observation goes to."""


class EnvFailure(NamedTuple):
    """What an environment raised in a worker, as text."""

    environment: int
    kind: str
    """Name of the exception's class."""
    doing: str
    """What it was asked: ``action 3``, ``its reset``."""
    message: str
    traceback: str


def framed(sequence: int, kind: int, payload: bytes) -> bytes:
    """Put a message into the bytes that travel."""
    return _HEADER.pack(len(payload), sequence, kind) + payload


def header_of(head: bytes) -> tuple[int, int, int]:
    """Read a header: length of the payload, sequence number, kind."""
    return _HEADER.unpack_from(head)


def packed_steps(steps: Sequence[StepOf], actions: Sequence[Any] | None) -> bytes:
    """Payload of a STEP: four bytes an environment; ``actions`` only where they do not lie in the slab."""
    codes = [number << 2 | has_ended << 1 | half for number, has_ended, half in steps]
    head = struct.pack(f"<H{len(codes)}I", len(codes), *codes)
    return head if actions is None else head + pickled(actions)


def unpacked_steps(payload: bytes) -> tuple[Sequence[StepOf], Sequence[Any] | None]:
    """Read what `packed_steps` gave."""
    (count,) = _COUNT.unpack_from(payload)
    end = _COUNT.size + 4 * count
    return _steps_of(payload[:end]), pickle.loads(payload[end:]) if len(payload) > end else None


@lru_cache(maxsize=16)  # nearly all steps of a run are asked for in the same two ways
def _steps_of(head: bytes) -> tuple[StepOf, ...]:
    codes = struct.unpack_from(f"<{(len(head) - _COUNT.size) // 4}I", head, _COUNT.size)
    return tuple(StepOf(code >> 2, bool(code >> 1 & 1), code & 1) for code in codes)


def pickled(value: Any) -> bytes:
    """Pickle anything, by reference to its module where that works, else by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]
