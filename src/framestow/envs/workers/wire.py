"""Messages between a parent and its workers: a few raw bytes for a step, pickles for all else."""

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
    """Functions that make environments, as a process argument: unchanged with fork, else pickled by value.

    ``functions`` unpickles them, not the start of the process. So a worker can report a function that cannot be
    unpickled.
    """

    def __init__(self, functions: Sequence[EnvFactory]) -> None:
        # The functions, or their pickled bytes in a worker that has not unpickled them yet.
        self._functions: Sequence[EnvFactory] | bytes = functions

    def functions(self) -> Sequence[EnvFactory]:
        """Return the functions, one for each environment."""
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
                f"env_fns cannot be pickled: {error}; create their objects inside the functions, or use "
                "start_method='fork'"
            ) from error

    def __setstate__(self, state: bytes) -> None:
        self._functions = state


_HEADER = struct.Struct("<QQB")  # bytes of the payload, sequence number, and Command or Outcome
HEADER_NBYTES = _HEADER.size
_COUNT = struct.Struct("<H")  # number of environments in a STEP


class Command(IntEnum):
    """Commands that a worker accepts."""

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
    """Outcome of a request."""

    DONE = 0
    FAILED = 1


class Message(NamedTuple):
    """One message."""

    sequence: int  # number of the request, repeated by its answer
    kind: int  # a Command or an Outcome
    payload: bytes  # pickled as a rule; of a STEP, see pack_steps


class StepOf(NamedTuple):
    """Step of one environment."""

    env_id: int
    """Number of the environment."""
    has_ended: bool
    """Whether its episode ended before this step."""


class EnvFailure(NamedTuple):
    """Exception of an environment in a worker, as text."""

    environment: int
    kind: str
    """Name of the exception's class."""
    doing: str
    """The call that raised: ``action 3``, ``its reset``."""
    message: str
    traceback: str  # as Python prints it


def pack_message(sequence: int, kind: int, payload: bytes) -> bytes:
    """Return the bytes of a message."""
    return _HEADER.pack(len(payload), sequence, kind) + payload


def unpack_header(head: bytes) -> tuple[int, int, int]:
    """Return the length of the payload, the sequence number and the kind of a message."""
    return _HEADER.unpack_from(head)


def pack_steps(steps: Sequence[StepOf], actions: Sequence[Any] | None) -> bytes:
    """Return the payload of a STEP: 4 bytes for each environment, and ``actions`` if they are not shared arrays."""
    codes = [env_id << 1 | has_ended for env_id, has_ended in steps]
    head = struct.pack(f"<H{len(codes)}I", len(codes), *codes)
    return head if actions is None else head + pickle_value(actions)


def unpack_steps(payload: bytes) -> tuple[Sequence[StepOf], Sequence[Any] | None]:
    """Return the steps and actions in the payload of a STEP."""
    (count,) = _COUNT.unpack_from(payload)
    end = _COUNT.size + 4 * count
    return _steps_of(payload[:end]), pickle.loads(payload[end:]) if len(payload) > end else None


@lru_cache(maxsize=16)  # most steps of a run have the same payload
def _steps_of(head: bytes) -> tuple[StepOf, ...]:
    codes = struct.unpack_from(f"<{(len(head) - _COUNT.size) // 4}I", head, _COUNT.size)
    return tuple(StepOf(code >> 1, bool(code & 1)) for code in codes)


def pickle_value(value: Any) -> bytes:
    """Pickle a value, by reference to its module if possible, else by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]


_READ_NBYTES = 1 << 16  # of one system call, as a rule
_USUAL_NBYTES = 1 << 12  # larger than the message of a step, so that one system call reads it
_LARGEST_READ_NBYTES = 1 << 22  # of one system call, for a large message


class ParentEnd:
    """The parent's end of the socket, which never blocks.

    An interrupt (Ctrl-C) at any point loses or repeats no message. ``extend(map(socket.recv, ...))`` appends the
    received bytes within one bytecode instruction, and Python handles signals only between instructions. Every other
    change is one assignment that may be repeated.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outbox: tuple[memoryview, list[int], int] = (
            memoryview(b""),
            [],
            -1,
        )  # bytes, numbers of sent bytes, sequence
        # Received bytes that are not processed yet, in pieces.
        self._inbox: list[bytes] = []

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def put(self, sequence: int, kind: int, payload: bytes) -> None:
        """Queue a message; ignore it if its sequence number shows that it is queued already."""
        rest, sent, last = self._outbox
        if sequence > last:
            frame = pack_message(sequence, kind, payload)
            unsent = rest[sum(sent) :]
            self._outbox = (memoryview(bytes(unsent) + frame if unsent else frame), [], sequence)

    def flush(self) -> bool:
        """Send as much as possible; return whether all is sent.

        Raises:
            OSError: the other end is closed.
        """
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
        """Whether received bytes are not processed yet."""
        return bool(self._inbox)

    def fill(self) -> bool:
        """Receive available bytes; return whether there may be more.

        Raises:
            EOFError: the other end is closed, and all its bytes are received.
            OSError: the connection is broken.
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

    def peek(self) -> Message | None:
        """Return the next complete message, or ``None``; it stays queued until ``drop``."""
        if not self._inbox or self._missing_nbytes() > 0:
            return None
        if len(self._inbox) > 1:
            self._inbox = [b"".join(self._inbox)]
        length, sequence, kind = unpack_header(self._inbox[0])
        return Message(sequence, kind, self._inbox[0][HEADER_NBYTES : HEADER_NBYTES + length])

    def drop(self) -> None:
        """Remove the message that ``peek`` returned."""
        length, _, _ = unpack_header(self._inbox[0])
        rest = self._inbox[0][HEADER_NBYTES + length :]
        self._inbox = [rest] if rest else []

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _missing_nbytes(self) -> int:
        received = sum(map(len, self._inbox))
        if received < HEADER_NBYTES:
            return HEADER_NBYTES - received
        if len(self._inbox[0]) < HEADER_NBYTES:
            self._inbox = [b"".join(self._inbox)]
        return HEADER_NBYTES + unpack_header(self._inbox[0])[0] - received


class WorkerEnd:
    """The worker's end of the socket, which blocks."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(True)
        self._socket = end
        self._rest = b""  # bytes received behind the last message

    def receive(self) -> Message:
        """Wait for the next message.

        Raises:
            EOFError: the parent closed its end.
        """
        length, sequence, kind = unpack_header(self._read(HEADER_NBYTES))
        return Message(sequence, kind, self._read(length) if length else b"")

    def send(self, sequence: int, kind: int, payload: bytes) -> None:
        """Send a message; raise ``OSError`` if the parent has ended."""
        self._socket.sendall(pack_message(sequence, kind, payload))

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
