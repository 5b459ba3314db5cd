"""Messages between a parent and its workers: a header and a pickle, through a socket with a buffer each way."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import cloudpickle

from framestow.envs.vector.arguments import EnvFactory
from framestow.errors import InvalidSettingsError


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
_READ_NBYTES = 1 << 16  # of one system call


class Command(IntEnum):
    """Commands that a worker accepts."""

    MAKE = 0
    MAP = 1
    RESET = 2
    STEP = 3
    APPLY = 4
    CLOSE = 5


class Outcome(IntEnum):
    """Outcome of a request."""

    DONE = 0
    FAILED = 1


class Message(NamedTuple):
    """One message."""

    sequence: int  # number of the request, repeated by its answer
    kind: int  # a Command or an Outcome
    payload: bytes  # pickled; empty for nothing to say, and for the usual step


class StepPayload(NamedTuple):
    """Payload of a STEP that is not the usual one: that steps all environments of the worker, and none has ended."""

    env_ids: Sequence[int]
    """The environments to step."""
    has_ended: Sequence[bool]
    """Whether the episode of each ended before this step."""
    actions: Sequence[Any] | None
    """The action of each; ``None`` if they are in the shared arrays."""
    resets: Sequence[tuple[int, int | None]]
    """Environments to reset instead, each with its seed."""


class EnvFailure(NamedTuple):
    """Exception of an environment in a worker, as text."""

    environment: int
    kind: str
    """Name of the exception's class."""
    doing: str
    """The call that raised: ``action 3``, ``its reset``."""
    message: str
    traceback: str  # as Python prints it

    @property
    def text(self) -> str:
        """What happened, in one sentence."""
        return f"environment {self.environment} raised {self.kind} at {self.doing}: {self.message}"


def pickle_value(value: Any) -> bytes:
    """Pickle a value, by reference to its module if possible, else by value."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]


class MessageSocket:
    """One end of the socket between a parent and a worker.

    The parent's end never blocks, so that a worker that stops in the middle of a message holds nobody. The worker's end
    blocks. An interrupt may lose bytes in any method, so that the parent defers signals around each call.
    """

    def __init__(self, end: socket.socket, *, blocks: bool) -> None:
        end.setblocking(blocks)
        self._socket = end
        self._unsent: bytes | memoryview = b""
        # Received bytes of messages that are not complete, or not taken yet.
        self._received = bytearray()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def send(self, message: Message) -> bool:
        """Send a message behind the unsent ones, as much as the socket takes; return whether all is sent.

        Raises:
            OSError: the other end is closed.
        """
        frame = _HEADER.pack(len(message.payload), message.sequence, message.kind) + message.payload
        self._unsent = bytes(self._unsent) + frame if self._unsent else frame
        return self.flush()

    def flush(self) -> bool:
        """Send as much as the socket takes; return whether all is sent.

        Raises:
            OSError: the other end is closed.
        """
        while self._unsent:
            try:
                num_sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = memoryview(self._unsent)[num_sent:]
        return True

    def receive(self) -> bool:
        """Receive bytes by one system call; return False if there are none and the end does not block.

        Raises:
            EOFError: the other end is closed, and all its bytes are received.
            OSError: the connection is broken.
        """
        try:
            received = self._socket.recv(_READ_NBYTES)
        except BlockingIOError:
            return False
        if not received:
            raise EOFError
        self._received += received
        return True

    def next_message(self) -> Message | None:
        """Take the next complete message out of the received bytes; ``None`` if there is none."""
        if len(self._received) < _HEADER.size:
            return None
        nbytes, sequence, kind = _HEADER.unpack_from(self._received)
        end = _HEADER.size + nbytes
        if len(self._received) < end:
            return None
        payload = bytes(self._received[_HEADER.size : end])
        del self._received[:end]
        return Message(sequence, kind, payload)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
