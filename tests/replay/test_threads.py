"""A memory that is written by one thread and sampled by others at the same time, compared with lists."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, SMALL, AnyPlay, assert_same, row_of
from oracles.comparison import assert_batch_is_what_the_oracle_holds
from oracles.list_memory import ListMemory
from oracles.patience import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual

SHAPE = (12, 16)
CAPACITY, NUM_ENVS, STACK, NUM_ACTIONS = 400, 3, 3, 250
STORAGES = pytest.mark.parametrize("storage", ["packed", "raw"])
KEYED = {"camera": FrameSpec((4, 3, 5)), "arm": (FrameSpec((3,), np.float32), FrameSpec((2, 2), np.int16))}


def frame_of(env_id: int, episode: int, step: int) -> np.ndarray:
    """A frame that says in every row where it belongs, so that a mixture of two looks like neither."""
    row = np.array([env_id, episode % 256, episode // 256, step], np.uint8)
    frame = np.tile(row, (SHAPE[0], SHAPE[1] // len(row)))
    frame[step % SHAPE[0]] += np.uint8(1 + step)
    return frame


class Player:
    """Plays episodes of random lengths on all environments into a memory and, just before, into the oracle."""

    def __init__(self, memory: ReplayMemory, seed: int) -> None:
        self.memory = memory
        settings = memory.inner.settings
        self.oracle = ListMemory(
            memory.capacity, memory.num_envs, memory.stack, settings.discount, n_step=settings.n_step
        )
        self.rng = np.random.default_rng(seed)
        self.episodes, self.steps = [-1] * memory.num_envs, [0] * memory.num_envs
        self.begin(list(range(memory.num_envs)))

    def frames(self, env_ids: list[int]) -> np.ndarray:
        return np.stack([frame_of(env_id, self.episodes[env_id], self.steps[env_id]) for env_id in env_ids])

    def begin(self, env_ids: list[int]) -> None:
        for env_id in env_ids:
            self.episodes[env_id], self.steps[env_id] = self.episodes[env_id] + 1, 0
        self.oracle.begin(self.frames(env_ids), env_ids)
        self.memory.begin(self.frames(env_ids), env_ids)

    def step(self) -> None:
        """One step of some environments; the reward is the action; now and then an episode ends or is broken off."""
        env_ids = sorted(self.rng.permutation(self.memory.num_envs)[: self.rng.integers(1, 4)].tolist())
        for env_id in env_ids:
            self.steps[env_id] += 1
        actions = self.rng.integers(NUM_ACTIONS, size=len(env_ids))
        terminated, truncated = self.rng.random((2, len(env_ids))) < 0.04
        step = actions, actions.astype(np.float32), terminated, truncated, self.frames(env_ids), env_ids
        self.oracle.append(*step)
        self.memory.append(*step)
        ended = terminated | truncated | (self.rng.random(len(env_ids)) < 0.01)
        if ended.any():
            self.begin([env_id for env_id, has_ended in zip(env_ids, ended, strict=True) if has_ended])


@contextmanager
def running(work: Callable[[int], None], num_threads: int):
    """Repeat ``work(number)`` on threads until the block ends; fails with the first of their exceptions."""
    failures: list[BaseException] = []
    has_ended = threading.Event()

    def repeat(number: int) -> None:
        try:
            while not has_ended.is_set():
                work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=repeat, args=(number,), daemon=True) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        has_ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]


def make_memory(storage: str = "packed", **settings) -> ReplayMemory:
    settings = {"seed": 0, "num_envs": NUM_ENVS} | settings
    return ReplayMemory(CAPACITY, FrameSpec(SHAPE), NUM_ACTIONS, stack=STACK, storage=storage, **settings)


@pytest.mark.parametrize(("storage", "n_step"), [("packed", 1), ("raw", 1), ("packed", 3)])
def test_every_batch_equals_the_oracle_while_the_writer_sweeps_the_ring(storage, n_step):
    memory = make_memory(storage, n_step=n_step)
    player = Player(memory, seed=1)
    while not len(memory):
        player.step()
    num_batches = [0, 0, 0]

    def sample(number: int) -> None:
        oldest = memory.sampleable_indices()[0]
        batch = memory.sample(24) if number else memory.get(memory.sampleable_indices()[-24:])
        assert oldest <= batch.index.min()
        assert batch.index.max() < len(player.oracle.steps)
        assert_batch_is_what_the_oracle_holds(batch, player.oracle)
        assert memory.report().transitions <= CAPACITY
        num_batches[number] += 1

    with running(sample, 3) as failures:
        while not failures and (len(player.oracle.steps) < 6 * CAPACITY or min(num_batches) < 20):
            player.step()


@pytest.mark.each_value
@pytest.mark.slow  # more than two seconds
@STORAGES
@pytest.mark.parametrize(("space", "stack_axis", "n_step"), [(SMALL, 0, 1), (SMALL, 0, 3), (KEYED, {"camera": 0}, 1)])
def test_every_batch_is_what_was_given_while_any_observations_are_added(space, stack_axis, n_step, storage):
    settings = {"num_envs": 3, "n_step": n_step, "storage": storage, "frames_per_segment": 8, "seed": 0}
    memory = ReplayMemory(CAPACITY, space, 4, stack_axis=stack_axis, discount=DISCOUNT, extras=EXTRAS, **settings)
    play = AnyPlay(memory, ObservationLayout.of_space(space, stack_axis), seed=0, kinds=12).play(40)
    read: list[list] = [[], []]

    def sample(number: int) -> None:
        # Compared at the end: the list has a step only after its memory has it.
        batch = memory.sample(16) if number else memory.sample_sequences(8, 4, borders="cross")
        read[number] = [*read[number][-40:], batch.copy()]

    with running(sample, 2) as failures:
        while not failures and (len(play.steps) < 6 * CAPACITY or min(map(len, read)) < 20):
            play.play(1)

    for batch in read[1]:
        play.assert_batch(batch, n_step)
    for batch in read[0]:
        for row, place in np.argwhere(batch.mask).tolist():
            step = play.steps[batch.index[row, place]]
            assert_same(step.observation, row_of(batch.observation, (row, place)))
            assert_same(step.next_observation, row_of(batch.next_observation, (row, place)))


@STORAGES
def test_batches_of_several_sampling_threads_do_not_change(storage):
    memory = make_memory(storage)
    player = Player(memory, seed=2)
    player.step()
    held: list[list] = [[], []]

    def sample(number: int) -> None:
        held[number].append(memory.sample(8))
        if len(held[number]) > 6:
            assert_batch_is_what_the_oracle_holds(held[number].pop(0), player.oracle)

    with running(sample, 2) as failures:
        while not failures and len(player.oracle.steps) < 3 * CAPACITY:
            player.step()

    for batch in held[0] + held[1]:
        assert_batch_is_what_the_oracle_holds(batch, player.oracle)


def test_a_memory_saved_beside_writer_and_sampler_is_its_state_between_two_steps(tmp_path):
    memory = make_memory()
    player = Player(memory, seed=3)
    for _ in range(CAPACITY):
        player.step()
    saved = []

    def save_or_sample(number: int) -> None:
        if number == 0:
            memory.sample(16)
        elif len(saved) < 3:
            path = tmp_path / str(len(saved))
            memory.save(path)
            saved.append(path)

    with running(save_or_sample, 2) as failures:
        while not failures and len(saved) < 3:
            player.step()

    for path in saved:
        loaded = ReplayMemory.load(path)
        loaded.inner.parts.check()
        assert len(loaded) == CAPACITY
        assert_batch_is_what_the_oracle_holds(loaded.get(loaded.sampleable_indices()), player.oracle)


@STORAGES
def test_the_writer_continues_while_a_batch_is_unpacked(storage):
    memory = make_memory(storage)
    player = Player(memory, seed=4)
    for _ in range(CAPACITY):
        player.step()
    num_batches = 4

    def get_batches():
        for _ in range(num_batches):
            memory.sample(150_000)

    get_batches()  # takes the pages of the output
    sampler = threading.Thread(target=get_batches, daemon=True)
    num_steps = 0

    sampler.start()
    while sampler.is_alive():
        player.step()
        num_steps += 1
    sampler.join()

    # Each takes 20 ms or more: a writer that waited for it would make one step between two of them, or two.
    assert num_steps >= 5 * num_batches


def test_several_threads_unpack_the_batches_that_one_unpacks():
    memories = [make_memory(threads=threads) for threads in (1, 3)]
    for memory in memories:
        player = Player(memory, seed=5)
        for _ in range(CAPACITY):
            player.step()

    for _ in range(3):
        batches = [memory.sample(6000) for memory in memories]  # 4.6 MB: a MiB and more for each of the threads
        np.testing.assert_array_equal(batches[0].index, batches[1].index)
        np.testing.assert_array_equal(batches[0].observation, batches[1].observation)
        np.testing.assert_array_equal(batches[0].next_observation, batches[1].next_observation)


def test_the_number_of_threads_is_not_saved(tmp_path):
    memory = make_memory(threads=2)
    Player(memory, seed=6).step()
    memory.save(tmp_path)

    assert ReplayMemory.load(tmp_path).inner.settings.threads == 1
    assert ReplayMemory.load(tmp_path, threads=4).inner.settings.threads == 4
