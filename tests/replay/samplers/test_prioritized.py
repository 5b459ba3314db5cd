"""Prioritized: what is drawn, with which weights, and what an update does."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow import FrameSpec, Prioritized, ReplayMemory, Sampler, Uniform
from framestow.errors import InvalidSettingsError, NothingToSampleError
from oracles.numbered_steps import numbered_memory, play_episode


def error_of(indices: np.ndarray) -> np.ndarray:
    """TD errors of either sign, some of them far larger than others."""
    return np.where(indices % 2, -1.0, 1.0) * (1 + indices % 5) * np.where(indices % 11, 1.0, 20.0)


def law(indices: np.ndarray, alpha: float, epsilon: float = 1e-6) -> np.ndarray:
    weights = (np.abs(error_of(indices)) + epsilon) ** alpha
    return weights / weights.sum()


def with_errors(memory: ReplayMemory) -> np.ndarray:
    """Update all priorities; return the indices of the stored transitions."""
    stored = memory.sampleable_indices()
    memory.update_priorities(stored, error_of(stored))
    return stored


@pytest.mark.parametrize("beta", [0.0, 0.4, 0.5, 1.0])
def test_weights_are_those_of_the_paper_with_the_maximum_over_all_stored_transitions(beta):
    memory = numbered_memory(50, sampler=Prioritized(alpha=0.6, beta=beta))
    play_episode(memory, 0, length=70)
    stored = with_errors(memory)

    batch = memory.sample(64)

    chances = law(stored, alpha=0.6)
    weights = (len(stored) * chances) ** -beta
    expected = (weights / weights.max())[np.searchsorted(stored, batch.index)]
    np.testing.assert_allclose(batch.weight, expected, rtol=1e-5)


def test_a_batch_has_one_draw_from_each_of_its_equal_parts_of_the_sum():
    memory = numbered_memory(64, sampler=Prioritized(alpha=1.0))
    play_episode(memory, 0, length=64)

    for _ in range(20):
        assert list(range(64)) == memory.sample(64).index.tolist()


def priorities_of(memory: ReplayMemory) -> dict[int, float]:
    """Return the saved weights of all stored transitions, by index."""
    _, arrays = memory.inner.parts.notified_sampler.state()
    indices = [index for first, count in arrays["sampler.runs"].tolist() for index in range(first, first + count)]
    return dict(zip(indices, arrays["sampler.weights"].tolist(), strict=True))


@pytest.mark.parametrize(
    "update",
    [
        (np.array([0, 1, 0]), np.array([-50.0, 2.0, 3.0], np.float32)),
        ([[0, 0], [0, 1]], [[50.0, 20.0], [3.0, 2.0]]),
    ],
    ids=["float32", "rows"],
)
def test_a_new_transition_has_no_priority_that_a_later_one_of_the_same_update_replaced(update):
    memory = numbered_memory(10, sampler=Prioritized(alpha=1.0, epsilon=0.0))
    play_episode(memory, 0, length=2)

    memory.update_priorities(*update)
    play_episode(memory, 1, length=1)

    assert {0: 3.0, 1: 2.0, 2: 3.0} == priorities_of(memory)


def test_a_new_transition_has_no_priority_of_an_evicted_one_or_of_a_refused_update():
    memory = numbered_memory(10, sampler=Prioritized(alpha=1.0, epsilon=0.0))
    play_episode(memory, 0, length=10)
    play_episode(memory, 1, length=3)

    memory.update_priorities([0, 12, -1, 1], [70.0, 4.0, 80.0, 90.0])
    with pytest.raises(InvalidSettingsError, match="priority of transition 11 is nan"):
        memory.update_priorities([12, 11], [60.0, np.nan])
    with pytest.raises(InvalidSettingsError, match="must be finite in float32"):
        memory.update_priorities([12, 11], [60.0, 1e200])
    play_episode(memory, 2, length=1)

    assert {12: 4.0, 13: 4.0} == {index: priorities_of(memory)[index] for index in (12, 13)}


def test_a_transition_with_priority_0_is_not_drawn_until_an_update():
    memory = numbered_memory(10, sampler=Prioritized(epsilon=0.0))
    play_episode(memory, 0, length=5)
    memory.update_priorities(np.arange(5), [0.0, 1.0, 0.0, 1.0, 0.0])

    assert {1, 3} == set(memory.sample(1000).index.tolist())
    memory.update_priorities([1, 3], [0.0, 0.0])
    with pytest.raises(NothingToSampleError, match="all 5 transitions have priority 0: none can be drawn;"):
        memory.sample(1)
    memory.update_priorities([4], [1e-12])
    assert {4} == set(memory.sample(10).index.tolist())


def test_beta_grows_by_equal_steps_a_draw_and_stays():
    memory = numbered_memory(10, sampler=Prioritized(beta=0.4, final_beta=1.0, annealed_over=3))
    play_episode(memory, 0, length=5)
    betas = []
    for _ in range(5):
        betas.append(memory.sampler.current_beta)
        memory.sample(7)

    np.testing.assert_allclose(betas, [0.4, 0.6, 0.8, 1.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"final_beta": 1.0}, "final_beta is 1.0 and annealed_over is None: one needs the other;"),
        ({"annealed_over": 5}, "final_beta is None and annealed_over is 5"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, fault):
    with pytest.raises(InvalidSettingsError, match=re.escape(fault)):
        Prioritized(**settings)


@pytest.mark.parametrize(
    ("indices", "priorities", "fault"),
    [
        (
            [0, 1],
            [1.0],
            "priorities have shape (1,) and indices (2,): each transition has one; give arrays of the same shape",
        ),
        ([0, 1], [[1.0], [2.0]], "priorities have shape (2, 1) and indices (2,)"),
        ([3, 1], [1.0, np.nan], "priority of transition 1 is nan: priorities must be finite;"),
        ([3, 1], np.float32([np.inf, 1]), "priority of transition 3 is inf"),
        ([0.5], [1.0], "indices have dtype float64: they must be integers; cast them"),
        ([0], ["high"], "priorities have dtype <U4: they must be real numbers; cast them"),
        ([0, 1], [[1.0], [2.0, 3.0]], "priorities cannot be converted to an array"),
        ([0], [1e200], "a priority is 1e+200: to the power of alpha=0.6 it must be finite in float32;"),
    ],
)
def test_priorities_that_cannot_work_are_refused_and_change_nothing(indices, priorities, fault):
    memory = numbered_memory(10, sampler=Prioritized())
    play_episode(memory, 0, length=5)
    with_errors(memory)
    before = priorities_of(memory)

    with pytest.raises(InvalidSettingsError, match=re.escape(fault)):
        memory.update_priorities(indices, priorities)

    assert before == priorities_of(memory)


def test_a_sampler_without_priorities_refuses_them():
    memory = numbered_memory(10)
    play_episode(memory, 0, length=5)

    with pytest.raises(
        InvalidSettingsError, match="sampler is a Uniform: it does not use priorities; build the memory"
    ):
        memory.update_priorities([0], [1.0])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64, np.bool_])
def test_priorities_of_any_number_kind_are_accepted(kind):
    memory = numbered_memory(10, sampler=Prioritized(alpha=1.0, epsilon=0.0))
    play_episode(memory, 0, length=2)

    memory.update_priorities(np.array([0, 1], np.int32), np.array([1, 0], kind))

    assert {0: 1.0, 1: 0.0} == priorities_of(memory)


@pytest.mark.slow  # loads PyTorch
def test_tensors_of_the_cpu_are_taken_and_one_with_a_gradient_says_what_to_do():
    torch = pytest.importorskip("torch")
    memory = numbered_memory(10, sampler=Prioritized(alpha=1.0, epsilon=0.0))
    play_episode(memory, 0, length=3)

    memory.update_priorities(torch.tensor([0, 2]), torch.tensor([2.0, 3.0]))

    assert {0: 2.0, 1: 1.0, 2: 3.0} == priorities_of(memory)
    with pytest.raises(
        InvalidSettingsError,
        match=r"priorities cannot be converted to an array .* give priorities\.detach\(\)\.cpu\(\)",
    ):
        memory.update_priorities(torch.tensor([0]), torch.tensor([2.0], requires_grad=True))


def test_the_bytes_of_the_priorities_are_a_part_of_the_report():
    memory = memory_of_vectors(30_000, Prioritized())
    take_steps(memory, 20_000)
    memory.sample(1)

    assert 4.8 <= memory.report().parts["priorities"] / 20_000 <= 5.0
    memory.sampler = Uniform()
    assert "priorities" not in memory.report().parts


def memory_of_vectors(capacity: int, sampler: Sampler, **settings) -> ReplayMemory:
    """Vectors take the same room whatever they hold."""
    memory = ReplayMemory(
        capacity, FrameSpec((4,), np.float32), 2, stack=1, num_envs=8, sampler=sampler, seed=0, **settings
    )
    memory.begin(np.zeros((8, 4), np.float32))
    return memory


def take_steps(memory: ReplayMemory, count: int) -> None:
    nothing = [False] * 8
    for number in range(count // 8):
        memory.append([0] * 8, [0.0] * 8, nothing, nothing, np.zeros((8, 4), np.float32))
        if memory.inner.settings.max_bytes is not None and number % 50 == 0:
            memory.sample(8)
            assert memory.nbytes <= memory.inner.settings.max_bytes


def test_a_budget_includes_the_priorities():
    stored = {}
    for sampler in (Uniform(), Prioritized()):
        memory = memory_of_vectors(10**6, sampler, max_bytes="1 MiB", frames_per_segment=64)
        take_steps(memory, 40_000)
        stored[type(sampler).__name__] = len(memory)

    assert 0.6 * stored["Uniform"] < stored["Prioritized"] < 0.95 * stored["Uniform"]
    memory.sampler = Uniform()
    take_steps(memory, 20_000)
    assert abs(stored["Uniform"] - len(memory)) <= 8 * 64


def test_a_capacity_whose_priorities_need_half_of_the_budget_is_refused_with_the_largest_that_does_not():
    largest = (2**20 // 2 - 2**16) * 64
    expected = "a table for the Prioritized of so many transitions may take .* of 1.0 MiB in max_bytes; lower it to at "

    with pytest.raises(InvalidSettingsError, match=f"^capacity is {10 * largest}: {expected}most {largest}$"):
        memory_of_vectors(10 * largest, Prioritized(), max_bytes="1 MiB", frames_per_segment=64)
    memory = memory_of_vectors(10 * largest, Uniform(), max_bytes="1 MiB", frames_per_segment=64)
    take_steps(memory, 800)
    with pytest.raises(InvalidSettingsError, match=expected):
        memory.sampler = Prioritized()

    assert isinstance(memory.sampler, Uniform)
    assert 800 == len(memory)
    memory_of_vectors(largest, Prioritized(), max_bytes="1 MiB", frames_per_segment=64)


def test_switching_to_priorities_under_a_budget_evicts_transitions_at_once():
    memory = memory_of_vectors(10**6, Uniform(), max_bytes="1 MiB", frames_per_segment=64)
    take_steps(memory, 40_000)
    before = len(memory)

    memory.sampler = Prioritized()

    assert len(memory) < before
    assert memory.sample(8).index.min() >= memory.sampleable_indices()[0]
    assert memory.nbytes <= 2**20
