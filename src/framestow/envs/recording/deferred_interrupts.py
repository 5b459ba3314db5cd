"""Defer Ctrl-C and SIGTERM while a step is stored."""

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

DEFERRED_SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM))


class DeferredInterrupts:
    """Context manager that defers the Python handlers of SIGINT and SIGTERM until it exits.

    A memory stores a step in several arrays. A ``KeyboardInterrupt`` between two of them would leave the memory
    inconsistent. Python handles signals in the main thread only, so other threads need no protection. Not reentrant.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []  # signal number and usual handler, while they are deferred
        self._arrived: list[tuple[int, FrameType | None]] = []  # signals that arrived meanwhile, and their frames

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in DEFERRED_SIGNALS:
            handler = getsignal(number)
            if callable(handler):  # Python does not run the other handlers, SIG_DFL and SIG_IGN
                self._handlers.append((number, handler))
                set_handler(number, self._record)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handlers = dict(self._handlers)
        while self._handlers:
            set_handler(*self._handlers[-1])
            self._handlers.pop()
        arrived, self._arrived = dict(self._arrived), []
        for number, frame in arrived.items():
            handlers[number](number, frame)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))
