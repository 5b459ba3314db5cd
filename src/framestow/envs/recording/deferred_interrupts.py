"""Ctrl-C waits until a memory is whole again."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

try:
    # What the functions of ``signal`` call: 0.5 µs instead of 7, which go into making enums of functions.
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:
    from signal import getsignal
    from signal import signal as set_handler

DEFERRED = (int(signal.SIGINT), int(signal.SIGTERM))


class DeferredInterrupts:
    """While entered, a signal whose handler is a Python function is noted; the handler runs on the way out.

    A step goes into several arrays of a memory one after the other. `KeyboardInterrupt` may be raised between any two
    lines, and a memory that was left between two of them would be wrong from then on. Signals are handled in
    the main thread only, so elsewhere nothing is done. Not to be entered twice at once.
    """

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._noted: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in DEFERRED:
            handler = getsignal(number)
            if callable(handler):  # the others are not run by Python: they end the process, or are ignored
                self._handlers.append((number, handler))
                set_handler(number, self._note)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handlers = dict(self._handlers)
        while self._handlers:
            set_handler(*self._handlers[-1])
            self._handlers.pop()
        noted, self._noted = dict(self._noted), []
        for number, frame in noted.items():
            handlers[number](number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append((number, frame))
