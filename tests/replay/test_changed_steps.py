"""New rewards and extras of stored steps are in all that is read and saved later, and in nothing drawn before."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from framestow import FrameSpec, Prioritized, ReplayEnsemble, ReplayMemory
from framestow.distributed import ShardedReplay, start_local_shards
from framestow.errors import ClosedMemoryError, InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from oracles.patience import PATIENCE_S
from oracles.watched_disk import WatchedDisk, as_the_disk

BLOCK = 1024  # steps, with the retention "fifo"
EXTRAS = {"note": np.int16, "place": (np.float32, (2,))}
NOTHING = np.flatnonzero([False])  # as a search that finds no step returns it
RETENTION = pytest.mark.parametrize("retention", ["fifo", "random"])


def memory_with_steps(num_steps: int, capacity: int = 5_000, **settings) -> ReplayMemory:
    """One running episode; step t has the reward and the first extra t."""
    settings = {"flush_every": None} | settings if "directory" in settings else settings
    memory = ReplayMemory(capacity, FrameSpec((2, 2)), 4, stack=2, seed=0, extras=EXTRAS, **settings)
    memory.begin(np.zeros((1, 2, 2), np.uint8))
    for step in range(num_steps):
        extras = {"note": [step], "place": [[step, -step]]}
        memory.append([0], [step], [False], [False], np.full((1, 2, 2), step % 256, np.uint8), extras=extras)
    return memory


def rewards_in(memory: ReplayMemory) -> list[float]:
    memory.inner.parts.check()
    return memory.get(memory.sampleable_indices()).reward.tolist()


@RETENTION
def test_all_that_is_read_later_has_the_new_rewards_and_nothing_drawn_before_has(retention):
    memory = memory_with_steps(3_000, 1_500, n_step=3, discount=0.5, retention=retention, sampler=Prioritized())
    indices = memory.sampleable_indices()
    pending = np.setdiff1d([*memory.episodes()][-1].indices, indices)
    memory.update_priorities(indices, np.where(indices == indices[-1], 0.0, 1.0))
    drawn, ahead = memory.sample(8), memory.draw_ahead(8)
    kept = drawn.reward.copy()

    memory.set_rewards(indices, np.full(len(indices), 2.0))
    memory.set_rewards(pending, [4.0, 8.0])

    assert 2 == len(pending)
    assert memory.get(indices[-2:]).reward.tolist() == [2 + 2 / 2 + 4 / 4, 2 + 4 / 2 + 8 / 4]
    assert memory.returns_to_go(pending).tolist() == [12, 8]
    assert [*memory.episodes()][-1].rewards[-3:].tolist() == [2, 4, 8]
    assert memory.steps_from(indices[-1:], 3).reward.tolist() == [[2, 4, 8]]
    assert {0.0, 2.0, 4.0, 8.0} >= set(memory.sample_sequences(16, 5).reward.ravel().tolist()) >= {2.0}
    assert kept.tolist() == drawn.reward.tolist()
    assert (ahead.unpack().reward > 8).all()
    assert indices[-1] not in memory.sample(256).index  # its priority stays 0


@RETENTION
def test_lost_steps_take_new_rewards_too(retention):
    memory = memory_with_steps(500, retention=retention)
    memory.inner.steps.lose(0, 100, 120)
    lost = memory.inner.steps.lost

    memory.set_rewards(lost, np.zeros(len(lost)))
    memory.set_extras(lost, {"note": np.zeros(len(lost), np.int16)})

    assert len(lost)
    assert len(memory) == 500 - len(lost)


@pytest.mark.each_value
@RETENTION
@pytest.mark.parametrize("max_bytes", [None, 2**22])
def test_a_save_and_a_flush_write_the_changed_blocks_again_and_no_other(retention, max_bytes, tmp_path):
    folder, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    memory = memory_with_steps(4 * BLOCK + 100, retention=retention, max_bytes=max_bytes, directory=folder)
    memory.flush()
    memory.save(elsewhere, keep_previous=True)
    before, first = rewards_in(memory), memory.save(elsewhere, keep_previous=True)
    written = {path: path.stat().st_size for path in elsewhere.glob("*.log")}

    changed = memory.sampleable_indices()[BLOCK + 5 : BLOCK + 9]
    memory.set_rewards(changed, [-1, -2, -3, -4])
    memory.set_extras(changed, {"note": [1, 2, 3, 4]})
    second = memory.save(elsewhere, keep_previous=True)
    memory.flush()

    grown = {path.name[:5]: path.stat().st_size - size for path, size in written.items()}
    assert 0 == grown["frame"]
    assert 0 < grown["steps"] < 1.5 * BLOCK * memory.inner.settings.extras.dtype.itemsize * 2.5
    after = rewards_in(memory)
    assert {-1.0, -2.0, -3.0, -4.0} == set(after) - set(before)
    for generation, expected in ((first, before), (second, after)):
        assert expected == rewards_in(ReplayMemory.load(elsewhere, generation=generation))
    reader = ReplayMemory.open(folder)
    assert after == rewards_in(reader)
    assert [1, 2, 3, 4] == reader.get(changed).extras["note"].tolist()
    assert verify_store(folder).is_intact
    assert verify_store(elsewhere).is_intact
    memory.close()


def test_a_repair_keeps_the_rewards_of_each_generation(tmp_path):
    memory = memory_with_steps(3 * BLOCK)
    generations = [memory.save(tmp_path, keep_previous=True)]
    for reward in (-1.0, -2.0):
        memory.set_rewards(np.arange(BLOCK, 2 * BLOCK), np.full(BLOCK, reward))
        generations.append(memory.save(tmp_path, keep_previous=True))
    log = next(tmp_path.glob("steps-*.log"))
    content = bytearray(log.read_bytes())
    content[200] ^= 1  # in block 0 of all generations
    log.write_bytes(content)

    repair_store(tmp_path)

    assert verify_store(tmp_path).is_intact
    found = [ReplayMemory.load(tmp_path, generation=number) for number in generations]
    assert [{float(BLOCK)}, {-1.0}, {-2.0}] == [set(each.get([BLOCK]).reward.tolist()) for each in found]
    assert [2 * BLOCK] * 3 == [len(each) for each in found]


class ChangingDisk(WatchedDisk):
    """Calls ``change`` before operation ``at``."""

    def __init__(self, at: int, change) -> None:
        self.at, self.change, self.num_operations = at, change, 0

    def perform(self, operation, act):
        self.num_operations += 1
        if self.num_operations == self.at:
            self.change()
        return act(operation)


def test_a_change_while_a_save_runs_is_saved_whole_or_not_at_all(tmp_path):
    memory = memory_with_steps(3 * BLOCK + 10)
    memory.save(tmp_path)
    everything = np.arange(3 * BLOCK + 10)
    at, seen = 1, []
    while True:
        later = everything + 1_000.0 * at
        memory.set_rewards(everything, later - 500)  # all blocks are written again
        outcomes = [rewards_in(memory), later.tolist()]
        disk = ChangingDisk(at, partial(memory.set_rewards, everything, later))
        with as_the_disk(disk):
            memory.save(tmp_path)
        if disk.num_operations < at:
            break
        seen.append(outcomes.index(rewards_in(ReplayMemory.load(tmp_path))))
        memory.save(tmp_path)
        assert outcomes[1] == rewards_in(memory) == rewards_in(ReplayMemory.load(tmp_path))
        at += 2
    assert {0, 1} == set(seen)


def test_a_flush_in_the_background_sees_changed_rewards(tmp_path):
    with memory_with_steps(10, directory=tmp_path, flush_every=0.02) as memory:
        memory.flush()
        memory.set_rewards([3], [-7.0])

        until = time.monotonic() + PATIENCE_S
        while ReplayMemory.open(tmp_path).get([3]).reward[0] != -7:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_of_a_repeated_index_the_last_one_counts_and_masked_steps_are_left_out():
    memory = memory_with_steps(10)

    memory.set_rewards([[3, -1], [4, 3]], [[1.0, np.nan], [2.0, 5.0]])
    memory.set_extras(6, {"note": 60})
    memory.set_rewards([], [])
    memory.set_extras([1], {})

    assert [0, 1, 2, 5, 2, 5, 6, 7, 8, 9] == memory.get(np.arange(10)).reward.tolist()
    assert [5, 60, 7] == memory.get([5, 6, 7]).extras["note"].tolist()


@pytest.mark.parametrize("indices", [[], NOTHING, np.empty((0, 3), np.int64)], ids=["list", "array", "two axes"])
def test_no_step_takes_no_values_of_any_dtype(indices):
    dtypes = {"is_liked": np.bool_, "note": np.int16, "place": (np.float32, (2,))}
    memory = ReplayMemory(10, FrameSpec((2, 2)), 4, stack=2, extras=dtypes)
    nothing = indices if isinstance(indices, list) else np.empty(indices.shape)

    memory.set_rewards(indices, nothing)
    for name in ("is_liked", "note"):
        memory.set_extras(indices, {name: nothing})
    memory.set_extras(indices, {"place": nothing if np.ndim(indices) == 1 else np.empty((0, 3, 2))})

    with pytest.raises(InvalidStepError, match=r"extra 'place' has shape \(0, 3\)"):
        memory.set_extras([], {"place": np.empty((0, 3))})


BAD = {  # of two stored steps, one that is gone and one to come
    "an evicted step": (NothingToSampleError, "step {gone} is not stored", ["a", "gone"], [0, 0]),
    "a step to come": (NothingToSampleError, "step {later} is not stored", ["later", "a"], [0, 0]),
    "a negative index": (NothingToSampleError, "step -2 is not stored", [-2, "a"], [0, 0]),
    "no integers": (InvalidSettingsError, "indices have dtype float64", [0.5], [0]),
    "another shape": (InvalidStepError, r"has shape \(1, 2\): indices of shape \(2,\)", ["a", "b"], [[0, 0]]),
    "too few values": (InvalidStepError, r"has shape \(1,\): indices of shape \(2,\)", ["a", "b"], [0]),
    "NaN": (InvalidStepError, "is nan at row 1: .*; correct the reward model", ["a", "b"], [0, np.nan]),
    "too large": (InvalidStepError, "rewards must be finite in float32", ["a"], [1e39]),
    "booleans": (InvalidStepError, "rewards are numbers", ["a"], [True]),
}


@RETENTION
@pytest.mark.parametrize("name", BAD)
def test_wrong_rewards_are_refused_before_anything_changes(name, retention):
    memory = memory_with_steps(450, 320, retention=retention)
    stored, before = memory.sampleable_indices(), rewards_in(memory)
    gone = np.setdiff1d(np.arange(stored[-1]), stored)[0]
    numbers = {"a": stored[5], "b": stored[9], "gone": gone, "later": stored[-1] + 1}
    error, message, indices, rewards = BAD[name]

    with pytest.raises(error, match=message.format(**numbers)):
        memory.set_rewards([numbers.get(index, index) for index in indices], rewards)

    assert before == rewards_in(memory)


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"grade": [1]}, "extras have grade: this memory stores note int16, place float32 2; leave it out"),
        ({"note": [70_000]}, "extra 'note' is 70000 at row 0: it does not fit int16"),
        ({"note": [0.5]}, "extra 'note' has dtype float64"),
        ({"note": [1], "place": [[1.0]]}, r"extra 'place' has shape \(1, 1\): indices of shape \(1,\) take values of"),
        ([1], "it must map names to arrays"),
    ],
)
def test_wrong_extras_are_refused_before_anything_changes(extras, message):
    memory = memory_with_steps(5)

    with pytest.raises(InvalidStepError, match=message):
        memory.set_extras([3], extras)

    assert [0, 1, 2, 3, 4] == memory.get(np.arange(5)).extras["note"].tolist()


def test_a_closed_and_a_read_only_memory_refuse_changes(tmp_path):
    memory = memory_with_steps(5, directory=tmp_path)
    memory.close()

    for refusing in (memory, ReplayMemory.open(tmp_path)):
        with pytest.raises(ClosedMemoryError, match="it takes no steps and no changes"):
            refusing.set_rewards([3], [1.0])
        assert [0, 1, 2, 3, 4] == rewards_in(refusing)


@pytest.mark.parametrize("call", ["add", "append", "begin", "set_rewards", "set_extras", "forget", "clear"])
def test_ensembles_and_shards_say_why_they_lack_a_call(call):
    ensemble = ReplayEnsemble([memory_with_steps(5)], [1.0])
    replay = ShardedReplay(100, FrameSpec((2, 2)), 4, start=start_local_shards)

    with pytest.raises(AttributeError, match=rf"a ReplayEnsemble has no {call}: .*call it of its members"):
        getattr(ensemble, call)
    if not hasattr(ShardedReplay, call):
        with pytest.raises(AttributeError, match=rf"a ShardedReplay has no {call}: .*use a ReplayMemory"):
            getattr(replay, call)
    assert not hasattr(replay, "anything_else")


def test_versions_of_evicted_blocks_are_dropped():
    memory = ReplayMemory(2 * BLOCK, FrameSpec((2, 2)), 4, stack=2, num_envs=64)
    frames, zeros = np.zeros((64, 2, 2), np.uint8), np.zeros(64, int)
    memory.begin(frames)
    for _ in range(100):
        for _ in range(BLOCK // 64):
            memory.append(zeros, zeros, zeros > 0, zeros > 0, frames)
        memory.set_rewards(memory.sampleable_indices(), np.ones(len(memory)))

    assert 0 < len(memory.inner.steps.block_versions) < 80
