"""Defer Ctrl-C and other signals while a change that must be whole is made."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

try:
    # The C functions behind ``signal`` take 0.5 µs; the wrappers take 7 µs, because they convert handlers to enums.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:
    from signal import getsignal
    from signal import signal as set_handler

# Signals by which programs and batch systems interrupt a run; Windows has two of them.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2")
DEFERRED_SIGNALS = tuple(int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name))
_MAIN_THREAD = threading.main_thread().ident


class DeferredInterrupts:
    """Context manager that defers the Python handlers of ``DEFERRED_SIGNALS`` until it exits.

    A ``KeyboardInterrupt`` between two lines that belong together would leave a memory or a vector environment
    inconsistent. Python handles signals in the main thread only, so other threads need no protection. Not reentrant.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []  # signal number and usual handler, while they are deferred
        self._arrived: list[tuple[int, FrameType | None]] = []  # signals that arrived meanwhile, and their frames

    def __enter__(self) -> None:
        if threading.get_ident() != _MAIN_THREAD:
            return
        try:
            for number in DEFERRED_SIGNALS:
                handler = getsignal(number)
                if callable(handler):  # Python does not run the other handlers, SIG_DFL and SIG_IGN
                    self._handlers.append((number, handler))
                    set_handler(number, self._record)
        except BaseException:  # of a handler that is not deferred yet
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handlers, self._handlers = self._handlers, []
        try:
            for number, handler in handlers:
                set_handler(number, handler)
        except BaseException:  # of a handler that is restored already
            for number, handler in handlers:
                set_handler(number, handler)
            raise
        if self._arrived:
            arrived, self._arrived = dict(self._arrived), []
            for number, frame in arrived.items():
                dict(handlers)[number](number, frame)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))
