"""Read the style sheet of framestow's HTML pages."""

from __future__ import annotations

from pathlib import Path


def read_style() -> str:
    """Return the style sheet that all pages have: that of ``framestow report`` and that of ``framestow view``."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")
