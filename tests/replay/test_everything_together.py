"""n-step returns, Dict observations, any sampler and any retention at once, after any calls; a list is the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import ByAge, EmphasizeRecent, FrameSpec, Mixture, Prioritized, ReplayMemory, Uniform
from framestow.errors import NothingToSampleError
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, readable_steps
from replay.eviction.test_random_retention import fewest

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual

SPACES: list[tuple[Any, Any]] = [
    (SMALL, 0),
    ({"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}, {"camera": 0}),
]
SAMPLERS = {
    "uniform": Uniform,
    "prioritized": Prioritized,
    "recent": lambda: EmphasizeRecent(0.99, 5, 10),
    "age": lambda: ByAge(20),
    "mixture": lambda: Mixture((Uniform(), 0.3), (Prioritized(), 0.7)),
}
CALLS = ["play", "play", "play", "sample", "priorities", "switch", "load", "sequences", "episodes", "all"]

settings_of_a_memory = st.fixed_dictionaries(
    {
        "capacity": st.integers(3, 120),
        "num_envs": st.integers(1, 3),
        "stack_padding": st.sampled_from(["first_frame", "zeros"]),
        "n_step": st.sampled_from([1, 2, 3, 6]),
        "storage": st.sampled_from(["packed", "raw"]),
        "retention": st.sampled_from(["fifo", "fifo", "random"]),
        "frames_per_segment": st.sampled_from([16, None]),
        "seed": st.integers(0, 1000),
    }
)


class Everything:
    """One memory, the list of its steps, and what is called of it."""

    def __init__(self, space: Any, stack_axis: Any, sampler: str, kinds: int, folder: Path, **asked: Any) -> None:
        self.folder, self.sampler, self.n_step = folder, sampler, asked["n_step"]
        self.is_random = asked["retention"] == "random"
        if self.is_random:
            asked["capacity"] += fewest(asked["num_envs"], stack=4)
        asked["capacity"] = max(asked["capacity"], asked["num_envs"] * asked["n_step"])
        memory = ReplayMemory(
            observation_space=space,
            action_space=NUM_ACTIONS,
            stack_axis=stack_axis,
            sampler=SAMPLERS[sampler](),
            discount=DISCOUNT,
            extras=EXTRAS,
            **asked,
        )
        layout = ObservationLayout.of_space(space, stack_axis)
        self.steps = AnyPlay(memory, layout, asked["seed"], mixes=True, kinds=kinds)
        self.random = np.random.default_rng(asked["seed"])
        self.number_of: dict[int, int] = {}  # by index, for ever

    @property
    def memory(self) -> ReplayMemory:
        return self.steps.memory

    def call(self, name: str) -> None:
        getattr(self, name)()
        self.memory.inner.parts.check()
        indices = self.memory.sampleable_indices()
        assert len(indices) == len(self.memory) <= self.memory.capacity
        numbers = self.assert_is_right(self.memory.get(indices)) if len(indices) else []
        if not self.is_random:
            assert self.steps.sampleable(self.memory.capacity, self.n_step) == numbers
        assert len(set(numbers)) == len(numbers)

    def assert_is_right(self, batch: Any) -> list[int]:
        """Compare a batch with the list; return the numbers of its steps."""
        self.steps.assert_batch(batch, self.n_step, lost=self.is_random)
        numbers: list[int] = batch.extras["number"].tolist()
        for index, number in zip(batch.index.tolist(), numbers, strict=True):
            assert number == self.number_of.setdefault(index, number), f"index {index} was given twice"
        return numbers

    def play(self) -> None:
        self.steps.play(int(self.random.integers(1, 200)))

    def sample(self) -> None:
        if len(self.memory):
            self.assert_is_right(self.memory.sample(int(self.random.integers(1, 40))))

    def priorities(self) -> None:
        if len(self.memory) and self.sampler in ("prioritized", "mixture"):
            batch = self.memory.sample(20)
            self.steps.play(int(self.random.integers(0, 9)))
            stale = np.concatenate([batch.index, [0, 1, 10**9], batch.index[:3]])
            self.memory.update_priorities(stale, self.random.standard_normal(len(stale)))
            self.sample()

    def switch(self) -> None:
        self.sampler = list(SAMPLERS)[self.random.integers(len(SAMPLERS))]
        self.memory.sampler = SAMPLERS[self.sampler]()
        self.sample()

    def load(self) -> None:
        self.memory.save(self.folder)
        loaded = ReplayMemory.load(self.folder)
        for _ in range(3 if len(self.memory) else 0):
            expected, drawn = self.memory.sample(7), loaded.sample(7)
            assert expected.index.tolist() == drawn.index.tolist()
            assert expected.weight.tolist() == drawn.weight.tolist()
        self.steps.memory = loaded

    def sequences(self) -> None:
        borders = ("mask", "inside", "cross")[self.random.integers(3)]
        length, batch_size = self.random.integers(1, [11, 9]).tolist()
        overlap = int(self.random.integers(0, length)) if self.random.random() < 0.5 else None
        try:
            batch = self.memory.sample_sequences(batch_size, length, overlap=overlap, borders=borders)
        except NothingToSampleError:
            assert borders == "inside" or not len(self.memory)
            return
        self.steps.assert_sequences(
            batch, borders, readable_steps(self.memory, self.steps), fewest=length if borders == "inside" else 1
        )

    def episodes(self) -> None:
        try:
            batch = self.memory.sample_episodes(int(self.random.integers(1, 5)))
        except NothingToSampleError:
            return
        self.steps.assert_sequences(batch, "mask", readable_steps(self.memory, self.steps))
        for number, length in zip(batch.extras["number"][:, 0].tolist(), batch.mask.sum(axis=1).tolist(), strict=True):
            assert self.steps.steps[number].offset == 0
            assert not self.steps.is_open(number)
            assert len(self.steps.rest_of(number)) == length

    def all(self) -> None:
        seen = [self.assert_is_right(batch) for batch in self.memory.batches(33, shuffled=True, seed=1)]
        held = [self.number_of[index] for index in self.memory.sampleable_indices().tolist()]
        assert sorted(held) == sorted(number for numbers in seen for number in numbers)


@pytest.mark.parametrize("max_examples", [12, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_after_any_calls_sampled_transitions_are_those_that_were_stored(max_examples, tmp_path):
    @settings(max_examples=max_examples, deadline=None)
    @given(
        asked=settings_of_a_memory,
        space=st.sampled_from(SPACES),
        sampler=st.sampled_from(list(SAMPLERS)),
        kinds=st.sampled_from([9, 60]),
        calls=st.lists(st.sampled_from(CALLS), min_size=3, max_size=12),
    )
    def whatever_is_called(asked, space, sampler, kinds, calls):
        everything = Everything(*space, sampler, kinds, folder=tmp_path / "memory", **asked)
        for call in calls:
            everything.call(call)

    whatever_is_called()
