"""Ctrl-C and SIGTERM as a request to stop after the step."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

STOPPING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Notes SIGINT and SIGTERM instead of dying of them, for as long as its ``with`` block runs.

    A second one has its usual effect: Ctrl-C raises ``KeyboardInterrupt``, SIGTERM ends the process. To be entered in
    the main thread. The handler only takes a note, since it may have interrupted a write to the terminal.
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._usual: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        for number in STOPPING_SIGNALS:
            self._usual[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    @property
    def is_requested(self) -> bool:
        """Whether the run was asked to stop."""
        return self.signal_number is not None

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signal_number = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._usual.items():
            signal.signal(number, handler)
