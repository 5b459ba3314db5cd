"""Readers that draw from one memory, here and in other processes, and what their draws must be."""

from __future__ import annotations

import os
import pickle
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from framestow.replay.memory import ReplayMemory
from oracles.numbered_steps import SHAPE, numbered_memory

NUM_ENVS, NUM_TRANSITIONS = 10, 10_000
NUM_READERS, NUM_BATCHES, BATCH_SIZE = 4, 100, 32  # batches of each reader


def save_transitions(folder: Path) -> None:
    memory = numbered_memory(NUM_TRANSITIONS, num_envs=NUM_ENVS)
    frames, flags = np.zeros((NUM_ENVS, *SHAPE), np.uint8), np.zeros(NUM_ENVS, bool)
    memory.begin(frames)
    for step in range(NUM_TRANSITIONS // NUM_ENVS):
        memory.append([step % 256] * NUM_ENVS, [0.0] * NUM_ENVS, flags, flags, frames)
    memory.save(folder)


def drawn(memory: ReplayMemory, num_batches: int = NUM_BATCHES) -> np.ndarray:
    """The indices of some batches, ``(num_batches, BATCH_SIZE)``."""
    return np.stack([memory.sample(BATCH_SIZE).index for _ in range(num_batches)])


def drawn_from(folder: Path) -> np.ndarray:
    return drawn(ReplayMemory.open(folder))


def assert_drawn_differently(batches: np.ndarray) -> None:
    """All readers together draw as many different transitions as one reader does, and no batch twice.

    Of N transitions, each is missed by D draws with the probability (1 - 1/N)^D, about e^(-D/N). The number of
    different ones varies by N e^-c (1 - (1 + c) e^-c) with c = D/N. Readers have fresh entropy here: six standard
    deviations are missed once in 10^9 tests.
    """
    assert NUM_READERS * NUM_BATCHES == len(batches)
    load = batches.size / NUM_TRANSITIONS
    missed = np.exp(-load)
    spread = np.sqrt(NUM_TRANSITIONS * missed * (1 - (1 + load) * missed))
    assert len({batch.tobytes() for batch in batches}) == len(batches)
    assert len(np.unique(batches)) > NUM_TRANSITIONS * (1 - missed) - 6 * spread


def forked(call: Callable[[], Any]) -> Any:
    """What ``call`` returns in a forked child."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
        child = os.fork()
    if child == 0:
        try:
            with open(writing, "wb") as pipe:
                pickle.dump(call(), pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        returned = pipe.read()
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return pickle.loads(returned)


Make = Callable[[], Callable[[], Any]]


def assert_forked_processes_draw_differently(makers: dict[str, Make]) -> None:
    """``makers``: by name, what makes a function that draws an array, the same one each time."""
    first, again = (forked(partial(_draws_of_a_program, makers)) for _ in range(2))

    assert first == again
    for name in makers:
        *children, grandchild, parent, unforked = (draws[name] for draws in first)
        assert parent == unforked, name
        draws = [*children, grandchild, parent]
        assert len({repr(draw) for draw in draws}) == len(draws), name


def _draws_of_a_program(makers: dict[str, Make]) -> list[dict[str, Any]]:
    """The draws of three children, a grandchild, their parent, and of a process without children."""
    functions = _made(makers)
    children = [forked(partial(_draw, functions)) for _ in range(3)]
    grandchild = forked(lambda: forked(partial(_draw, functions)))
    return [*children, grandchild, _draw(functions), _draw(_made(makers))]


def _made(makers: dict[str, Make]) -> dict[str, Callable[[], Any]]:
    functions = {name: make() for name, make in makers.items()}
    _draw(functions)
    return functions


def _draw(functions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    return {name: [np.asarray(draw()).tolist() for _ in range(2)] for name, draw in functions.items()}
