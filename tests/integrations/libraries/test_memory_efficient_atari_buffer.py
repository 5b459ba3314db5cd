"""nnabla-rl's MemoryEfficientAtariBuffer: the same calls give what its own gives, bit for bit, and what came."""

import pickle
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.integrations.classic import MemoryEfficientAtariBuffer
from oracles.plain_atari_buffer import PlainAtariBuffer

PARTS = ("s", "a", "r", "non_terminal", "s_next", "info")


class Play:
    """Experiences of one environment as nnabla-rl's explorer makes them of a wrapped Atari game, in a list."""

    def __init__(self, depth=4, shape=(3, 5), seed=0, is_stacked=True, scale=None):
        self.generator = np.random.default_rng(seed)
        self.depth, self.shape, self.is_stacked = depth, shape, is_stacked
        self.scale = scale or (lambda pixels: pixels.astype(np.float32) / 255)
        self.frames = [self.frame()] * depth
        self.experiences = []

    def frame(self):
        return self.scale(self.generator.choice(np.array([0, 1, 77, 255], np.uint8), self.shape))

    def shown(self):
        return np.stack(self.frames) if self.is_stacked else self.frames[-1]

    def step(self, *buffers, mean_length=5.0, are_ends_told=True):
        s = self.shown()
        self.frames = [*self.frames[1:], self.frame()]
        has_ended = self.generator.random() < 1 / mean_length
        non_terminal = 0.0 if has_ended and (are_ends_told or self.generator.random() < 0.5) else 1.0
        action = np.asarray(self.generator.integers(4)).reshape((1,))
        info = {} if self.generator.random() < 0.5 else {"lives": int(self.generator.integers(3))}
        reward = self.generator.normal() * 0.1  # not in float32
        experience = (s, action, reward, non_terminal, self.shown(), info)
        for buffer in buffers:
            buffer.append(experience)
        self.experiences.append(tuple(np.copy(part) if isinstance(part, np.ndarray) else part for part in experience))
        if has_ended:
            self.frames = [self.frame()] * self.depth


def assert_equal_experiences(expected, experience):
    assert len(expected) == len(experience)
    for name, one, other in zip(PARTS, expected, experience, strict=False):
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), name
        else:
            assert one == other, name


def assert_holds_the_newest(play, buffer):
    newest = play.experiences[-buffer.capacity :]
    assert len(buffer) == len(newest)
    for experience, mine in zip(newest, buffer, strict=True):
        assert_equal_experiences(experience, mine)


@settings(max_examples=40)
@given(st.integers(0, 9_999), st.integers(1, 5), st.integers(1, 12), st.booleans())
def test_with_end_flags_experiences_equal_those_of_nnabla_rl_and_the_appended_ones(seed, depth, capacity, is_stacked):
    play = Play(depth, seed=seed, is_stacked=is_stacked)
    buffer, plain = MemoryEfficientAtariBuffer(capacity, depth), PlainAtariBuffer(capacity, depth)
    for _ in range(2 * capacity + 7):
        play.step(buffer, plain, mean_length=4.0)
    assert len(buffer) == len(plain)
    assert buffer.memory.stack == depth
    for index in range(capacity):
        assert_equal_experiences(plain[index], buffer[index])
    if is_stacked:
        assert_holds_the_newest(play, buffer)


@settings(max_examples=30)
@given(st.integers(0, 9_999), st.integers(1, 4), st.integers(1, 12))
def test_without_end_flags_experiences_equal_the_appended_ones(seed, depth, capacity):
    play, buffer = Play(depth, (4, 6), seed), MemoryEfficientAtariBuffer(capacity, depth)
    for _ in range(2 * capacity + 7):
        play.step(buffer, mean_length=4.0, are_ends_told=False)
    assert_holds_the_newest(play, buffer)


def stacks_of(*numbers):
    return np.stack([np.full((2, 2), number / 255, np.float32) for number in numbers])


def first_pixels(stack):
    return np.rint(stack[:, 0, 0] * 255).astype(int).tolist()


def test_no_stack_crosses_a_time_limit_unlike_in_nnabla_rl():
    buffer, plain = MemoryEfficientAtariBuffer(10, 3), PlainAtariBuffer(10, 3)
    for each in (buffer, plain):
        each.append((stacks_of(1, 1, 1), 0, 0.0, 1.0, stacks_of(1, 1, 2), {}))
        each.append((stacks_of(1, 1, 2), 0, 0.0, 1.0, stacks_of(1, 2, 3), {"TimeLimit.truncated": True}))
        each.append((stacks_of(9, 9, 9), 0, 0.0, 1.0, stacks_of(9, 9, 10), {}))

    assert (first_pixels(plain[2][0]), first_pixels(plain[2][4])) == ([1, 2, 9], [2, 9, 10])
    assert (first_pixels(buffer[2][0]), first_pixels(buffer[2][4])) == ([9, 9, 9], [9, 9, 10])
    assert first_pixels(buffer[1][4]) == [1, 2, 3]


