"""How many Python functions of framestow a call goes through: a measure of hot paths that no machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import framestow

SOURCE = str(Path(framestow.__file__).parent)


def python_calls(function: Callable[[], Any]) -> list[str]:
    """The names of framestow's Python functions that ``function`` calls, in their order."""
    called = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            called.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return called
