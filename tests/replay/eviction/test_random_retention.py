"""Random retention: stored transitions are correct and unique, and evictions are uniformly random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory
from oracles.chi_square import chi_square, chi_square_bound
from oracles.evicting_memory import EvictingListMemory, ObservedMemory
from oracles.numbered_steps import SHAPE, numbered_memory, play_episode
from replay.test_memory_against_the_oracle import COLUMNS, MemoryMachine

MOST_STEPS = 10**6


def fewest(num_envs: int, stack: int, frames_per_segment: int | None = None) -> int:
    """The smallest capacity, as docs/saving.md has it."""
    return (frames_per_segment or max(16, 4 * stack)) * (num_envs + 16) + num_envs * stack


class RandomRetentionMachine(MemoryMachine):
    """The operations of ``MemoryMachine`` with random retention; actions are the numbers of the transitions."""

    @initialize(
        extra=st.integers(0, 100),
        num_envs=st.integers(1, 3),
        stack=st.integers(1, 5),
        stack_padding=st.sampled_from(STACK_PADDINGS),
        shape=st.sampled_from([(1, 1), (5, 4, 3), (3, 9, 7)]),
        extras=st.sampled_from(COLUMNS),
        n_step=st.one_of(st.integers(1, 10), st.sampled_from([20, 70])),
        seed=st.integers(0, 2**32 - 1),
    )
    def build(self, extra, num_envs, stack, stack_padding, shape, extras, n_step, seed):
        capacity = fewest(num_envs, stack) + extra
        super().build(capacity, num_envs, stack, stack_padding, shape, extras, n_step, seed)
        self.begin_anew(list(range(num_envs)))
        while len(self.oracle.steps) < 1.2 * self.memory.capacity:
            self.step_once(end_chance=0.05)

    @precondition(lambda self: any(self.oracle.is_open))
    @rule(num_steps=st.integers(50, 300), end_chance=st.sampled_from([0.0, 0.05, 0.5]))
    def play(self, num_steps, end_chance):
        for _ in range(num_steps):
            self.step_once(end_chance)

    @precondition(lambda self: len(self.memory))
    @rule(batch_size=st.integers(1, 9))
    def sample(self, batch_size):
        self.assert_is_what_the_oracle_holds(self.memory.sample(batch_size))

    @rule()
    def save_and_load(self):
        self.memory.save(self.save_folder)
        loaded = ObservedMemory.load(self.save_folder)
        if len(self.memory):
            np.testing.assert_array_equal(self.memory.sample(5).index, loaded.sample(5).index)
        loaded.observe_evictions(self.oracle.frames_evicted)
        self.memory = loaded

    def everything_sampleable_is_what_the_oracle_holds(self):
        self.memory.inner.parts.check()
        indices = self.memory.sampleable_indices()
        assert len(self.memory) == len(indices) <= self.memory.capacity
        if len(indices):
            numbers = self.assert_is_what_the_oracle_holds(self.memory.get(indices))
            assert self.oracle.held == sorted(numbers)
            for index, number in zip(indices.tolist(), numbers, strict=True):
                assert number == self.number_of.setdefault(index, number), f"index {index} was given twice"

    def make(self, capacity, **settings) -> None:
        storage, seed, extras = (settings.pop(name) for name in ("storage", "seed", "extras"))
        self.memory = ObservedMemory(
            capacity,
            FrameSpec(self.shape),
            MOST_STEPS,
            storage=storage,
            seed=seed,
            retention="random",
            extras=extras,
            **settings,
        )
        self.oracle = EvictingListMemory(capacity, **settings)
        self.memory.observe_evictions(self.oracle.frames_evicted)
        self.number_of: dict[int, int] = {}

    def new_actions(self, count: int) -> np.ndarray:
        return np.arange(len(self.oracle.steps), len(self.oracle.steps) + count)

    def numbers_by_index(self) -> dict[int, int]:
        indices = np.array(list(self.number_of), np.int64)
        return {index: self.number_of[index] for index in indices[self.memory.inner.steps.are_stored(indices)].tolist()}

    def assert_is_what_the_oracle_holds(self, batch) -> list[int]:
        numbers, oracle = batch.action.tolist(), self.oracle
        last_steps = [oracle.steps_of(number)[-1] for number in numbers]
        np.testing.assert_array_equal([oracle.reward_of(number) for number in numbers], batch.reward)
        np.testing.assert_array_equal([step.terminated for step in last_steps], batch.terminated)
        np.testing.assert_array_equal([step.truncated for step in last_steps], batch.truncated)
        np.testing.assert_array_equal([oracle.discount_of(number) for number in numbers], batch.discount)
        for name, values in batch.extras.items():
            np.testing.assert_array_equal([oracle.steps[number].extras[name] for number in numbers], values)
        assert self.extras.keys() == batch.extras.keys()
        expected = np.stack([oracle.observation_of(number) for number in numbers])
        np.testing.assert_array_equal(expected, batch.observation)
        expected = np.stack([oracle.next_observation_of(number) for number in numbers])
        np.testing.assert_array_equal(expected, batch.next_observation)
        return numbers


@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("max_examples", [3, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_every_sampleable_transition_is_correct_after_any_evictions(storage, max_examples, tmp_path):
    machine = type("Machine", (RandomRetentionMachine,), {"storage": storage, "save_folder": tmp_path / "memory"})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=12,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def with_evictions(seed: int = 3) -> ReplayMemory:
    memory = numbered_memory(fewest(2, stack=2), num_envs=2, seed=seed, retention="random")
    for episode in range(150):
        for env_id in range(2):
            play_episode(memory, episode, length=1 + (7 * episode + env_id) % 23, env_id=env_id, truncated=True)
    return memory


def test_each_sealed_segment_is_equally_likely_to_be_evicted():
    memory = ObservedMemory(1000, FrameSpec((1, 1)), 4, stack=2, retention="random", seed=0)
    frame, num_frames, evicted, ranks = np.zeros((1, 1, 1), np.uint8), 1, set(), []

    def note(env_id: int, first: int, before: int) -> None:
        sealed = [
            start for start in range(0, num_frames - (before - first) + 1, before - first) if start not in evicted
        ]
        ranks.append((sealed.index(first), len(sealed)))
        evicted.add(first)

    memory.observe_evictions(note)
    memory.begin(frame)
    for _ in range(40_000):
        memory.append([0], [0.0], [False], [False], frame)
        num_frames += 1

    assert {num_sealed for _, num_sealed in ranks} == {17}
    assert chi_square(np.bincount([rank for rank, _ in ranks], minlength=17)) < chi_square_bound(16)


def test_a_loaded_memory_continues_with_the_same_random_evictions(tmp_path):
    memory = with_evictions()
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path)
    for one in (memory, loaded):
        for env_id in range(2):
            for episode in (200, 201, 202):
                play_episode(one, episode, length=150, env_id=env_id)

    assert memory.sampleable_indices().tolist() == loaded.sampleable_indices().tolist()
    np.testing.assert_array_equal(memory.observations(), loaded.observations())
    assert memory.sample(50).index.tolist() == loaded.sample(50).index.tolist()


class StoredSteps:
    """The steps that a memory stores, by environment and newest frame, and the segments that it evicted."""

    def __init__(self, memory: ObservedMemory) -> None:
        self.numbers: set[tuple[int, int]] = set()
        self.evicted: set[tuple[int, int]] = set()
        self.segment_frames = 0  # known from the first eviction on
        memory.observe_evictions(self.evict)

    def evict(self, env_id: int, first: int, before: int) -> None:
        self.numbers -= {(env_id, number) for number in range(first, before)}
        self.segment_frames = before - first
        self.evicted.add((env_id, first // self.segment_frames))

    @property
    def num_holes(self) -> int:
        return len(self.evicted - {(env_id, number + 1) for env_id, number in self.evicted})


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    capacity=st.integers(1, 900),
    num_envs=st.integers(1, 4),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 4),
    frames=st.one_of(st.none(), st.integers(1, 40)),
    end_chance=st.sampled_from([0.0, 0.02, 0.5]),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_memory_never_exceeds_its_capacity_and_once_full_stores_at_most_a_segment_less(
    capacity, num_envs, stack, n_step, frames, end_chance, seed
):
    frames = None if frames is None else max(frames, stack + 1)
    shape = {"num_envs": num_envs, "stack": stack, "n_step": n_step, "frames_per_segment": frames}
    try:
        memory = ObservedMemory(capacity, FrameSpec((1, 1)), 4, retention="random", seed=seed, **shape)
    except InvalidSettingsError:
        capacity = fewest(num_envs, stack, frames)
        memory = ObservedMemory(capacity, FrameSpec((1, 1)), 4, retention="random", seed=seed, **shape)
    rng, stored, newest, num_steps = np.random.default_rng(seed), StoredSteps(memory), [-1] * num_envs, 0

    while num_steps < 3 * capacity:
        envs = np.flatnonzero(rng.random(num_envs) < rng.choice([0.5, 1.0]))
        for env in envs[~memory.open_episodes[envs]].tolist():
            memory.begin(np.zeros((1, 1, 1), np.uint8), [env])
            newest[env] += 1
        ends, zeros = rng.random(len(envs)) < end_chance, np.zeros(len(envs))
        memory.append(zeros.astype(int), zeros, ends, zeros > 0, np.zeros((len(envs), 1, 1), np.uint8), envs)
        for env in envs.tolist():
            stored.numbers.add((env, newest[env]))
            newest[env] += 1
        num_steps += len(envs)

        assert len(memory) <= len(stored.numbers) <= capacity
        if stored.evicted:
            assert len(stored.numbers) > capacity - stored.segment_frames
            borders = stored.num_holes * (n_step + stack - 1)
            assert len(memory) >= len(stored.numbers) - borders - num_envs * (n_step - 1)


@pytest.mark.parametrize(
    ("num_envs", "stack", "frames"),
    [(5, 4, 320), (1, 4, 320), (2, 1, 8), (3, 2, 40), (1, 4, None), (8, 4, None), (1, 1, None), (2, 64, None)],
)
def test_segments_that_a_capacity_has_no_room_for_are_refused_with_the_smallest_capacity(num_envs, stack, frames):
    needed = fewest(num_envs, stack, frames)
    arguments = {"stack": stack, "num_envs": num_envs, "retention": "random", "frames_per_segment": frames}
    of_segments, smaller = "", ""
    if frames is not None:
        of_segments, smaller = f" and segments of {frames} frames", ", give a smaller frames_per_segment"

    with pytest.raises(
        InvalidSettingsError,
        match=f"^capacity is {needed - 1}: .* a stack of {stack}{of_segments} needs at least {needed} transitions, to "
        f"choose from 16 segments; raise it{smaller} or use 'fifo'$",
    ):
        ReplayMemory(needed - 1, FrameSpec(SHAPE), 4, **{"stack": 4} | arguments)
    assert needed == ReplayMemory(needed, FrameSpec(SHAPE), 4, **{"stack": 4} | arguments).capacity
