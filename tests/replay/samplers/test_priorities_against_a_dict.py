"""Priorities against a dict of them, whatever happens to a memory: steps, losses, saves, other samplers."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framestow import FrameSpec, Prioritized, ReplayMemory, Uniform

SHAPE = (2, 2)
"""Weights are powers of two and α is 1, so that all is exact."""


class PriorityMachine(RuleBasedStateMachine):
    retention = "fifo"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.expected: dict[int, float] = {}
        self.largest = 1.0

    def teardown(self):
        self.folder.cleanup()

    @initialize(
        capacity=st.sampled_from([12, 64, 300]),
        num_envs=st.integers(1, 4),
        n_step=st.sampled_from([1, 3]),
        seed=st.integers(0, 2**32 - 1),
    )
    def build(self, capacity, num_envs, n_step, seed):
        self.random = np.random.default_rng(seed)
        capacity = capacity if self.retention == "fifo" else 400
        self.memory = ReplayMemory(
            capacity,
            FrameSpec(SHAPE),
            4,
            stack=2,
            num_envs=num_envs,
            n_step=n_step,
            retention=self.retention,
            sampler=self.new_sampler(),
            frames_per_segment=None if self.retention == "fifo" else 8,
            seed=seed,
        )
        self.memory.begin(self.frames(num_envs))

    def new_sampler(self) -> Prioritized:
        return Prioritized(alpha=1.0, epsilon=0.0)

    def frames(self, count: int) -> np.ndarray:
        return self.random.integers(0, 256, (count, *SHAPE), dtype=np.uint8)

    def keep_up(self) -> None:
        """What came has the largest priority so far, what left has none."""
        stored = self.memory.sampleable_indices().tolist()
        self.expected = {index: self.expected.get(index, self.largest) for index in stored}

    @rule(num_steps=st.integers(1, 60))
    def step(self, num_steps):
        self.take_steps(num_steps)

    def take_steps(self, num_steps: int) -> None:
        count = self.memory.num_envs
        for _ in range(num_steps):
            terminated, truncated = self.random.random((2, count)) < 0.1
            self.memory.append(np.zeros(count, np.int64), np.zeros(count), terminated, truncated, self.frames(count))
            ended = np.flatnonzero(terminated | truncated)
            if len(ended):
                self.memory.begin(self.frames(len(ended)), ended)
        self.keep_up()

    @precondition(lambda self: self.expected)
    @rule(count=st.integers(1, 40), to_the_past=st.booleans())
    def update(self, count, to_the_past):
        newest = max(self.expected)
        lowest = -3 if to_the_past else min(self.expected)
        indices = self.random.integers(lowest, newest + 3, count)
        priorities = np.ldexp(1.0, self.random.integers(-10, 10, count)) * self.random.choice([-1, 1, 1, 0], count)
        self.memory.update_priorities(indices, priorities)
        last = dict(zip(indices.tolist(), np.abs(priorities).tolist(), strict=True))  # of an index that is there twice
        given = {index: priority for index, priority in last.items() if index in self.expected}
        self.expected |= given
        self.largest = max([self.largest, *given.values()])

    @precondition(lambda self: any(self.expected.values()))
    @rule(batch_size=st.integers(1, 20))
    def sample(self, batch_size):
        batch = self.memory.sample(batch_size)

        smallest = min(weight for weight in self.expected.values() if weight)
        assert [self.expected[index] > 0 for index in batch.index.tolist()] == [True] * batch_size
        expected = [(smallest / self.expected[index]) ** 0.4 for index in batch.index.tolist()]
        np.testing.assert_allclose(batch.weight, expected, rtol=1e-5)

    @precondition(lambda self: self.expected)
    @rule(share=st.floats(0, 1))
    def lose_frames(self, share):
        parts = self.memory.inner.parts
        env_id = int(self.random.integers(self.memory.num_envs))
        first = int(share * parts.steps.newest_positions[env_id])
        with parts.lock:
            parts.steps.lose(env_id, first, first + 3)
        self.keep_up()

    @rule(with_a_sampler=st.booleans())
    def save_and_load(self, with_a_sampler):
        self.memory.save(self.folder.name)
        loaded = ReplayMemory.load(self.folder.name, sampler=self.new_sampler() if with_a_sampler else None)
        if any(self.expected.values()):
            np.testing.assert_array_equal(self.memory.sample(9).index, loaded.sample(9).index)
        self.memory = loaded

    @rule()
    def draw_by_another_sampler_for_a_while(self):
        self.memory.sampler = Uniform()
        self.take_steps(5)
        self.memory.sampler = self.new_sampler()
        self.expected, self.largest = dict.fromkeys(self.expected, 1.0), 1.0

    @invariant()
    def all_priorities_are_what_they_should_be(self):
        saved, arrays = self.memory.inner.parts.notified_sampler.state()
        spans = arrays["sampler.runs"].tolist()
        indices = [index for first, count in spans for index in range(first, first + count)]
        assert self.expected == dict(zip(indices, arrays["sampler.weights"].tolist(), strict=True))
        assert self.largest == saved["state"]["largest"]


class PriorityMachineOfBlocks(PriorityMachine):
    retention = "random"


@pytest.mark.parametrize("machine", [PriorityMachine, PriorityMachineOfBlocks])
def test_priorities_are_those_of_a_dict_after_any_operations(machine):
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=20, deadline=None))


@pytest.mark.exhaustive
@pytest.mark.parametrize("machine", [PriorityMachine, PriorityMachineOfBlocks])
def test_priorities_are_those_of_a_dict_after_very_many_operations(machine):
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
