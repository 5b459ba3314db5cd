"""The two ends of the socket between a parent and a worker."""

from __future__ import annotations

import socket

from framestow.envs.workers.messages import HEADER_NBYTES, Frame, framed, header_of

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
