"""Locks that a forked process finds free.

A fork copies every lock as it is, but only the thread that forks. A lock that another thread holds at that moment is
never given back in the child. So each lock of a memory is one of two kinds:

================  ===========================================  ==================================================
kind              held for                                     at a fork
================  ===========================================  ==================================================
``ForkSafeLock``  microseconds; what it guards must be whole   taken before it, given back in both processes
others            as long as a disk takes; a child uses        replaced in the child, by ``enter_child`` of its
                  nothing of what it guards                    owner (``call_in_children``)
================  ===========================================  ==================================================

The native core holds its own locks during a fork (``_core/forks.hpp``), after these.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Any, NoReturn, Protocol

from framestow.errors import ForkedMemoryError

MOST_S = 1.0  # that a fork waits for all locks

_RLock: Any = type(threading.RLock())


class ForkSafeLock(_RLock):  # type: ignore[misc]  # of the class that threading.RLock() returns
    """``threading.RLock()`` that is free in a forked child, with what it guards whole.

    A fork waits for at most a second: until a thread that writes has waited for a disk, say. In a child that was forked
    without the lock, taking it raises ``ForkedMemoryError``.

    Arguments:
        order: Locks are taken in ascending order: a thread that holds one takes none with a smaller number.
    """

    __slots__ = ("order",)

    def __init__(self, order: int) -> None:
        super().__init__()
        self.order = order
        with _changing:
            _locks.add(self)


class _TornLock(ForkSafeLock):
    """A lock that another thread held at the fork for longer than the fork waits."""

    __slots__ = ()

    def acquire(self, *_: object, **__: object) -> NoReturn:
        """Raise ``ForkedMemoryError``."""
        raise ForkedMemoryError(
            f"the process was forked while another thread was in a call of the memory for over {MOST_S:g} s: its "
            "copy here may be half changed; fork when that call has returned, or open or load the memory here"
        )

    __enter__ = acquire


class EntersChild(Protocol):
    """An object that a forked child cannot use as its parent does."""

    def enter_child(self) -> None:
        """Make the object usable in a forked child, which has no other thread yet."""


def call_in_children(owner: EntersChild) -> None:
    """Call ``owner.enter_child()`` in every forked child, as long as ``owner`` exists."""
    with _changing:
        _owners.add(owner)


# Held from before a fork until after it, so that no lock is made meanwhile.
_changing = threading.RLock()
_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
_owners: weakref.WeakSet[EntersChild] = weakref.WeakSet()
_held: list[list[ForkSafeLock]] = []  # by the forks in progress: one, or another one in a signal's handler


def _before_fork() -> None:
    _changing.acquire()
    held: list[ForkSafeLock] = []
    _held.append(held)
    until = time.monotonic() + MOST_S
    for lock in sorted(_locks, key=lambda lock: lock.order):
        if lock.acquire(timeout=max(0.0, until - time.monotonic())):
            held.append(lock)


def _after_fork_in_parent() -> None:
    for lock in reversed(_held.pop()):
        lock.release()
    _changing.release()


def _after_fork_in_child() -> None:
    for lock in set(_locks).difference(_held[-1]):
        lock.__class__ = _TornLock
    for owner in list(_owners):
        owner.enter_child()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
