"""Worker environments that must leave no process or memory, and a time limit for hanging tests."""

from __future__ import annotations

import gc
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from framestow.envs import WorkerVectorEnv
from oracles.failing_envs import Failure, makers
from oracles.process_watch import (
    end,
    eventually,
    left_in_shared_memory,
    logged_processes,
    mapped_shared_memory,
    still_there,
    thread_names,
)

PATIENCE = 120  # seconds that a test may take before it counts as hanging

MakeWorkers = Callable[..., WorkerVectorEnv]


@pytest.fixture(autouse=True)
def _clock() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError(f"the test hangs: it took {PATIENCE} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def process_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in which every environment leaves the id of its process."""
    folder = tmp_path / "processes"
    folder.mkdir()
    yield folder
    end(logged_processes(folder))  # what a failed test leaves must not disturb the next one


@pytest.fixture
def make_workers(process_folder: Path) -> Iterator[MakeWorkers]:
    """Make a `WorkerVectorEnv` of failing environments; at the end close it and find nothing of it."""
    threads_before = thread_names()
    made: list[WorkerVectorEnv] = []
    shared_memory: set[str] = set()

    def make(
        failing: dict[int, Failure] | None = None,
        num_envs: int = 4,
        *,
        play: dict[str, Any] | None = None,
        **settings: Any,
    ) -> WorkerVectorEnv:
        settings = {"num_workers": 2, "start_method": "fork", "step_timeout": 30.0, "seed": 3} | settings
        made.append(WorkerVectorEnv(makers(process_folder, num_envs, failing, **(play or {})), **settings))
        shared_memory.update(mapped_shared_memory())
        return made[-1]

    yield make
    for env in made:
        env.close()
    made.clear()
    gc.collect()
    children_left_on_purpose = logged_processes(process_folder, "child-*")
    end(children_left_on_purpose)
    workers = logged_processes(process_folder) - children_left_on_purpose
    assert eventually(lambda: not still_there(workers)), still_there(workers)
    assert left_in_shared_memory(shared_memory) == []
    assert eventually(lambda: not Counter(thread_names()) - Counter(threads_before)), thread_names()
