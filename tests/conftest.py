"""How many examples Hypothesis tries, for property tests that do not say it themselves.

The default profile tries the same two hundred each time. ``--hypothesis-profile=search`` draws new ones, as many as the
environment variable EXAMPLES says: ``make fuzz`` uses it. ``sanitized`` tries the first fifty of the default profile:
sanitizers watch every access of each.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("fixed", deadline=None, max_examples=200, derandomize=True)
settings.register_profile("sanitized", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "2000")))
settings.load_profile("fixed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count what is exhaustive as slow too, so that ``-m "not slow"`` leaves it out."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
