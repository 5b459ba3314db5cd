"""Waiting for many sockets and processes at once.

`multiprocessing.connection.wait` makes a new selector at every call, 30 µs and more; here they are registered once.
"""

from __future__ import annotations

import select
from math import ceil
from typing import Any, Protocol

_LONGEST_S = 86_400.0  # of one wait, which is then begun anew: the system counts it in 32 bits of milliseconds


class Waiting(Protocol):
    """Waits until one of what it watches has something to tell."""

    watches_processes: bool
    """Whether it takes what tells the end of a process, and not sockets only."""

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch the file ``number``: for something to read, and for room to send where that is wanted."""

    def unwatch(self, number: int) -> None:
        """Forget the file ``number``; one that is not watched is no error."""

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait at most so long; gives the numbers of those with something to tell."""


class PollWaiting:
    """By ``poll``."""

    watches_processes = True

    def __init__(self) -> None:
        self._poll: Any = select.poll()

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch a file."""
        self._poll.register(number, select.POLLIN | (select.POLLOUT if wants_to_send else 0))

    def unwatch(self, number: int) -> None:
        """Forget a file."""
        try:
            self._poll.unregister(number)
        except KeyError:
            return

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait."""
        timeout_ms = None if timeout_s is None else ceil(min(max(timeout_s, 0.0), _LONGEST_S) * 1000)
        return [number for number, _ in self._poll.poll(timeout_ms)]


class SelectWaiting:
    """By ``select``, where there is no ``poll``: on Windows, where it takes sockets only.

    The end of a process shows there by the end of its socket.
    """

    watches_processes = False

    def __init__(self) -> None:
        self._watched: dict[int, bool] = {}

    def watch(self, number: int, wants_to_send: bool = False) -> None:
        """Watch a socket."""
        self._watched[number] = wants_to_send

    def unwatch(self, number: int) -> None:
        """Forget a socket."""
        self._watched.pop(number, None)

    def ready(self, timeout_s: float | None) -> list[int]:
        """Wait."""
        senders = [number for number, wants_to_send in self._watched.items() if wants_to_send]
        at_most_s = None if timeout_s is None else min(max(timeout_s, 0.0), _LONGEST_S)
        to_read, to_send, _ = select.select(list(self._watched), senders, [], at_most_s)
        return list({*to_read, *to_send})


def make_waiting() -> Waiting:
    """Make the quickest kind that this system has."""
    return PollWaiting() if hasattr(select, "poll") else SelectWaiting()
