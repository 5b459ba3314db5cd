"""A memory with a budget stays within it, whatever the frames are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium.spaces import Box

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.heap_layouts import HEAP_LAYOUTS
from oracles.own_pages import figures_of

pytestmark = pytest.mark.slow  # more than two seconds

MIB = 2**20
SIDE = 32
SPEC = FrameSpec((SIDE, SIDE))


NOISE = np.random.default_rng(0).integers(0, 256, (1_009, SIDE, SIDE), np.uint8)


def noise(number):
    return NOISE[number % len(NOISE)]


def plain(number):
    """A moving dot on black; its place and brightness depend on the number."""
    frame = np.zeros((SIDE, SIDE), np.uint8)
    frame[number % SIDE, number // SIDE % SIDE] = 1 + number % 251
    return frame


def alternating(number):
    """A thousand plain frames, a thousand of noise."""
    return noise(number) if number // 1000 % 2 else plain(number)


def turning(number):
    """A game that becomes noise in the middle of a run, and back."""
    return noise(number) if 6_000 <= number < 14_000 else plain(number)


class Feed:
    """Append numbered frames to a memory; a transition's reward is the number of its first frame."""

    def __init__(self, memory, content, episode_steps=700):
        self.memory, self.content, self.episode_steps = memory, content, episode_steps
        self.next_number = 0
        self.starts = np.zeros(memory.num_envs, np.int64)
        self.newest = np.full(memory.num_envs, -1, np.int64)

    def frames(self, count):
        numbers = np.arange(self.next_number, self.next_number + count)
        self.next_number += count
        return numbers, np.stack([self.content(number) for number in numbers.tolist()])

    def step(self):
        """Play one step of every environment, after a reset of ended ones; yield after each call of the memory."""
        env_ids = self.memory.num_envs
        ended = np.flatnonzero(self.newest < 0)
        if ended.size:
            numbers, frames = self.frames(len(ended))
            self.memory.begin(frames, ended)
            self.newest[ended] = numbers
            yield True
        numbers, frames = self.frames(env_ids)
        rewards, self.newest = self.newest.astype(np.float32), numbers
        is_over = (numbers // env_ids + 97 * np.arange(env_ids)) % self.episode_steps == 0
        self.memory.append(np.zeros(env_ids, int), rewards, is_over, np.zeros(env_ids, bool), frames)
        self.newest[is_over] = -1
        yield True


def check_samples(memory, content):
    """Sampled observations have the appended frames."""
    batch = memory.sample(16)
    for reward, observation in zip(batch.reward.tolist(), batch.observation, strict=True):
        np.testing.assert_array_equal(observation[-1], content(int(reward)))
    memory.inner.parts.check()


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("storage", "retention", "content", "num_envs", "max_bytes", "num_steps"),
    [
        ("packed", "fifo", plain, 3, 1_250_000, 9_000),
        ("packed", "fifo", noise, 3, 3_000_000, 3_000),
        ("packed", "fifo", alternating, 1, 2_000_000, 9_000),
        ("packed", "fifo", turning, 8, 4_000_000, 3_000),
        ("raw", "fifo", plain, 3, 4_000_000, 2_500),
        ("packed", "random", alternating, 2, 4_000_000, 6_000),
        ("packed", "random", turning, 8, 4_000_000, 3_000),
        ("raw", "random", plain, 3, 4_000_000, 2_500),
    ],
)
def test_a_memory_never_takes_more_than_its_budget(storage, retention, content, num_envs, max_bytes, num_steps):
    settings = {"num_envs": num_envs, "storage": storage, "retention": retention}
    memory = ReplayMemory(10**8, SPEC, 4, **{"stack": 4} | settings, max_bytes=max_bytes, seed=0)
    feed, taken, counts, shares = Feed(memory, content), [], [], []

    for step in range(num_steps):
        for _ in feed.step():
            report = memory.report()
            taken.append(report.nbytes)
            counts.append(report.transitions)
            shares.append(report.share_used)
        if step % 200 == 0:
            check_samples(memory, content)

    assert max(taken) <= max_bytes
    assert 0.85 < max(shares) <= 1.0  # it uses the budget
    if content is turning:
        before, heavy, after = counts[740], counts[1_740], counts[-1]
        assert heavy < before < after


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize(
    ("observations", "actions", "num_envs", "max_bytes", "step_bytes"),
    [
        (Box(-1, 1, (8,), np.float32), Box(-1, 1, (256,), np.float32), 16, 4_000_000, 1_100),
        (Box(0, 255, (4,), np.uint8), Box(-1, 1, (17,), np.float32), 8, 1_500_000, 100),
        (Box(-9, 9, (1,), np.int8), 4, 8, 1_000_000, 30),
        (Box(0, 255, (32, 32, 8), np.uint8), 4, 4, 9_000_000, 8_300),  # no stacks, though they look so
    ],
)
@pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")
def test_a_memory_uses_its_budget_and_never_more_whatever_its_spaces(
    observations, actions, num_envs, max_bytes, step_bytes, retention
):
    memory = ReplayMemory(10**6, observations, actions, num_envs=num_envs, max_bytes=max_bytes, retention=retention)
    random, zeros = np.random.default_rng(0), np.zeros(num_envs)
    action = zeros.astype(int) if actions == 4 else np.zeros((num_envs, *actions.shape), actions.dtype)
    rows = random.integers(0, 256, (512, num_envs, *observations.shape), np.uint8)
    rows = (rows % 2 if observations.dtype != np.uint8 else rows).astype(observations.dtype)
    taken, counts = [], []
    for step in range(int(1.5 * max_bytes / step_bytes / num_envs)):
        one, other = rows[step % 512], rows[(step + 1) % 512]
        memory.add(one, action, zeros, other, zeros > 0, zeros > 0)
        taken.append(memory.nbytes)
        counts.append(len(memory))

    assert max(taken) <= max_bytes
    assert min(counts[len(counts) // 2 :]) > 0.3 * max_bytes / step_bytes


def content_of(memory):
    """All sampleable transitions, and the current observations."""
    batch = memory.get(memory.sampleable_indices())
    return [batch.index, batch.reward, batch.observation, batch.next_observation, memory.observations()]


def assert_same(expected, actual):
    for one, other in zip(content_of(expected), content_of(actual), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("storage", "retention"), [("packed", "fifo"), ("packed", "random"), ("raw", "fifo")])
def test_evictions_are_the_same_after_saving_and_loading(storage, retention, tmp_path):
    settings = {"num_envs": 3, "storage": storage, "retention": retention}
    one = ReplayMemory(10**6, SPEC, 4, **{"stack": 4} | settings, max_bytes=2_500_000, seed=0)
    feed = Feed(one, turning)
    for _ in range(2_500):
        list(feed.step())
    one.sample(64)
    one.save(tmp_path)
    other = ReplayMemory.load(tmp_path)
    other_feed = Feed(other, turning)
    other_feed.__dict__ |= {
        name: np.copy(value) for name, value in feed.__dict__.items() if name in ("starts", "newest")
    }
    other_feed.next_number = feed.next_number

    for step in range(1_000):
        list(feed.step())
        list(other_feed.step())
        assert len(one) == len(other), step

    assert_same(one, other)
    np.testing.assert_array_equal(one.sample(64).index, other.sample(64).index)


def test_a_saved_memory_can_be_loaded_with_another_budget(tmp_path):
    memory = ReplayMemory(10**6, SPEC, 4, stack=4, num_envs=2, max_bytes=5_000_000, seed=0)
    feed = Feed(memory, noise)
    for _ in range(3_000):
        list(feed.step())
    memory.save(tmp_path)

    as_saved = ReplayMemory.load(tmp_path)
    smaller = ReplayMemory.load(tmp_path, max_bytes="3 MB")
    larger = ReplayMemory.load(tmp_path, max_bytes="50 MB")
    assert_same(memory, as_saved)
    feed.memory = larger
    for _ in range(100):
        list(feed.step())

    assert smaller.nbytes <= 3_000_000
    assert 0 < len(smaller) < len(as_saved)
    assert smaller.sampleable_indices()[-1] == as_saved.sampleable_indices()[-1]
    assert len(larger) == len(as_saved) + 200
    assert (5_000_000, 3_000_000, 50_000_000) == tuple(
        loaded.inner.settings.max_bytes for loaded in (as_saved, smaller, larger)
    )


@pytest.mark.skipif("sys.platform != 'linux'", reason="other systems may not map more than they have")
def test_a_capacity_far_above_the_ram_takes_no_more_than_the_budget():
    memory = ReplayMemory(10**11, SPEC, 4, stack=4, max_bytes=2_000_000, seed=0)
    feed = Feed(memory, noise)

    for _ in range(3_000):
        list(feed.step())

    assert 1_000 < len(memory) < 2_000
    assert memory.nbytes <= 2_000_000
    assert memory.sample(8).index.min() >= 1_000


def test_arrays_of_coming_batches_count_against_the_budget():
    memory = ReplayMemory(10**6, SPEC, 4, stack=4, max_bytes=4_000_000, seed=0)
    feed = Feed(memory, noise)
    for _ in range(5_000):
        list(feed.step())
    full = len(memory)

    batches = [memory.sample(32) for _ in range(3)]

    assert memory.report().parts["output pool"] == 3 * 32 * 5 * SPEC.nbytes
    assert len(memory) < full
    assert memory.nbytes <= 4_000_000
    assert len(batches) == 3


@pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # every step is unusual
@pytest.mark.parametrize("read", ["sampled", "after loading"])
def test_the_first_batch_counts_with_the_two_windows_of_transitions_that_have_borders(read, tmp_path):
    memory = ReplayMemory(10**6, FrameSpec((4, SIDE, SIDE)), 4, max_bytes=4_000_000, seed=0)
    for number in range(500):
        before, after = (np.stack([noise(7 * number + at + shift) for at in range(4)]) for shift in (0, 3))
        memory.add(before, 0, 0.0, after, False, False)
    if read == "after loading":
        memory.save(tmp_path)
        memory = ReplayMemory.load(tmp_path)

    batch = memory.sample(32)

    assert memory.report().parts["output pool"] == batch.observation.nbytes + batch.next_observation.nbytes
    assert batch.observation.shape == batch.next_observation.shape == (32, 4, SIDE, SIDE)
    assert memory.nbytes <= 4_000_000


@pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")
def test_a_loaded_memory_evicts_the_same_transitions_for_a_batch_after_its_only_border_was_evicted(tmp_path):
    memory = ReplayMemory(10**6, FrameSpec((4, SIDE, SIDE)), 4, max_bytes=2_000_000, seed=0, frames_per_segment=40)
    memory.add(NOISE[:4], 0, 0.0, NOISE[9:13], False, False)  # a border: this is not the observation and one more frame
    for number in range(9, 3_000):
        before, after = (np.stack([noise(number + at + shift) for at in range(4)]) for shift in (0, 1))
        memory.add(before, 0, 0.0, after, False, False)
    assert memory.sampleable_indices()[0] > 1_000
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path)

    for one in (memory, loaded):
        one.sample(8)

    np.testing.assert_array_equal(memory.sampleable_indices(), loaded.sampleable_indices())


def test_a_batch_that_evicts_every_sampleable_transition_raises():
    memory = ReplayMemory(
        2000, SPEC, 4, max_bytes="1450 KiB", retention="random", n_step=255, frames_per_segment=20, stack=1, seed=0
    )
    memory.begin(noise(0)[None])
    for number in range(1, 900):
        memory.append([0], [0.0], [False], [False], noise(number)[None])
    assert len(memory)

    with pytest.raises(NothingToSampleError):
        memory.sample(50)


def test_a_batch_too_large_for_the_budget_is_sampled_but_its_arrays_are_not_reused():
    memory = ReplayMemory(10**6, SPEC, 4, stack=4, max_bytes=2_000_000, seed=0)
    feed = Feed(memory, noise)
    for _ in range(2_000):
        list(feed.step())

    batch = memory.sample(1_000)

    assert 0 == memory.report().parts["output pool"]
    assert 1_000 == len(batch)
    assert memory.nbytes <= 2_000_000


@pytest.mark.parametrize("where", ["in RAM", "in a folder"])
@pytest.mark.parametrize(("num_envs", "max_bytes"), [(1, "100 kB"), (8, "1 MiB"), (256, 10**7)])
def test_a_budget_too_small_for_open_segments_is_refused_with_the_smallest_allowed_one(
    num_envs, max_bytes, where, tmp_path
):
    folder = tmp_path / "memory"
    settings = {"stack": 4, "num_envs": num_envs} | ({"directory": folder} if where == "in a folder" else {})
    with pytest.raises(InvalidSettingsError, match=r"may need .* for open segments and 1 sealed segment;") as refused:
        ReplayMemory(1000, SPEC, 4, **settings, max_bytes=max_bytes)
    assert not folder.exists()

    enough = int(re.search(r"give at least ([0-9_]+)", str(refused.value))[1])

    with pytest.raises(InvalidSettingsError):
        ReplayMemory(1000, SPEC, 4, **settings, max_bytes=enough - 1)
    memory = ReplayMemory(10**6, SPEC, 4, **settings, max_bytes=enough, seed=0)
    feed = Feed(memory, noise)
    for _ in range(3 * memory.inner.settings.frames_per_segment):
        for _ in feed.step():
            assert memory.nbytes + (bytes_in(folder) if folder.exists() else 0) <= enough
    assert len(memory) > 0


def test_segments_are_shorter_when_open_segments_would_fill_the_budget():
    def frames(max_bytes, num_envs):
        memory = ReplayMemory(10**6, FrameSpec((84, 84)), 4, stack=4, num_envs=num_envs, max_bytes=max_bytes)
        return memory.inner.settings.frames_per_segment

    assert (320, 320, 80, 40) == (
        frames("1 GiB", 8),
        frames("100 MiB", 8),
        frames("1 GiB", 256),
        frames("1 GiB", 600),
    )


GROWTH_UNDER_A_BUDGET = """
import sys
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.own_pages import own_bytes, own_live_bytes

storage, max_bytes, environments = sys.argv[1], 96 << 20, 4
noise = np.random.default_rng(0).integers(0, 256, (400, 84, 84), np.uint8)
plain = np.zeros((400, 84, 84), np.uint8)
plain[np.arange(400), np.arange(400) % 84, np.arange(400) % 80] = 200
flags, actions, rewards = np.zeros(environments, bool), np.zeros(environments, int), np.zeros(environments)

def record(memory, num_steps, frames, watch=lambda: None):
    memory.begin(frames[:environments])
    for step in range(num_steps):
        first = step * environments % len(frames)
        memory.append(actions, rewards, flags, flags, frames[first : first + environments])
        if step % 250 == 0:
            watch()

record(ReplayMemory(1000, FrameSpec((84, 84)), 4, stack=4, num_envs=environments, storage=storage), 400, noise)
before, most = own_live_bytes(), 0  # without freed memory, which the memory would reuse
settings = {"num_envs": environments, "storage": storage, "max_bytes": max_bytes}
memory = ReplayMemory(10**8, FrameSpec((84, 84)), 4, stack=4, **settings)

def watch():
    global most
    most = max(most, own_bytes() - before)

for frames, num_steps in ((plain, 20_000), (noise, 4_500), (plain, 4_000), (noise, 1_500)):
    record(memory, num_steps if storage == "packed" else 4_500, frames, watch)
    print((own_bytes() - before) / memory.nbytes)
print(most / max_bytes)
"""


@pytest.mark.each_value
@pytest.mark.parametrize("variables", HEAP_LAYOUTS)
@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_the_resident_memory_stays_within_the_budget(storage, variables):
    *ratios, most = figures_of(GROWTH_UNDER_A_BUDGET, storage, variables=variables)

    assert most < 1, (ratios, most)
    assert all(0.95 < ratio < 1.05 for ratio in ratios), (ratios, most)


def bytes_in(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize(
    ("retention", "content", "max_bytes"),
    [("fifo", alternating, 6_000_000), ("fifo", noise, 6_000_000), ("random", alternating, 12_000_000)],
)
def test_the_files_of_a_memory_on_disk_stay_within_the_budget(retention, content, max_bytes, tmp_path):
    settings = {"num_envs": 2, "retention": retention, "max_bytes": max_bytes, "directory": tmp_path, "seed": 0}
    with ReplayMemory(10**8, SPEC, 4, **{"stack": 4} | settings, flush_every=None) as memory:
        feed, most = Feed(memory, content), 0
        for step in range(9_000):
            list(feed.step())
            if step % 10 == 0:
                most = max(most, memory.nbytes + bytes_in(tmp_path))
            if step % 400 == 0 and retention == "random":  # fifo flushes by itself
                memory.flush()

    assert 0.5 * max_bytes < most <= max_bytes
    assert memory.report().share_used > 0.8


def test_a_memory_on_disk_can_be_resumed_with_another_budget(tmp_path):
    settings = {"num_envs": 2, "directory": tmp_path, "seed": 0}
    with ReplayMemory(10**6, SPEC, 4, **{"stack": 4} | settings, flush_every=None) as memory:
        feed = Feed(memory, noise)
        for _ in range(3_000):
            list(feed.step())

    with ReplayMemory(10**6, SPEC, 4, **{"stack": 4} | settings, max_bytes=6_200_000) as smaller:
        assert 0 < len(smaller) < len(memory)
        assert smaller.inner.settings.frames_per_segment == memory.inner.settings.frames_per_segment
        assert smaller.sampleable_indices()[-1] == memory.sampleable_indices()[-1]
