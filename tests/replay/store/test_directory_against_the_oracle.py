"""Random operations on a memory in a folder, compared with the list oracle."""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_batch_is_what_the_oracle_holds, assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory

pytestmark = pytest.mark.slow  # more than two seconds

SHAPE = (20, 30)
NUM_ACTIONS = 4


class DirectoryMachine(RuleBasedStateMachine):
    """Step, sample, flush, save, close, drop without closing, reopen, resume, load, save elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: ListMemory | None = None
        self.kept: dict[int, ListMemory] = {}

    def teardown(self) -> None:
        self.memory.close()
        assert_memory_is_what_the_oracle_holds(ReplayMemory.load(self.home), self.oracle)
        self.scratch.cleanup()

    @initialize(
        capacity=st.integers(3, 900),
        num_envs=st.integers(1, 3),
        storage=st.sampled_from(["packed", "packed", "raw"]),
        n_step=st.integers(1, 10),
        seed=st.integers(0, 2**32 - 1),
    )
    def build(self, capacity, num_envs, storage, n_step, seed):
        self.scratch = tempfile.TemporaryDirectory()  # not before: a machine that is not built is not torn down
        self.home, self.elsewhere = Path(self.scratch.name) / "home", Path(self.scratch.name) / "elsewhere"
        self.random = np.random.default_rng(seed)
        self.arguments = {"num_envs": num_envs, "storage": storage, "flush_every": None, "directory": self.home}
        self.arguments["n_step"] = n_step
        self.capacity = capacity = max(capacity, n_step * num_envs)
        self.memory = self.new_memory()
        self.oracle = ListMemory(capacity, num_envs, 4, 0.99, n_step=n_step)
        self.note_flush()

    @rule(tracks=st.sets(st.integers(0, 2), min_size=1))
    def begin(self, tracks):
        present = sorted(track for track in tracks if track < self.memory.num_envs)
        if present:
            frames = self.new_frames(len(present))
            self.memory.begin(frames, present)
            self.oracle.begin(frames, present)

    @rule(num_steps=st.integers(1, 400), end_chance=st.sampled_from([0.0, 0.02, 0.3]))
    def step(self, num_steps, end_chance):
        for _ in range(num_steps):
            tracks = list(range(self.memory.num_envs))
            closed = [track for track in tracks if not self.oracle.is_open[track]]
            if closed:
                self.begin(set(closed))
            terminated, truncated = self.random.random((2, len(tracks))) < end_chance
            actions, frames = self.random.integers(0, NUM_ACTIONS, len(tracks)), self.new_frames(len(tracks))
            step = (actions, actions.astype(np.float64), terminated, truncated, frames, tracks)
            self.memory.append(*step)
            self.oracle.append(*step)

    @precondition(lambda self: len(self.memory))
    @rule(batch_size=st.integers(1, 40))
    def sample(self, batch_size):
        assert_batch_is_what_the_oracle_holds(self.memory.sample(batch_size), self.oracle)

    @precondition(lambda self: self.oracle.kept)
    @rule(share=st.sampled_from([0.01, 1.0]))
    def change_rewards(self, share):
        indices = np.array([index for index in self.oracle.kept if self.random.random() < share], np.int64)
        rewards = self.random.normal(size=len(indices))
        self.memory.set_rewards(indices, rewards)
        self.oracle.set_fields(indices.tolist(), rewards, {})

    @precondition(lambda self: self.oracle.kept)
    @rule(count=st.integers(1, 20))
    def forget(self, count):
        indices = self.random.choice(self.oracle.kept, count)
        self.memory.forget(indices)
        self.oracle.forget(indices.tolist())

    @rule()
    def clear(self):
        self.memory.clear()
        self.oracle.clear()

    @rule()
    def flush(self):
        self.memory.flush()
        self.note_flush()

    @rule()
    def save_at_home_and_keep_it(self):
        generation = self.memory.save(self.home, keep_previous=True)
        self.note_flush()
        self.kept[generation] = self.flushed

    @precondition(lambda self: self.kept)
    @rule()
    def forget_all_but_the_newest_that_is_kept(self):
        newest = max(self.kept)
        self.memory.prune(self.home, newest)
        self.kept = {newest: self.kept[newest]}

    @rule()
    def save_elsewhere_and_load_that(self):
        self.memory.save(self.elsewhere)
        loaded = ReplayMemory.load(self.elsewhere)
        if len(self.memory):
            np.testing.assert_array_equal(self.memory.sample(5).index, loaded.sample(5).index)
        assert_memory_is_what_the_oracle_holds(loaded, self.oracle)

    @rule(in_files=st.booleans())
    def read_beside(self, in_files):
        reader = ReplayMemory.open(self.home) if in_files else ReplayMemory.load(self.home)
        assert_memory_is_what_the_oracle_holds(reader, self.flushed)

    @rule()
    def close_and_open(self):
        self.memory.close()
        self.memory = ReplayMemory.open(self.home, read_only=False, flush_every=None)
        self.note_flush()
        assert_memory_is_what_the_oracle_holds(self.memory, self.oracle)

    @rule()
    def close_and_begin_without_the_environments(self):
        self.memory.close()
        self.memory = self.new_memory()
        self.note_flush()
        self.oracle.is_open = [False] * self.memory.num_envs
        assert_memory_is_what_the_oracle_holds(self.memory, self.oracle)

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 10))
    def go_back(self, which):
        """As after a crash: later flushes are dropped."""
        generation = sorted(self.kept)[which % len(self.kept)]
        self.memory.close()
        self.memory = ReplayMemory.open(self.home, read_only=False, generation=generation, flush_every=None)
        self.oracle = copy.deepcopy(self.kept[generation])
        assert_memory_is_what_the_oracle_holds(self.memory, self.oracle)
        self.memory.flush()
        self.note_flush()
        self.kept = {number: oracle for number, oracle in self.kept.items() if number <= generation}

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 10))
    def load_what_is_kept(self, which):
        generation = sorted(self.kept)[which % len(self.kept)]
        loaded = ReplayMemory.load(self.home, generation=generation)
        assert_memory_is_what_the_oracle_holds(loaded, self.kept[generation])

    @rule()
    def nobody_else_may_write(self):
        with pytest.raises(IncompatibleError, match="is being written by process"):
            ReplayMemory.open(self.home, read_only=False)

    @invariant()
    def the_memory_is_sound(self):
        self.memory.inner.parts.check()

    def note_flush(self):
        self.flushed = copy.deepcopy(self.oracle)

    def new_memory(self) -> ReplayMemory:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ReplayMemory(self.capacity, FrameSpec(SHAPE), NUM_ACTIONS, **{"stack": 4} | self.arguments)

    def new_frames(self, count: int) -> np.ndarray:
        frames = np.zeros((count, *SHAPE), np.uint8)
        frames[:, self.random.integers(0, 20), :] = self.random.integers(0, 256, 30)
        return frames


@pytest.mark.parametrize("max_examples", [8, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_a_memory_in_a_folder_equals_the_oracle_after_random_operations(max_examples):
    run_state_machine_as_test(
        DirectoryMachine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
