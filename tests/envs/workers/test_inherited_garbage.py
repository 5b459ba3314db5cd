"""A forked worker does not destroy the garbage of its parent."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from framestow.envs import WorkerVectorEnv
from oracles.catch import Catch

PARENT = os.getpid()


class NotToBeDestroyedElsewhere:
    """As an object in C++ that joins threads of its own when it is destroyed."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        if os.getpid() != PARENT:
            os.abort()


class CollectsItself(Catch):
    def collects(self) -> bool:
        return gc.isenabled()


class CollectingCatch(Catch):
    def __init__(self) -> None:
        gc.collect()
        super().__init__()


COLLECTS_IN_CHILDREN: list[bool] = []  # a hook of a fork cannot be taken back


def _collect_in_child() -> None:
    if COLLECTS_IN_CHILDREN and gc.isenabled():
        gc.collect()


@pytest.fixture(autouse=True)
def own_garbage() -> Iterator[None]:
    """Leave no such object to the workers of other tests."""
    yield
    gc.enable()
    gc.collect()


def test_a_forked_worker_leaves_the_garbage_of_its_parent_alone():
    gc.disable()
    try:
        NotToBeDestroyedElsewhere()
        env = WorkerVectorEnv([CollectingCatch] * 2, num_workers=1, start_method="fork")
    finally:
        gc.enable()

    observations, _ = env.reset(seed=0)
    env.close()

    assert len(observations) == 2


def test_a_collection_while_a_process_is_forked_leaves_the_garbage_of_its_parent_alone(monkeypatch):
    os.register_at_fork(after_in_child=_collect_in_child)
    monkeypatch.setattr(sys.modules[__name__], "COLLECTS_IN_CHILDREN", [True])
    before = gc.get_threshold()
    gc.set_threshold(10**6)  # this process itself collects nothing meanwhile
    try:
        NotToBeDestroyedElsewhere()
        env = WorkerVectorEnv([CollectingCatch] * 2, num_workers=1, start_method="fork")
    finally:
        gc.set_threshold(*before)

    observations, _ = env.reset(seed=0)
    env.close()

    assert len(observations) == 2
    assert gc.isenabled()


def test_a_worker_collects_its_own_garbage():
    env = WorkerVectorEnv([CollectsItself], num_workers=1, start_method="fork")

    assert env.call("collects") == (True,)
    env.close()
