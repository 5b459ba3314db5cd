"""Ctrl-C at a line of one's choosing."""

from __future__ import annotations

import dis
import gc
import importlib.util
import linecache
import os
import signal
import sys
from contextlib import contextmanager
from functools import cache
from types import CodeType


@contextmanager
def ctrl_c_at_line(number: int, packages: tuple[str, ...] = ("framestow",)):
    """Press Ctrl-C as the ``number``-th line of ``packages`` that is run in here begins.

    The way out of a ``with`` statement counts as no line, nor does ``try:``: CPython looks for signals in their bodies.
    """
    files = tuple(_files_of(package) for package in packages)
    lines = [0]
    is_inside: dict[int, set[int]] = {}  # a frame: the lines of the ``with`` statements that it is in

    def is_uninterrupted(frame) -> bool:
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if not line.startswith("with "):
            return line == "try:"
        is_inside[id(frame)] ^= {frame.f_lineno}
        return frame.f_lineno not in is_inside[id(frame)]

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(files):
            return None
        if event == "call":
            is_inside[id(frame)] = set()
        if event == "line" and not is_uninterrupted(frame):
            lines[0] += 1
            if lines[0] == number:
                signal.raise_signal(signal.SIGINT)
        return trace

    before, was_collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # what other tests left would run its lines in here
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        if was_collecting:
            gc.enable()


@cache
def _files_of(package: str) -> str:
    """Return how the paths of a package's files begin, for ``"framestow"`` or ``"framestow/replay/reading"``.

    The name alone would not do: a clone is called framestow too, with these tests and ``.venv`` in it.
    """
    name, _, inside = package.partition("/")
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return os.path.join(os.path.dirname(spec.origin), inside)


class NumberedPoints:
    """Press Ctrl-C at the ``number``-th point, from 1, of all that is run in here; at none for 0.

    CPython looks for signals as a function begins, behind a call and where a loop goes back: these are the points.
    """

    def __init__(self, number: int) -> None:
        self.number, self.num_seen = number, 0

    def __enter__(self) -> None:
        self._before, self._tracer = sys.gettrace(), self._trace  # CPython 3.11 once called a freed one
        sys.settrace(self._tracer)

    def __exit__(self, *_) -> None:
        sys.settrace(self._before)

    def _trace(self, frame, event, _):
        if event == "call":
            if frame.f_code is NumberedPoints.__exit__.__code__ or "hypothesis" in frame.f_code.co_filename:
                return None  # hypothesis has a callback of the garbage collector, which runs anywhere
            if frame.f_code.co_name == "_remove" and frame.f_code.co_filename.endswith("_weakrefset.py"):
                return None  # the callback of a weak reference: what it raises is printed, and goes nowhere
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            last = [frame.f_lasti]

            def trace(frame, event, _):
                if event == "opcode":
                    behind, last[0] = last[0], frame.f_lasti
                    if _looks_for_signals(frame.f_code, behind, frame.f_lasti):
                        self.num_seen += 1
                        if self.num_seen == self.number:
                            signal.raise_signal(signal.SIGINT)
                return trace

            return trace
        return None


@cache
def _looks_for_signals(code: CodeType, behind: int, at: int) -> bool:
    """Whether CPython looks for signals as it goes from the instruction ``behind`` to that ``at``.

    It raises in the one behind. Where another handler catches what is raised at the next one, there is no such point.
    """
    if behind < 0:
        return True
    name = dis.opname[code.co_code[behind]]
    is_point = name.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RESUME")) and "INTRINSIC" not in name
    handlers = getattr(dis.Bytecode(code), "exception_entries", ()) if is_point else ()  # none before Python 3.11
    targets = [[entry.target for entry in handlers if entry.start <= offset < entry.end] for offset in (behind, at)]
    return is_point and targets[0] == targets[1]
