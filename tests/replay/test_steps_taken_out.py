"""Forgotten steps are never read again, and a cleared memory goes on empty; both survive a save."""

from __future__ import annotations

import numpy as np
import pytest

from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.errors import ClosedMemoryError, NothingToSampleError
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode

RETENTION = pytest.mark.parametrize("retention", ["fifo", "random"])


def episodes_of(lengths: list[int], **settings) -> ReplayMemory:
    """Terminated episodes of environments 0 and 1 in turn; step t of each has the reward t."""
    memory = numbered_memory(2_000, num_envs=2, **settings)
    for episode, length in enumerate(lengths):
        play_episode(memory, episode, length, env_id=episode % 2, terminated=True)
    return memory


@RETENTION
@pytest.mark.parametrize("n_step", [1, 3, 12])
def test_exactly_the_transitions_whose_returns_include_a_forgotten_step_are_gone(retention, n_step):
    memory = episodes_of([40, 30, 7, 25] * 5, retention=retention, n_step=n_step)
    episodes, forgotten = [each.indices.tolist() for each in memory.episodes()], set()
    random = np.random.default_rng(0)
    for _ in range(30):
        indices = random.choice(np.concatenate(episodes), 3)  # also of steps that are gone already
        size = len(memory)

        num_gone = memory.forget(indices)

        forgotten |= set(indices.tolist())
        expected = [
            index
            for steps in episodes
            for place, index in enumerate(steps)
            if not forgotten & set(steps[place : place + n_step])
        ]
        assert sorted(expected) == memory.sampleable_indices().tolist()
        assert size - num_gone == len(memory)
        memory.inner.parts.check()
    assert set(expected) >= set(memory.sample(64).index.tolist())


@RETENTION
def test_sequences_end_at_a_forgotten_step_and_its_episode_is_not_whole(retention):
    memory = episodes_of([20, 20], retention=retention)
    steps = [each.indices for each in memory.episodes()]

    memory.forget(steps[0][[8]])

    assert memory.steps_from(steps[0][:1], 20).index[0].tolist() == [*steps[0][:8], *[-1] * 12]
    for call in (memory.get, memory.steps_from, memory.returns_to_go):
        with pytest.raises(NothingToSampleError, match=f" {steps[0][8]} is lost: it was forgotten, .*; omit it"):
            call(steps[0][8:9])
    assert np.isnan(memory.returns_to_go(steps[0][:8])).all()
    assert memory.returns_to_go(steps[0][9:10]).tolist() == [sum(range(9, 20))]
    assert set(memory.sample_episodes(32).index.ravel().tolist()) == set(steps[1].tolist())
    assert [(0, 8), (0, 11), (1, 20)] == [(each.env_id, len(each)) for each in memory.episodes()]


def test_a_forgotten_step_counts_towards_the_capacity_until_its_turn():
    memory = numbered_memory(50)
    play_episode(memory, 0, 50, truncated=True)
    memory.forget(np.arange(10))

    for episode, newest in ((1, 55), (2, 60), (3, 65)):
        play_episode(memory, episode, 5, truncated=True)

        assert list(range(max(10, newest - 50), newest)) == memory.sampleable_indices().tolist()


@RETENTION
def test_steps_that_follow_a_forgotten_one_are_stored_as_ever(retention):
    memory = numbered_memory(2_000, n_step=3, retention=retention)
    play_episode(memory, 0, 30)
    newest = [*memory.episodes()][-1].indices[-1]

    memory.forget(newest)  # a pending step, and those that wait with it
    for step in range(30, 40):
        frame = numbered_frame(0, 0, step + 1)[None]
        memory.append([step], [step], [False], [step == 39], frame)

    assert [*range(27), *range(30, 40)] == memory.get(memory.sampleable_indices()).action.tolist()


@RETENTION
def test_forgotten_steps_stay_so_in_files_and_after_a_repair(retention, tmp_path):
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    memory = episodes_of([250] * 6, retention=retention, directory=folder, flush_every=None, sampler=Prioritized())
    memory.flush()
    episode = [*memory.episodes()][1]

    memory.forget(episode.indices)
    expected = memory.sampleable_indices().tolist()
    memory.flush()
    memory.save(elsewhere)

    for reader in (ReplayMemory.open(folder), ReplayMemory.load(elsewhere)):
        assert expected == reader.sampleable_indices().tolist()
        assert not np.isin(reader.sample(256).index, episode.indices).any()
    assert verify_store(folder).is_intact
    log = next(elsewhere.glob("steps-*.log"))
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    repair_store(elsewhere)
    repaired = ReplayMemory.load(elsewhere).sampleable_indices().tolist()
    assert set(repaired) < set(expected)
    memory.close()


