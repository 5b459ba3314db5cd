"""How many examples Hypothesis tries, for property tests that do not say it themselves, and what ``make quick`` skips.

The default profile tries the same hundred each time, ``quick`` and ``sanitized`` the first thirty of them: sanitizers
watch every access of each. ``thorough`` tries a thousand: ``make exhaustive`` uses it. ``search`` draws new ones, as
many as the environment variable EXAMPLES says: ``make fuzz`` uses it.

``make quick`` sets the environment variable QUICK. A test is then skipped where it starts its first process.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.process
import os
import signal
import subprocess
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from oracles.selections import mark_the_rest

# What environments in other processes import: a fork server imports it once instead of each of its processes.
# Processes that are spawned still import all of it themselves.
multiprocessing.set_forkserver_preload(
    [
        "pytest",
        "gymnasium.vector",
        "framestow.envs.atari.atari_env",
        "framestow.envs.recording.recorder",
        "framestow.envs.workers.worker_process",
        "framestow.replay.memory",
    ]
)

# A shell starts a background job with Ctrl-C ignored: the tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fixed", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("quick", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("sanitized", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=int(os.environ.get("EXAMPLES", "2000")))

# The imported libraries have a million objects. Python's collector skips them once they are frozen; otherwise each
# collection takes 0.2 s, in every process that a test forks too.
gc.disable()


def pytest_collection_finish() -> None:
    """Freeze all objects that the imports of the tests made."""
    gc.enable()
    gc.collect()
    gc.freeze()


IS_QUICK = bool(os.environ.get("QUICK"))
settings.load_profile("quick" if IS_QUICK else "fixed")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Generator[None, object, object]:
    """Leave the selection of a test's parameters that its mark asks for to ``make test``."""
    made = yield
    if isinstance(made, list):
        mark_the_rest(made)
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count what is exhaustive as slow too, so that ``-m "not slow"`` leaves it out."""
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")


def skip_the_test(*args: Any, **kwargs: Any) -> None:
    """Stand in for each way to start a process."""
    pytest.skip("make quick starts no process")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Skip a test of ``make quick``, with its fixtures, where it starts a process."""
    with pytest.MonkeyPatch.context() as patch:
        if IS_QUICK:
            patch.setattr(subprocess.Popen, "__init__", skip_the_test)
            patch.setattr(multiprocessing.process.BaseProcess, "start", skip_the_test)
            patch.setattr(os, "fork", skip_the_test)
        return (yield)
