"""n-step returns, extras, Dict observations, any sampler and any retention at once, against lists, after any calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import ByAge, EmphasizeRecent, Mixture, Prioritized, ReplayMemory, Uniform
from framestow.errors import NothingToSampleError
from oracles.numbered_sequence import COLUMNS, KEYED, NUM_ACTIONS, PICTURE, NumberedSequence
from replay.eviction.test_random_retention import fewest

SAMPLERS = {
    "uniform": Uniform,
    "prioritized": Prioritized,
    "recent": lambda: EmphasizeRecent(0.99, 5, 10),
    "age": lambda: ByAge(20),
    "mixture": lambda: Mixture((Uniform(), 0.3), (Prioritized(), 0.7)),
}
CALLS = ["play", "play", "play on", "cut off", "sample", "priorities", "switch", "load", "sequences", "episodes", "all"]

settings_of_a_memory = st.fixed_dictionaries(
    {
        "capacity": st.integers(3, 120),
        "num_envs": st.integers(1, 3),
        "stack": st.integers(1, 4),
        "stack_padding": st.sampled_from(["first_frame", "zeros"]),
        "n_step": st.sampled_from([1, 2, 3, 7, 40]),
        "discount": st.sampled_from([0.9, 1.0]),
        "storage": st.sampled_from(["packed", "raw"]),
        "retention": st.sampled_from(["fifo", "fifo", "random"]),
        "frames_per_segment": st.sampled_from([16, None]),
        "seed": st.integers(0, 1000),
    }
)


class PriorityLists:
    """What ``Prioritized`` knows, by index: (|error| + epsilon) ** alpha, and of new ones the largest so far."""

    def __init__(self, alpha: float, epsilon: float) -> None:
        self.alpha, self.epsilon, self.largest = alpha, epsilon, 1.0
        self.weights: dict[int, float] = {}

    def tell(self, held: np.ndarray) -> None:
        """What is held when the sampler draws, is updated or saved."""
        self.weights = {index: self.weights.get(index, self.largest) for index in held.tolist()}

    def update(self, indices: np.ndarray, errors: np.ndarray) -> None:
        last = dict(zip(indices.tolist(), errors.tolist(), strict=True))  # the last row of a repeated index counts
        for index, error in last.items():
            if index in self.weights:
                self.weights[index] = (abs(error) + self.epsilon) ** self.alpha
                self.largest = max(self.largest, self.weights[index])

    def assert_drew(self, batch, beta: float) -> None:
        """A stratified draw takes each as often as its share says, give or take the two strata that it shares."""
        weights = np.array(list(self.weights.values()))
        shares = weights / weights.sum()
        counts = dict.fromkeys(self.weights, 0)
        for index in batch.index.tolist():
            counts[index] += 1
        assert np.abs(np.array(list(counts.values())) - len(batch) * shares).max() < 2.001
        drawn = np.array([self.weights[index] for index in batch.index.tolist()])
        np.testing.assert_allclose(batch.weight, (weights.min() / drawn) ** beta, rtol=1e-4)


class Everything:
    """One memory, its sequence, and what is called of it."""

    def __init__(self, space, sampler: str, folder, **asked) -> None:
        self.folder, self.sampler = folder, sampler
        if asked["retention"] == "random":
            asked["capacity"] += fewest(asked["num_envs"], asked["stack"])
        asked["capacity"] = max(asked["capacity"], asked["num_envs"] * asked["n_step"])
        memory = ReplayMemory(
            observation_space=space,
            action_space=NUM_ACTIONS,
            sampler=SAMPLERS[sampler](),
            extras=COLUMNS,
            **asked,
        )
        self.priorities_known = PriorityLists(0.6, 1e-6)
        self.sequence = NumberedSequence(memory, space, asked["seed"])
        self.random = np.random.default_rng(asked["seed"])

    @property
    def memory(self) -> ReplayMemory:
        return self.sequence.memory

    def call(self, name: str) -> None:
        getattr(self, name.replace(" ", "_"))()
        self.sequence.assert_all_is_right()

    def play(self) -> None:
        for _ in range(self.random.integers(1, 60)):
            self.sequence.step(end_chance=0.05)

    def play_on(self) -> None:
        for _ in range(self.random.integers(1, 200)):
            self.sequence.step(end_chance=0.0)

    def cut_off(self) -> None:
        env_ids = self.random.permutation(self.memory.num_envs)[: self.random.integers(1, 3)]
        self.sequence.start(sorted(env_ids.tolist()))

    def sample(self) -> None:
        if not len(self.memory):
            return
        self.tell()
        if self.sampler == "prioritized":
            batch = self.memory.sample(400)
            self.priorities_known.assert_drew(batch, beta=0.4)
        self.sequence.assert_is_right(self.memory.sample(int(self.random.integers(1, 40))))

    def tell(self) -> None:
        self.priorities_known.tell(self.memory.sampleable_indices())

    def priorities(self) -> None:
        if len(self.memory) and self.sampler in ("prioritized", "mixture"):
            self.tell()
            batch = self.memory.sample(20)
            for _ in range(self.random.integers(0, 9)):
                self.sequence.step(end_chance=0.3)
            stale = np.concatenate([batch.index, [0, 1, 10**9], batch.index[:3]])
            errors = self.random.standard_normal(len(stale)) * 10.0 ** self.random.integers(-3, 3)
            self.tell()
            self.memory.update_priorities(stale, errors)
            self.priorities_known.update(stale, errors)
            self.sample()

    def switch(self) -> None:
        self.sampler = list(SAMPLERS)[self.random.integers(len(SAMPLERS))]
        self.memory.sampler = SAMPLERS[self.sampler]()
        self.priorities_known = PriorityLists(0.6, 1e-6)
        self.tell()
        self.sample()

    def load(self) -> None:
        self.tell()
        self.memory.save(self.folder)
        loaded = ReplayMemory.load(self.folder, sampler=SAMPLERS[self.sampler]())
        if len(self.memory):
            for _ in range(3):
                expected, drawn = self.memory.sample(7), loaded.sample(7)
                assert expected.index.tolist() == drawn.index.tolist()
                assert expected.weight.tolist() == drawn.weight.tolist()
        self.sequence.memory = loaded

    def sequences(self) -> None:
        borders = ("mask", "inside", "cross")[self.random.integers(3)]
        length = int(self.random.integers(1, 12))
        overlap = int(self.random.integers(0, length)) if self.random.random() < 0.5 else None
        try:
            batch = self.memory.sample_sequences(
                int(self.random.integers(1, 9)), length=length, overlap=overlap, borders=borders
            )
        except NothingToSampleError:
            assert borders == "inside" or not len(self.memory)
            return
        self.sequence.assert_sequences_are_right(batch, borders)
        if overlap is not None and self.memory.inner.settings.retention == "fifo":
            for number in batch.extras["number"][:, 0].tolist():
                self.sequence.assert_is_a_start(number, length - overlap, borders)

    def episodes(self) -> None:
        try:
            batch = self.memory.sample_episodes(int(self.random.integers(1, 5)))
        except NothingToSampleError:
            return
        self.sequence.assert_sequences_are_right(batch, "mask")
        assert batch.is_first[:, 0].all()
        for row, length in enumerate(batch.mask.sum(axis=1).tolist()):
            episode = self.sequence.steps[int(batch.extras["number"][row, 0])].episode
            assert episode.is_over
            assert len(episode.numbers) == length

    def all(self) -> None:
        seen = [self.sequence.assert_is_right(batch) for batch in self.memory.batches(33, shuffled=True, seed=1)]
        assert sorted(number for numbers in seen for number in numbers.tolist()) == sorted(
            self.memory.get(self.memory.sampleable_indices()).extras["number"].tolist() if len(self.memory) else []
        )


@pytest.mark.parametrize("max_examples", [12, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_after_any_calls_sampled_transitions_are_those_that_were_stored(max_examples, tmp_path):
    @settings(max_examples=max_examples)
    @given(
        asked=settings_of_a_memory,
        space=st.sampled_from([PICTURE, KEYED]),
        sampler=st.sampled_from(list(SAMPLERS)),
        calls=st.lists(st.sampled_from(CALLS), min_size=3, max_size=12),
    )
    def whatever_is_called(asked, space, sampler, calls):
        everything = Everything(space, sampler, folder=tmp_path / "memory", **asked)
        for call in calls:
            everything.call(call)

    whatever_is_called()