@RETENTION
def test_a_step_that_is_gone_cannot_be_forgotten_and_then_nothing_is(retention, tmp_path):
    memory = numbered_memory(320, retention=retention, directory=tmp_path)
    play_episode(memory, 0, 250)
    play_episode(memory, 1, 250)
    before = memory.sampleable_indices()
    gone = np.setdiff1d(np.arange(before[-1]), before)[0]

    with pytest.raises(NothingToSampleError, match=f"step {gone} is not stored"):
        memory.forget([before[3], gone])

    assert before.tolist() == memory.sampleable_indices().tolist()
    memory.close()
    for call in (lambda: memory.forget(before[:1]), memory.clear):
        with pytest.raises(ClosedMemoryError, match="it takes no steps and no changes"):
            call()
    assert before.tolist() == memory.sampleable_indices().tolist()


@RETENTION
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("place", ["RAM", "folder", "folder, within a budget"])
def test_a_cleared_memory_goes_on_empty_with_its_indices_and_its_generator(retention, n_step, place, tmp_path):
    settings = {"retention": retention, "n_step": n_step, "sampler": Prioritized()}
    settings |= {} if place == "RAM" else {"directory": tmp_path / "home", "flush_every": None}
    settings |= {"max_bytes": 2**21} if "budget" in place else {}
    memory = episodes_of([250, 230, 10, 70], **settings)
    memory.begin(numbered_frame(0, 9, 0)[None], [0])
    last, drawn, shown = memory.sampleable_indices()[-1], memory.sample(4), memory.observations()
    kept, state = drawn.observation.copy(), memory.inner.parts.generator.bit_generator.state

    memory.clear()

    assert (0, [False, False]) == (len(memory), memory.open_episodes.tolist())
    assert [] == memory.sampleable_indices().tolist() == [*memory.episodes()] == [*memory.batches(8)]
    with pytest.raises(NothingToSampleError):
        memory.sample(1)
    np.testing.assert_array_equal(kept, drawn.observation)
    np.testing.assert_array_equal(shown, memory.observations())
    assert state == memory.inner.parts.generator.bit_generator.state
    memory.save(tmp_path / "saved")
    memories = [memory, ReplayMemory.load(tmp_path / "saved")]
    if place != "RAM":
        memory.close()
        memories[0] = ReplayMemory.open(tmp_path / "home", read_only=False, flush_every=None)
    for each in memories:
        each.inner.parts.check()
        assert 0 == len(each)
        play_episode(each, 11, 40, env_id=1, truncated=True)
        each.inner.parts.check()
        indices = each.sampleable_indices()
        assert (40, True) == (len(indices), bool((indices > last).all()))
        assert list(range(40)) == each.get(indices).action.tolist()
        assert [(1, 40)] == [(episode.env_id, len(episode)) for episode in each.episodes()]
    assert memories[0].sample(8).index.tolist() == memories[1].sample(8).index.tolist()
    memories[0].save(tmp_path / "saved")
    assert verify_store(tmp_path / "saved").is_intact
    memories[0].close()


@RETENTION
def test_an_added_step_begins_an_episode_after_a_clear(retention):
    memory = ReplayMemory(500, FrameSpec((2, 32, 32)), 4, retention=retention, seed=0)
    stacks = np.arange(4 * 32 * 32, dtype=np.uint16).astype(np.uint8).reshape(4, 32, 32)
    memory.add(stacks[:2], 0, 0.0, stacks[1:3], False, False)

    memory.clear()
    index = memory.add(stacks[1:3], 1, 1.0, stacks[2:4], False, False)

    assert [0] < index.tolist()
    (episode,) = memory.episodes()
    assert episode.has_beginning
    np.testing.assert_array_equal(stacks[None, 1:3], memory.get(index).observation)


@RETENTION
def test_frames_of_a_cleared_memory_are_released(retention):
    random = np.random.default_rng(0)
    memory = ReplayMemory(5_000, FrameSpec((16, 16)), 4, stack=2, retention=retention)
    memory.begin(random.integers(0, 256, (1, 16, 16), np.uint8))
    for _ in range(3_000):
        memory.append([0], [0.0], [False], [False], random.integers(0, 256, (1, 16, 16), np.uint8))
    before = memory.report().parts["frames"]

    memory.clear()

    assert memory.report().parts["frames"] < before / 2


def test_forgotten_steps_count_in_the_budget():
    memory = ReplayMemory(10**6, FrameSpec((4, 4)), 4, stack=1, num_envs=16, max_bytes=2**21)
    frames, zeros = np.zeros((16, 4, 4), np.uint8), np.zeros(16, int)
    memory.begin(frames)

    def play(num_steps: int) -> int:
        largest = 0
        for _ in range(num_steps):
            memory.append(zeros, zeros, zeros > 0, zeros > 0, frames)
            largest = max(largest, memory.nbytes)
        return largest

    play(8_000)
    assert memory.sampleable_indices()[0] > 0
    memory.forget(memory.sampleable_indices()[:-500])

    assert memory.nbytes <= memory.max_bytes
    assert 0.5 * memory.max_bytes < play(8_000) <= memory.max_bytes
