"""Flushes a memory every few seconds, beside whatever else is done with it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundFlush:
    """A thread that calls ``flush`` every ``every_s`` seconds until it is stopped; it does not keep a process alive.

    What ``flush`` raises goes to ``failed``, and the next time is another try. The thread refers to what these two
    refer to, so they must not refer to what is to be collected.
    """

    def __init__(self, flush: Callable[[], object], failed: Callable[[Exception], object], every_s: float) -> None:
        self._flush, self._failed, self._every_s = flush, failed, every_s
        self._stopped = threading.Event()
        self._at_last: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="framestow flush", daemon=True)
        self._thread.start()

    @property
    def is_calling(self) -> bool:
        """Whether it is this thread that asks."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Return when no flush is under way and none will begin. Stopping again does nothing."""
        self._stopped.set()
        self._thread.join()

    def stop_soon(self, at_last: Callable[[], object]) -> None:
        """Let the thread end after what it is doing, and call ``at_last`` then; for this thread itself."""
        self._at_last = at_last
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._flush()
            except Exception as error:
                self._failed(error)
        self._at_last()