def test_values_that_are_not_pixels_are_returned_bit_for_bit_unlike_in_nnabla_rl():
    odd = np.array([[0.5, np.nan], [-0.0, 3.25]], np.float32)
    buffer, plain = MemoryEfficientAtariBuffer(10, 2), PlainAtariBuffer(10, 2)
    experience = (np.stack([odd, odd]), 0, 0.0, 1.0, np.stack([odd, odd / 2]))
    buffer.append(experience)
    with np.errstate(invalid="ignore"):
        plain.append(experience)
    assert_equal_experiences(experience, buffer[0])
    assert plain[0][0][0, 0, 0] == np.float32(127) / 255
    assert plain[0][0][0, 1, 1] == np.float32(828 % 256) / 255


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64])
def test_pixels_of_other_dtypes_are_returned_as_float32_as_in_nnabla_rl(dtype):
    def scale(pixels):
        return pixels if dtype == np.uint8 else (pixels / dtype(255)).astype(dtype)

    play = Play(3, seed=3, scale=scale)
    buffer, plain = MemoryEfficientAtariBuffer(8, 3), PlainAtariBuffer(8, 3)
    for _ in range(20):
        play.step(buffer, plain)
    for index in range(8):
        assert buffer[index][0].dtype == np.float32
        assert_equal_experiences(plain[index], buffer[index])


def test_an_episode_with_an_unpadded_first_stack_is_restored():
    play, buffer = Play(3), MemoryEfficientAtariBuffer(12, 3)
    for _ in range(9):
        play.step(buffer)
    play.frames = [play.frame() for _ in range(3)]  # as where the first steps of an episode are not recorded
    for _ in range(9):
        play.step(buffer)
    assert_holds_the_newest(play, buffer)


@pytest.mark.parametrize("num_steps", [1, 3])
def test_num_steps_returns_the_following_experiences(num_steps):
    play, buffer = Play(2), MemoryEfficientAtariBuffer(10, 2, seed=3)
    for _ in range(25):
        play.step(buffer)
    given_steps, info = buffer.sample_indices([7, 0, 2], num_steps)
    steps = given_steps if num_steps > 1 else (given_steps,)
    assert len(steps) == num_steps
    assert (info["weights"].shape, info["weights"].dtype, info["weights"].all()) == ((3, 1), np.float64, True)
    for further, experiences in enumerate(steps):
        for index, experience in zip([7, 0, 2], experiences, strict=True):
            assert_equal_experiences(play.experiences[15 + index + further], experience)


def test_nnabla_rls_generator_is_used_if_imported(monkeypatch):
    module = ModuleType("nnabla_rl")
    module.random = SimpleNamespace(drng=np.random.default_rng(5))
    monkeypatch.setitem(sys.modules, "nnabla_rl", module)
    play, buffer = Play(2), MemoryEfficientAtariBuffer(10, 2)
    for _ in range(25):
        play.step(buffer)
    expected = np.random.default_rng(5).choice(8, size=4, replace=False)
    experiences, _ = buffer.sample(4, num_steps=3)
    for index, experience in zip(expected, experiences[0], strict=True):
        assert_equal_experiences(play.experiences[15 + index], experience)


def test_the_same_seed_samples_the_same_experiences_and_none_twice():
    play = Play(2)
    buffers = [MemoryEfficientAtariBuffer(10, 2, seed=seed) for seed in (1, 1, 2)]
    for _ in range(25):
        play.step(*buffers)
    draws = [[experience[2] for experience in buffer.sample(10)[0]] for buffer in buffers]
    assert draws[0] == draws[1] != draws[2]
    assert len(set(draws[0])) == 10


def test_an_experience_without_info_and_with_a_plain_action_is_returned_like_that():
    buffer = MemoryEfficientAtariBuffer(5, 1)
    buffer.append_all([(stacks_of(1), 3, 1, 1.0, stacks_of(2)), (stacks_of(2), 1, -1, 0.0, stacks_of(3))])
    assert [experience[1:4] for experience in buffer] == [(3, 1.0, 1.0), (1, -1.0, 0.0)]
    assert [type(part) for part in buffer[0]] == [np.ndarray, int, float, float, np.ndarray]


