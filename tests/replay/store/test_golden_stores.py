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

from framestow._core import checksum
from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.inspection import inspect_memory
from framestow.replay.store.format import VERSION
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from golden.saved_stores import (
    DRAWS,
    FORMATS,
    PLAYS,
    STORES,
    GivenSteps,
    draws_of,
    every_operation,
    every_operation_on_pixels,
    loaded,
    stretches_with_their_own_padding,
)
from oracles import plain_codec
from oracles.comparison import assert_batch_is_what_the_oracle_holds, assert_memory_is_what_the_oracle_holds
from oracles.plain_reading import assert_a_plain_reader_finds_the_transitions_of
from oracles.plain_store import PlainStore, stretches_of_segment
from oracles.store_files import commit_files

GOLDEN = sorted(store for store in FORMATS.glob("*/*") if store.is_dir())


@pytest.mark.parametrize("store", GOLDEN, ids=lambda store: f"{store.name} of format {store.parent.name}")
def test_a_golden_store_loads_and_samples_as_when_it_was_saved(store):
    _, oracle = PLAYS[store.name]()

    memory = loaded(store.parent, store.name)

    assert 1 == memory.inner.settings.n_step
    assert json.loads((store.parent / DRAWS).read_text())[store.name] == draws_of(memory)
    if isinstance(oracle, GivenSteps):
        assert_transitions_are_those_given(memory, oracle)
    elif memory.inner.settings.retention == "random":
        assert_transitions_are_those_of_the_oracle(memory, oracle)
    else:
        assert_memory_is_what_the_oracle_holds(memory, oracle)


def assert_transitions_are_those_of_the_oracle(memory, oracle):
    """With random retention an index is no number of a step; a golden play has that number in the reward."""
    batch = memory.get(memory.sampleable_indices())
    numbers = (batch.reward * 4).astype(int)

    assert oracle.held == sorted(numbers.tolist())
    assert_batch_is_what_the_oracle_holds(replace(batch, index=numbers), oracle)


def assert_transitions_are_those_given(memory, oracle):
    num_steps = len(oracle.steps)
    batch = memory.get(np.arange(num_steps - memory.capacity, num_steps))

    assert memory.sampleable_indices().tolist() == batch.index.tolist()
    for row, number in enumerate(batch.index.tolist()):
        observation, action, reward, next_observation, *ends = oracle.steps[number]
        found = batch.action[row], batch.reward[row], batch.terminated[row], batch.truncated[row]
        assert (action, reward, *ends) == found
        for name, expected in observation.items():
            np.testing.assert_array_equal(expected, batch.observation[name][row])
            np.testing.assert_array_equal(next_observation[name], batch.next_observation[name][row])


def test_a_golden_store_has_stretches_of_every_padding():
    store = PlainStore(STORES / stretches_with_their_own_padding.__name__)
    paddings = [
        lead_ins is None
        for (track, _), segment in store.segments.items()
        for lead_ins in stretches_of_segment(segment, store.arrays[track // 2])[1].values()
    ]

    assert paddings.count(True) > 5  # zeros
    assert paddings.count(False) > 20  # lead-ins


@pytest.mark.parametrize("store", GOLDEN, ids=lambda store: f"{store.name} of format {store.parent.name}")
def test_a_reader_in_plain_python_finds_the_same_transitions(store):
    assert_a_plain_reader_finds_the_transitions_of(ReplayMemory.load(store), store)


def test_every_golden_play_has_a_store_of_the_format_of_today():
    assert set(PLAYS) == {store.name for store in GOLDEN if store.parent == STORES}


@pytest.mark.parametrize(
    ("play", "meaning"), [(every_operation, plain_codec.BYTES), (every_operation_on_pixels, plain_codec.PIXELS)]
)
def test_the_golden_segments_have_every_kind_of_operation(play, meaning):
    storage = ReplayMemory.load(STORES / play.__name__).inner.frames
    codes: set[int] = set()

    plain_codec.unpack(storage.segment(0, 0), codes)

    assert meaning.first_of_kinds == meaning.kinds_of(codes)


CALLS: dict[str, Callable] = {
    "load": ReplayMemory.load,
    "open": ReplayMemory.open,
    "resume": lambda folder: ReplayMemory.open(folder, read_only=False),
    "live in": lambda folder: ReplayMemory(700, FrameSpec((20, 30)), 4, stack=4, num_envs=2, directory=folder),
    "inspect": inspect_memory,
    "verify": verify_store,
    "repair": repair_store,
}


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
@pytest.mark.parametrize("call", CALLS)
def test_a_store_of_another_format_is_refused_by_name_and_stays_as_it_is(tmp_path, call, version):
    folder = shutil.copytree(STORES / "packed_pixels", tmp_path / "memory")
    commit = commit_files(folder)[-1]
    content = commit.read_bytes()
    front = content[18 : 18 + int(content[9:17], 16)]
    other = json.dumps(json.loads(front) | {"version": version}).encode()
    content = b"%08x %08x\n" % (checksum(other), len(other)) + other + content[18 + len(front) : -4]
    commit.write_bytes(content + checksum(content).to_bytes(4, "little"))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    with pytest.raises(IncompatibleError, match=f"is version {version} .* reads version {VERSION}"):
        CALLS[call](folder)

    after = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "LOCK"}
    assert before == after
