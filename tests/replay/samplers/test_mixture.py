"""Mixture gives every part its share of every batch, and everything else that it would have alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from framestow import ByAge, EmphasizeRecent, Mixture, Prioritized, Uniform
from framestow.errors import InvalidSettingsError
from framestow.replay.samplers.sampler import Draw, Sampler
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.numbered_transitions import NumberedTransitions


class Always(Sampler):
    """Draws one rank, with one weight, and records its notifications."""

    watches_slots = True
    nbytes = 10
    bytes_a_step = 3

    def __init__(self, rank: int, weight: float = 1.0) -> None:
        self.rank, self.weight = rank, weight
        self.slots: list[list[int]] = []
        self.priorities: list[tuple[list[int], list[float]]] = []

    def draw(self, batch_size, transitions, generator):
        indices = transitions.sampleable_at(np.full(batch_size, self.rank, np.int64))
        return Draw(indices, np.full(batch_size, self.weight, np.float32))

    def slots_changed(self, slots, transitions):
        self.slots.append(slots.tolist())

    def update_priorities(self, indices, priorities, transitions):
        self.priorities.append((indices.tolist(), priorities.tolist()))

    def state(self, transitions) -> dict[str, Any]:
        return {"rank": self.rank, "slots": np.array(self.slots)}

    def restore(self, state, transitions):
        self.rank, self.slots = state["rank"], state["slots"].tolist()


TRANSITIONS = NumberedTransitions(10)


def counts_of(shares: list[float], batch_size: int, num_batches: int) -> np.ndarray:
    """How many of each batch each part drew."""
    mixture = Mixture(*((Always(number), share) for number, share in enumerate(shares)))
    generator = np.random.default_rng(0)
    drawn = [mixture.draw(batch_size, TRANSITIONS, generator).indices for _ in range(num_batches)]
    return np.array([np.bincount(indices, minlength=len(shares)) for indices in drawn])


@pytest.mark.parametrize(
    ("shares", "batch_size", "expected"),
    [
        ([0.5, 0.5], 32, [16, 16]),
        ([0.55, 0.45], 100, [55, 45]),
        ([0.1, 0.2, 0.7], 10, [1, 2, 7]),
        ([3, 1], 256, [192, 64]),
        ([1 / 3, 1 / 3, 1 / 3], 333_333, [111_111, 111_111, 111_111]),
        ([5], 7, [7]),
    ],
)
def test_shares_that_divide_a_batch_are_exact(shares, batch_size, expected):
    assert [expected] * 20 == counts_of(shares, batch_size, num_batches=20).tolist()


@pytest.mark.parametrize("shares", [[0.5, 0.5], [0.3, 0.3, 0.4], [1, 1e-3], [0.15, 0.7, 0.15], [2, 3, 5, 7]])
@pytest.mark.parametrize("batch_size", [1, 3, 10, 33])
def test_other_shares_are_rounded_to_either_side_and_right_on_average(shares, batch_size):
    num_batches = 1000
    counts = counts_of(shares, batch_size, num_batches)

    exact = np.array(shares) / sum(shares) * batch_size
    assert (counts.sum(axis=1) == batch_size).all()
    assert (np.abs(counts - exact) < 1).all()
    parts = exact - np.floor(exact)
    spread = np.sqrt(parts * (1 - parts) / num_batches)
    assert (np.abs(counts.mean(axis=0) - exact) <= 4 * spread + 1e-9).all()  # four standard deviations


def test_each_part_is_in_its_place_with_the_weights_of_its_sampler():
    mixture = Mixture((Always(3, weight=0.25), 1), (Always(7, weight=0.5), 2))

    indices, weights = mixture.draw(6, TRANSITIONS, np.random.default_rng(0))

    assert [3, 3, 7, 7, 7, 7] == indices.tolist()
    assert [0.25, 0.25, 0.5, 0.5, 0.5, 0.5] == weights.tolist()


@pytest.mark.parametrize(
    ("notify", "slots"),
    [
        (lambda mixture: mixture.slots_changed(np.array([4, 2]), TRANSITIONS), [4, 2]),
        (lambda mixture: mixture.begin(NumberedTransitions(3)), [0, 1, 2]),
    ],
    ids=["of changes", "of the beginning"],
)
def test_every_part_that_watches_slots_is_notified(notify, slots):
    first, second = Always(0), Always(1)
    mixture = Mixture((Uniform(), 1), (first, 1), (Mixture((second, 1), (ByAge(3), 1)), 1))

    notify(mixture)

    assert mixture.watches_slots
    assert [slots] == first.slots == second.slots


def test_a_part_of_another_class_than_the_saved_one_starts_without_state():
    saved = Mixture((Uniform(), 1), (Always(2), 1), (Always(3), 1)).state(TRANSITIONS)
    first, second, third = Always(5), Always(6), Always(7)

    Mixture((first, 1), (second, 1), (Uniform(), 1), (third, 1)).restore(saved, NumberedTransitions(2))

    assert ([[0, 1]], [], [[0, 1]]) == (first.slots, second.slots, third.slots)
    assert (5, 2, 7) == (first.rank, second.rank, third.rank)


def test_a_mixture_of_samplers_that_watch_nothing_watches_nothing():
    assert not Mixture((Uniform(), 1), (ByAge(3), 1), (EmphasizeRecent(), 1)).watches_slots


def test_every_part_that_uses_priorities_gets_all_of_them():
    first, second = Always(0), Always(1)
    mixture = Mixture(
        (Uniform(), 1), (first, 1), (Mixture((second, 1), (ByAge(3), 1)), 1), (Mixture((Uniform(), 1)), 1)
    )

    mixture.update_priorities(np.array([4, 2]), np.array([0.5, 0.25]), TRANSITIONS)

    assert [([4, 2], [0.5, 0.25])] == first.priorities == second.priorities


def test_priorities_that_one_part_refuses_change_no_part():
    parts = Prioritized(alpha=0.5), Prioritized(alpha=0.25), Prioritized(alpha=10.0)
    mixture = Mixture((parts[0], 1), (Mixture((parts[1], 1), (parts[2], 1)), 1))
    memory = numbered_memory(100, sampler=mixture)
    play_episode(memory, 0, length=10, terminated=True)

    with pytest.raises(InvalidSettingsError, match=r"a priority is 100000.0: to the power of alpha=10.0"):
        memory.update_priorities([4, 2], [3.0, 1e5])

    for part in parts:
        assert [1.0] * 10 == part.chances(np.arange(10), memory.inner.steps).priorities.tolist()


def test_priorities_are_refused_if_no_part_uses_them():
    mixture = Mixture((Uniform(), 1), (Mixture((ByAge(3), 1)), 1))

    with pytest.raises(InvalidSettingsError, match="Mixture"):
        mixture.update_priorities(np.array([4]), np.array([0.5]), TRANSITIONS)


def test_its_bytes_are_those_of_its_parts():
    mixture = Mixture((Uniform(), 1), (Always(0), 1), (Mixture((Always(1), 1)), 1))

    assert (20, 6) == (mixture.nbytes, mixture.bytes_a_step)


def test_every_part_is_restored():
    def make(rank: int) -> Mixture:
        return Mixture((Always(rank), 1), (Mixture((EmphasizeRecent(0.99, 7, 1), 1), (Always(rank + 1), 1)), 3))

    mixture = make(rank=2)
    mixture.slots_changed(np.array([1]), TRANSITIONS)
    for _ in range(4):
        mixture.draw(8, TRANSITIONS, np.random.default_rng(0))
    restored = make(rank=5)

    restored.restore(mixture.state(TRANSITIONS), TRANSITIONS)

    generators = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(10):
        expected, drawn = (
            one.draw(9, TRANSITIONS, by) for one, by in zip((mixture, restored), generators, strict=True)
        )
        assert expected.indices.tolist() == drawn.indices.tolist()


def test_a_mixture_without_parts_is_refused():
    with pytest.raises(InvalidSettingsError, match="the mixture has no parts: "):
        Mixture()


def test_one_sampler_cannot_be_two_parts():
    sampler = Always(0)

    for parts in ((sampler, 1), (sampler, 1)), ((sampler, 1), (Mixture((Uniform(), 1), (sampler, 1)), 1)):
        with pytest.raises(InvalidSettingsError, match="one sampler is two parts of the mixture: "):
            Mixture(*parts)


@pytest.mark.parametrize(
    "part", [Uniform(), (Uniform(),), (Uniform(), 1, 2), [Uniform(), 1]], ids=["no pair", "one", "three", "a list"]
)
def test_a_part_that_is_not_a_pair_is_refused(part):
    with pytest.raises(InvalidSettingsError, match=r"a part of the mixture is .* it must be a pair; "):
        Mixture((Uniform(), 1), part)


def test_a_part_that_is_a_class_is_refused():
    with pytest.raises(InvalidSettingsError, match=r"sampler is <class .*Uniform'>: it must be a sampler object; "):
        Mixture((Uniform, 1))
