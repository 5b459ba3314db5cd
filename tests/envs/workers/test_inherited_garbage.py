"""A forked worker does not destroy the garbage of its parent."""

from __future__ import annotations

import gc
import os

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


class CollectingCatch(Catch):
    def __init__(self) -> None:
        gc.collect()
        super().__init__()


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
