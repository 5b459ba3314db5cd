"""Stores saved by earlier versions load unchanged; those of a format that no golden store has are refused.

From its release on, each format of a store has a folder of golden stores (tests/golden/stores) that is never written
again. A version reads the formats that stand there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from framestow.errors import IncompatibleError
from framestow.frames.codec import checksum
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.inspection import inspect_memory
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import VERSION
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from golden.saved_stores import (
    DRAWS,
    FORMATS,
    PLAYS,
    STORES,
    draws_of,
    every_operation,
    every_operation_on_pixels,
    loaded,
)
from oracles import plain_codec
from oracles.comparison import assert_batch_is_what_the_oracle_holds, assert_memory_is_what_the_oracle_holds
from oracles.plain_store import PlainStore

GOLDEN = sorted(store for store in FORMATS.glob("*/*") if store.is_dir())


@pytest.mark.parametrize("store", GOLDEN, ids=lambda store: f"{store.name} of format {store.parent.name}")
def test_a_golden_store_loads_and_samples_as_when_it_was_saved(store):
    _, oracle = PLAYS[store.name]()

    memory = loaded(store.parent, store.name)

    assert 1 == memory._settings.n_step
    assert json.loads((store.parent / DRAWS).read_text())[store.name] == draws_of(memory)
    if memory._settings.retention == "random":
        assert_transitions_are_those_of_the_oracle(memory, oracle)
    else:
        assert_memory_is_what_the_oracle_holds(memory, oracle)


def assert_transitions_are_those_of_the_oracle(memory, oracle):
    """With random retention an index is no number of a step; a golden play has that number in the reward."""
    batch = memory.get(memory.sampleable_indices())
    numbers = (batch.reward * 4).astype(int)

    assert oracle.held == sorted(numbers.tolist())
    assert_batch_is_what_the_oracle_holds(replace(batch, index=numbers), oracle)


@pytest.mark.parametrize("store", GOLDEN, ids=lambda store: f"{store.name} of format {store.parent.name}")
def test_a_reader_in_plain_python_finds_the_same_transitions(store):
    memory, steps = ReplayMemory.load(store), PlainStore(store).steps()

    assert len(memory) == len(steps)
    if not steps:
        return
    batch = memory.get(memory.sampleable_indices())
    assert [step.reward for step in steps] == batch.reward.tolist()
    assert [step.terminated for step in steps] == batch.terminated.tolist()
    assert [step.truncated for step in steps] == batch.truncated.tolist()
    assert np.array_equal(np.stack([step.action for step in steps]), batch.action)
    for name, values in batch.extras.items():
        assert np.array_equal(np.stack([step.extras[name] for step in steps]), values)
    for observations, name in ((batch.observation, "observation"), (batch.next_observation, "next_observation")):
        for leaf, stacks in enumerate(leaves_of(observations)):
            for step, stack in zip(steps, stacks, strict=True):
                shown = getattr(step, name)[leaf]
                assert shown.tobytes() == np.ascontiguousarray(stack[-len(shown) :]).tobytes()
    assert {step.stream for step in steps} <= set(range(memory.num_envs))


def leaves_of(observations):
    """The arrays of a batch's observations, of a dict in the order of its keys."""
    if isinstance(observations, dict | tuple):
        parts = observations.values() if isinstance(observations, dict) else observations
        return [leaf for part in parts for leaf in leaves_of(part)]
    return [observations]


def test_every_golden_play_has_a_store_of_the_format_of_today():
    assert set(PLAYS) == {store.name for store in GOLDEN if store.parent == STORES}


@pytest.mark.parametrize(
    ("play", "meaning"), [(every_operation, plain_codec.BYTES), (every_operation_on_pixels, plain_codec.PIXELS)]
)
def test_the_golden_segments_have_every_kind_of_operation(play, meaning):
    storage = ReplayMemory.load(STORES / play.__name__)._storage
    codes: set[int] = set()

    plain_codec.unpack(storage.segment(0, 0), codes)

    assert meaning.first_of_kinds == meaning.kinds_of(codes)


CALLS: dict[str, Callable] = {
    "load": ReplayMemory.load,
    "open": ReplayMemory.open,
    "resume": lambda folder: ReplayMemory.open(folder, read_only=False),
    "live in": lambda folder: ReplayMemory(700, FrameSpec((20, 30)), 4, num_envs=2, directory=folder),
    "inspect": inspect_memory,
    "verify": verify_store,
    "repair": repair_store,
}


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
@pytest.mark.parametrize("call", CALLS)
def test_a_store_of_another_format_is_refused_by_name_and_stays_as_it_is(tmp_path, call, version):
    folder = shutil.copytree(STORES / "packed_pixels", tmp_path / "memory")
    manifest = folder / "MANIFEST.000001"
    content = json.loads(manifest.read_bytes().partition(b"\n")[2]) | {"version": version}
    manifest.write_bytes(b"%08x\n" % checksum(json.dumps(content).encode()) + json.dumps(content).encode())
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    with pytest.raises(IncompatibleError, match=f"is version {version} .* reads version {VERSION}"):
        CALLS[call](folder)

    after = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "LOCK"}
    assert before == after