INFOS = [
    {"lives": 5, "score": 0.5, "is_new": True},
    {"lives": -(2**63), "score": -0.0, "is_new": False},
    {"lives": 2**63, "score": 0.0, "is_new": False},  # in no int64
    {"lives": 4, "score": 1, "is_new": True},
    {"score": 0.5, "lives": 4, "is_new": True},
    {"lives": 3, "score": np.float64(0.5), "is_new": True},
    {"lives": 3, "score": 0.25, "is_new": True, "TimeLimit.truncated": True},
    {},
]


@pytest.mark.parametrize("first", range(len(INFOS)))
def test_numeric_infos_are_returned_with_their_keys_and_types_in_any_order(first):
    infos = INFOS[first:] + INFOS[:first]
    buffer = MemoryEfficientAtariBuffer(5, 1)
    for number in range(18):
        others = (infos[number % len(infos)],) if number % 3 != 2 else ()
        buffer.append((stacks_of(number), 0, 0.0, 1.0, stacks_of(number + 1), *others))
        given = [list(info.items()) for info in buffer[len(buffer) - 1][5:]]
        assert repr(given) == repr([list(info.items()) for info in others])  # -0.0, True and 1.0 as they are
    for number, experience in zip(range(13, 18), buffer, strict=True):
        expected = [list(infos[number % len(infos)].items())] if number % 3 != 2 else []
        assert repr(expected) == repr([list(info.items()) for info in experience[5:]])


def test_returned_observations_are_read_only_and_appended_arrays_may_change():
    s, s_next, info = stacks_of(1, 1), stacks_of(1, 2), {"states": np.ones(3)}
    buffer = MemoryEfficientAtariBuffer(5, 2)
    buffer.append((s, 0, 0.0, 1.0, s_next, info))
    s[:] = s_next[:] = info["states"][:] = 0
    assert (first_pixels(buffer[0][0]), first_pixels(buffer[0][4])) == ([1, 1], [1, 2])
    assert buffer[0][5]["states"].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        buffer[0][0][:] = 0


def test_a_buffer_pickled_in_mid_episode_resumes():
    play, buffer = Play(3, seed=4), MemoryEfficientAtariBuffer(10, 3, seed=0)
    for _ in range(14):
        play.step(buffer, mean_length=1e9)
    again = pickle.loads(pickle.dumps(buffer))
    play.step(buffer, again)
    assert_holds_the_newest(play, again)
    assert again.sample(4)[0][0][2] == buffer.sample(4)[0][0][2]
    assert len(list(again.memory.episodes())) == 1


def test_a_refused_experience_changes_nothing():
    buffer = MemoryEfficientAtariBuffer(5, 2)
    fine = (stacks_of(1, 1), 0, 0.0, 1.0, stacks_of(1, 2), {"lives": 3})
    buffer.append(fine)
    for changed, message in (
        ({0: stacks_of(1, 1, 1)}, r"observation has shape \(1, 3, 2, 2\): 1 environment takes \(1, 2, 2, 2\)"),
        (
            {0: np.full((2, 2, 2), 0.3)},
            r"s has dtype float64: it must be uint8, float32, or floats of the form k / 255",
        ),
        ({2: np.nan}, "r is nan: it must be one number, finite in float32"),
        ({5: lambda: 0}, r"the fields after s_next cannot be pickled \(.*\): they are stored as bytes; remove"),
    ):
        with pytest.raises(InvalidStepError, match=message):
            buffer.append(tuple(changed.get(index, part) for index, part in enumerate(fine)))
    assert len(buffer) == 1
    assert_equal_experiences(fine, buffer[0])


def test_missing_experiences_are_refused():
    buffer = MemoryEfficientAtariBuffer(5, 2)
    with pytest.raises(NothingToSampleError, match="the buffer is empty"):
        buffer[0]
    with pytest.raises(InvalidStepError, match="experience is of type tuple with 4 parts"):
        buffer.append((stacks_of(1, 1), 0, 0.0, 1.0))
    buffer.append((stacks_of(1, 1), 0, 0.0, 1.0, stacks_of(1, 2)))
    for index in (-1, 1):
        with pytest.raises(NothingToSampleError, match=f"index is {index}: it must be from 0 to 0; check len"):
            buffer[index]
    with pytest.raises(ValueError, match="num_samples is 2: the buffer has 1 experiences with 0 following ones"):
        buffer.sample(2)
    for indices, num_steps, message in (
        ([], 1, r"indices is \[\]: at least 1 experience is returned"),
        ([0], 0, "num_steps is 0: at least 1 step is returned"),
    ):
        with pytest.raises(InvalidSettingsError, match=message):
            buffer.sample_indices(indices, num_steps)
    with pytest.raises(InvalidSettingsError, match="capacity is 0: a buffer stores at least 1 experience"):
        MemoryEfficientAtariBuffer(0)
