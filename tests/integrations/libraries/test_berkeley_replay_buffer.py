"""The Berkeley course's ReplayBuffer: results equal the original's where that is right, and are correct elsewhere."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.integrations.classic import ReplayBuffer
from oracles.chi_square import chi_square, chi_square_bound
from oracles.plain_frame_history import ListedFrames, PlainFrameHistory

FIELDS = ("observations", "actions", "rewards", "next observations", "done mask")


class Play:
    """Feeds the same frames to the buffer, the published buffer and a list of everything."""

    def __init__(self, size, history, shape=(3, 2, 1), seed=0, dtype=np.uint8):
        self.generator = np.random.default_rng(seed)
        self.shape, self.dtype = shape, dtype
        self.buffer = ReplayBuffer(size, history, dtype == np.float32)
        self.plain, self.listed = PlainFrameHistory(size, history), ListedFrames(history)

    def frame(self):
        if self.dtype == np.float32:
            return self.generator.normal(size=self.shape).astype(np.float32)
        return self.generator.integers(0, 4, self.shape, dtype=np.uint8)  # few values: frames are often equal

    def show(self):
        frame = self.frame()
        idx = self.buffer.store_frame(frame)
        assert idx == self.plain.store_frame(frame)
        self.listed.store_frame(frame)
        frame[:] = 77  # the environment reuses its array
        return idx

    def step(self, mean_length=5.0, truncates=False, forgets=False):
        idx = self.show()
        action, reward = int(self.generator.integers(-3, 300)), float(self.generator.normal())
        ends = self.generator.random() < 1 / mean_length
        truncated = bool(truncates and ends and self.generator.random() < 0.7)
        done = bool(ends and (not truncated or self.generator.random() < 0.3))
        last_frame = self.frame() if truncated and self.generator.random() < 0.7 else None
        if forgets and self.generator.random() < 0.2:
            return
        if truncates:
            self.buffer.store_effect(idx, action, reward, done, truncated=truncated, last_frame=last_frame)
        else:
            self.buffer.store_effect(idx, action, reward, done)
        self.plain.store_effect(idx, action, reward, done)
        self.listed.store_effect(action, reward, done, truncated, None if last_frame is None else last_frame.copy())
        if last_frame is not None:
            last_frame[:] = 77  # likewise

    def held(self):
        return self.listed.steps[-self.buffer.size :]


def assert_equal_samples(expected, sample):
    for field, one, other in zip(FIELDS, expected, sample, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=field)
        assert one.dtype == other.dtype, field


def drawn_numbers(play, batch_size, seed):
    """Return the frames whose steps the buffer samples, by its documented rule."""
    held = play.held()
    random.seed(seed)
    slots = {}
    while len(slots) < batch_size:
        slots[random.randint(0, len(held) - 1)] = None
    num_steps = len(play.listed.steps)
    return [
        held[(slot - num_steps) % play.buffer.size] if num_steps > play.buffer.size else held[slot] for slot in slots
    ]


def all_transitions(play):
    """Return all transitions of the buffer, and the expected ones."""
    num_held = len(play.held())
    random.seed(1)
    sample = play.buffer.sample(num_held)
    transitions = [play.listed.transition(number) for number in drawn_numbers(play, num_held, 1)]
    stacked = [np.stack(part) for part in zip(*transitions, strict=True)]
    stacked[1] = stacked[1].astype(np.int32)
    return stacked, sample


shapes = st.sampled_from([(3, 2, 1), (2, 2, 3), (2, 2, 5), (5,)])


@settings(max_examples=40)
@given(st.integers(0, 9_999), st.integers(1, 5), shapes, st.integers(3, 12), st.booleans())
def test_until_the_ring_is_full_results_and_draws_equal_the_published_buffers(seed, history, shape, size, is_float):
    play = Play(size, history, shape, seed, np.float32 if is_float else np.uint8)
    for step in range(size - 1):
        play.step()
        np.testing.assert_array_equal(play.plain.encode_recent_observation(), play.buffer.encode_recent_observation())
        assert play.buffer.num_in_buffer == play.plain.num_in_buffer
        for batch_size in (1, 2, step, step + 1):
            assert play.buffer.can_sample(batch_size) == play.plain.can_sample(batch_size)
            if batch_size and play.buffer.can_sample(batch_size):
                random.seed(seed)
                expected = play.plain.sample(batch_size)
                random.seed(seed)
                assert_equal_samples(expected, play.buffer.sample(batch_size))


@settings(max_examples=60)
@given(st.integers(0, 9_999), st.integers(1, 5), shapes, st.integers(1, 9), st.booleans(), st.booleans())
def test_every_stored_transition_is_correct(seed, history, shape, size, truncates, forgets):
    play = Play(size, history, shape, seed)
    for _ in range(3 * size + history):
        play.step(3.0, truncates, forgets)
        recent = play.listed.stack(len(play.listed.frames) - 1)
        np.testing.assert_array_equal(recent, play.buffer.encode_recent_observation())
        num_held = len(play.held())
        assert not play.buffer.can_sample(num_held + 1)
        if num_held:
            assert_equal_samples(*all_transitions(play))


def test_a_full_ring_stacks_frames_correctly_and_the_published_buffer_does_not():
    play = Play(size=8, history=3, seed=2)
    play.frame = iter(np.arange(1, 200, dtype=np.uint8)[:, None, None, None] + np.zeros((3, 2, 1), np.uint8)).__next__
    for _ in range(19):
        play.step(mean_length=1e9)
    idx = play.show()  # frame 20 in slot 3, without an effect yet

    published = play.plain.transitions(list(range(7)))
    wrong = {
        slot
        for slot, number in enumerate([17, 18, 19, 12, 13, 14, 15])  # the frames of the effects in these slots
        for expected, part in zip(play.listed.transition(number - 1), published, strict=True)
        if not np.array_equal(expected, part[slot])
    }

    assert idx == 3
    assert published[0][3, 0, 0].tolist() == [18, 19, 20]  # with the action of frame 12
    assert published[3][3, 0, 0].tolist() == [19, 20, 13]  # newest frames before the oldest
    assert published[0][4, 0, 0].tolist() == [19, 20, 13]
    assert wrong == {3, 4, 5}
    assert_equal_samples(*all_transitions(play))
    held = sorted(play.buffer.sample(8)[0][:, 0, 0].tolist())
    assert held == [[n - 2, n - 1, n] for n in range(12, 20)]


def test_all_stored_transitions_are_sampled_equally_often_including_the_last_slot():
    buffer = ReplayBuffer(10, 2, seed=0)
    for number in range(33):
        buffer.store_effect(buffer.store_frame(np.full((1, 1, 1), number, np.uint8)), number, 0.0, number % 7 == 0)
    counts = np.zeros(33)
    for _ in range(3000):
        batch = buffer.sample(3)[1]
        assert len(set(batch.tolist())) == 3
        counts[batch] += 1
    assert np.flatnonzero(counts).tolist() == list(range(22, 32))
    assert chi_square(counts[22:32]) < chi_square_bound(9)


def test_a_second_effect_of_a_frame_replaces_the_first():
    buffer = ReplayBuffer(10, 1)
    idx = buffer.store_frame(np.zeros((1, 1, 1), np.uint8))
    buffer.store_effect(idx, 1, 1.0, True)
    buffer.store_effect(idx, 2, 2.0, False)
    buffer.store_frame(np.ones((1, 1, 1), np.uint8))
    _, actions, rewards, next_observations, done_mask = buffer.sample(1)
    assert (actions[0], rewards[0], next_observations.item(), done_mask[0]) == (2, 2.0, 1, 0.0)


def test_samples_may_be_written_to():
    play = Play(size=6, history=2)
    for _ in range(15):
        play.step()
    first = play.buffer.sample(4)
    for part in first:
        part[:] = 9
    assert_equal_samples(*all_transitions(play))


@pytest.mark.parametrize("shape", [(3, 2, 1), (3, 2, 3)])
def test_a_sample_is_not_changed_by_later_samples(shape):
    play = Play(size=6, history=2, shape=shape)
    for _ in range(15):
        play.step()
    sample = play.buffer.sample(4)
    kept = [part.copy() for part in sample]
    for _ in range(20):
        play.step()
        play.buffer.sample(4)
    assert_equal_samples(kept, sample)


def test_a_buffer_pickled_between_a_frame_and_its_effect_resumes_there():
    play = Play(size=6, history=3, seed=5)
    play.buffer = ReplayBuffer(6, 3, seed=4)
    for _ in range(13):
        play.step()
    idx = play.show()
    play.buffer.store_effect(idx, 7, 0.5, False)
    again = pickle.loads(pickle.dumps(play.buffer))
    for _ in range(2):
        assert_equal_samples(play.buffer.sample(5), again.sample(5))
    frame = play.frame()
    for buffer in (play.buffer, again):
        buffer.store_frame(frame)
    np.testing.assert_array_equal(play.buffer.encode_recent_observation(), again.encode_recent_observation())
    assert_equal_samples(play.buffer.sample(6), again.sample(6))


def test_grey_frames_have_a_channels_first_memory_layout():
    play = Play(size=20, history=4, shape=(5, 6, 1))
    for _ in range(20):
        play.step()
    observations, *_, next_observations, _ = play.buffer.sample(8)
    assert observations.shape == next_observations.shape == (8, 5, 6, 4)
    assert np.moveaxis(next_observations, -1, 1).flags.c_contiguous


def test_a_refused_frame_or_effect_changes_nothing():
    buffer = ReplayBuffer(5, 2)
    buffer.store_effect(buffer.store_frame(np.ones((2, 2, 1), np.uint8)), 3, 1.0, False)
    idx = buffer.store_frame(np.full((2, 2, 1), 2))  # integers that fit are pixels
    for refused, message in (
        (lambda: buffer.store_effect(0, 0, 0.0, False), r"idx is 0: the newest frame is in slot 1; "),
        (lambda: buffer.store_effect(1, 0, np.nan, False), r"reward is nan: it must be one number, finite"),
        (lambda: buffer.store_frame(np.zeros((2, 2, 2), np.uint8)), r"frame has shape \(2, 2, 2\): it must be"),
        (lambda: buffer.store_frame(np.full((2, 2, 1), 256)), r"integer pixels from 0 to 255, or create the buffer"),
    ):
        with pytest.raises(InvalidStepError, match=message):
            refused()
    assert (idx, buffer.next_idx, buffer.num_in_buffer) == (1, 2, 2)
    assert buffer.encode_recent_observation()[0, 0].tolist() == [1, 2]
    buffer.store_frame(np.zeros((2, 2, 1), np.uint8))
    assert buffer.sample(1)[1].tolist() == [3]
    assert not buffer.can_sample(2)  # the second frame has no effect


def test_an_empty_buffer_refuses_samples_and_observations():
    buffer = ReplayBuffer(5, 2)
    assert not buffer.can_sample(1)
    with pytest.raises(NothingToSampleError, match="batch_size is 1: the buffer has 0 transitions whose next frame"):
        buffer.sample(1)
    with pytest.raises(NothingToSampleError, match="the buffer is empty"):
        buffer.encode_recent_observation()
    with pytest.raises(InvalidStepError, match="idx is 0: no frame was stored yet"):
        buffer.store_effect(0, 0, 0.0, False)
    with pytest.raises(InvalidSettingsError, match="size is 0: a buffer stores at least 1"):
        ReplayBuffer(0, 4)
