"""What a parent and its workers send each other, and how: a few raw bytes a step, pickles for the rest."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import cloudpickle
import gymnasium

from framestow.errors import InvalidSettingsError

EnvFactory = Callable[[], gymnasium.Env[Any, Any]]


class Factories:
    """Travels among the arguments of a process: as it is under fork, pickled by value otherwise.

    It is read only when asked for, so that a function which cannot be read in the worker is an error that the worker
    tells, and not the end of the worker.
    """

    def __init__(self, functions: Sequence[EnvFactory]) -> None:
        self._functions: Sequence[EnvFactory] | bytes = functions

    def functions(self) -> Sequence[EnvFactory]:
        """Give the functions, one an environment."""
        if isinstance(self._functions, bytes):
            self._functions = pickle.loads(self._functions)
        return self._functions  # type: ignore[return-value]

    def __getstate__(self) -> bytes:
        if isinstance(self._functions, bytes):
            return self._functions
        try:
            return cloudpickle.dumps(self._functions)  # type: ignore[no-any-return]
        except Exception as error:
            raise InvalidSettingsError(
                f"env_fns cannot be pickled: {error}; make what they hold inside of them, or use start_method='fork'"
            ) from error

    def __setstate__(self, state: bytes) -> None:
        self._functions = state


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


_READ_NBYTES = 1 << 16
_USUAL_NBYTES = 1 << 12  # more than a step's message: header and payload come with one call of the system
_LARGEST_READ_NBYTES = 1 << 22


class ParentEnd:
    """The parent's end: neither sending nor receiving ever waits.

    An interrupt (Ctrl-C) at any moment loses and repeats nothing. What has been sent or received stands in lists that
    a call from C extends: ``extend(map(socket.recv, ...))`` is one step of the interpreter, which looks for signals
    only between steps. Everything else is one assignment, and may be done again.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outbox: tuple[memoryview, list[int], int] = (memoryview(b""), [], -1)  # bytes, sent of them, sequence
        self._inbox: list[bytes] = []

    def fileno(self) -> int:
        """Give the socket's number for the operating system."""
        return self._socket.fileno()

    def put(self, sequence: int, kind: int, payload: bytes) -> None:
        """Take a message for sending; one whose sequence number is not above the last is there already."""
        rest, sent, last = self._outbox
        if sequence > last:
            frame = framed(sequence, kind, payload)
            unsent = rest[sum(sent) :]
            self._outbox = (memoryview(bytes(unsent) + frame if unsent else frame), [], sequence)

    def flush(self) -> bool:
        """Send what the socket takes; tells whether nothing is left. Raises OSError where the other end is gone."""
        while True:
            rest, sent, last = self._outbox
            if sent:
                rest = rest[sum(sent) :]
                self._outbox = (rest, [], last)
            if not rest:
                return True
            try:
                self._outbox[1].extend(map(self._socket.send, (rest,)))
            except BlockingIOError:
                return False

    @property
    def has_unread(self) -> bool:
        """Whether something has arrived that nobody took."""
        return bool(self._inbox)

    def fill(self) -> bool:
        """Receive what is there; tells whether more may be. Raises OSError where the other end is gone.

        Raises:
            EOFError: the other end was closed, and all that it sent has been received.
        """
        missing = self._missing_nbytes() if self._inbox else 0
        wanted = min(max(_READ_NBYTES, missing), _LARGEST_READ_NBYTES)
        try:
            self._inbox.extend(map(self._socket.recv, (wanted,)))
        except BlockingIOError:
            return False
        if not self._inbox[-1]:
            raise EOFError
        return len(self._inbox[-1]) == wanted

    def peek(self) -> Frame | None:
        """Give the next message that has arrived whole, which stays until `drop`."""
        if not self._inbox or self._missing_nbytes() > 0:
            return None
        if len(self._inbox) > 1:
            self._inbox = [b"".join(self._inbox)]
        length, sequence, kind = header_of(self._inbox[0])
        return Frame(sequence, kind, self._inbox[0][HEADER_NBYTES : HEADER_NBYTES + length])

    def drop(self) -> None:
        """Be done with the message that `peek` gave."""
        length, _, _ = header_of(self._inbox[0])
        rest = self._inbox[0][HEADER_NBYTES + length :]
        self._inbox = [rest] if rest else []

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _missing_nbytes(self) -> int:
        there = sum(map(len, self._inbox))
        if there < HEADER_NBYTES:
            return HEADER_NBYTES - there
        if len(self._inbox[0]) < HEADER_NBYTES:
            self._inbox = [b"".join(self._inbox)]
        return HEADER_NBYTES + header_of(self._inbox[0])[0] - there


class WorkerEnd:
    """The worker's end, which waits."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(True)
        self._socket = end
        self._rest = b""

    def receive(self) -> Frame:
        """Wait for the next message.

        Raises:
            EOFError: the parent has closed its end.
        """
        length, sequence, kind = header_of(self._read(HEADER_NBYTES))
        return Frame(sequence, kind, self._read(length) if length else b"")

    def send(self, sequence: int, kind: int, payload: bytes) -> None:
        """Send a message. Raises OSError where the parent is gone."""
        self._socket.sendall(framed(sequence, kind, payload))

    def _read(self, nbytes: int) -> bytes:
        received, chunks = self._rest, [self._rest]
        missing = nbytes - len(received)
        while missing > 0:
            chunks.append(self._socket.recv(min(max(missing, _USUAL_NBYTES), _LARGEST_READ_NBYTES)))
            if not chunks[-1]:
                raise EOFError
            missing -= len(chunks[-1])
        received = b"".join(chunks)
        self._rest = received[nbytes:]
        return received[:nbytes]
