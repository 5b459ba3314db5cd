"""Block signals while processes start, so that the new processes do not get them."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def block_signals(numbers: Iterable[int]) -> Iterator[None]:
    """Block signals in this thread while the ``with`` block runs; they arrive after it.

    Processes and threads that start meanwhile inherit the block and keep it. Windows blocks none.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
