"""Ctrl-C at a line of one's choosing."""

from __future__ import annotations

import linecache
import signal
import sys
from contextlib import contextmanager


@contextmanager
def ctrl_c_at_line(number: int, packages: tuple[str, ...] = ("framestow",)):
    """Press Ctrl-C as the ``number``-th line of ``packages`` that is run in here begins.

    The way out of a ``with`` statement counts as no line, nor does ``try:``: CPython looks for signals in their bodies.
    """
    lines = [0]
    is_inside: dict[int, set[int]] = {}  # a frame: the lines of the ``with`` statements that it is in

    def is_uninterrupted(frame) -> bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if not line.startswith("with "):
            return line == "try:"
        is_inside[id(frame)] ^= {frame.f_lineno}
        return frame.f_lineno not in is_inside[id(frame)]

    def trace(frame, event, _):
        if not any(package in frame.f_code.co_filename for package in packages):
            return None
        if event == "call":
            is_inside[id(frame)] = set()
        if event == "line" and not is_uninterrupted(frame):
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
