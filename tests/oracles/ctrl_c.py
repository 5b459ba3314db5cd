"""Ctrl-C at a line of one's choosing."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager


@contextmanager
def ctrl_c_at_line(number: int, packages: tuple[str, ...] = ("framestow",)):
    """Press Ctrl-C as the ``number``-th line of ``packages`` that is run in here begins."""
    lines = [0]

    def trace(frame, event, _):
        if not any(package in frame.f_code.co_filename for package in packages):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
