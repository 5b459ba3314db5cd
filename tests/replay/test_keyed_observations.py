"""Dict and Tuple observations: every key of every transition is what was acted on."""

from __future__ import annotations

import re

import gymnasium.spaces as gym
import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.observations_of_bytes import NUM_BYTES, SPACE, MemoryOfBytes, join, split

SMALL = gym.Dict({"camera": gym.Box(0, 255, (4, 5), np.uint8), "pose": gym.Box(-1, 1, (2,), np.float32)})


def test_keys_are_restored_for_any_order_in_the_space_and_the_frames():
    memory = ReplayMemory(10, {"b": FrameSpec((2, 2)), "a": FrameSpec((1,))}, 2, stack=2)
    memory.begin({"b": np.full((1, 2, 2), 7, np.uint8), "a": np.full((1, 1), 3, np.uint8)})
    memory.append(
        [0], [0.0], [True], [False], {"a": np.full((1, 1), 4, np.uint8), "b": np.full((1, 2, 2), 8, np.uint8)}
    )

    batch = memory.sample(1)

    assert ["a", "b"] == list(batch.observation)
    assert [[3], [4]] == batch.next_observation["a"][0].tolist()
    assert [7, 8] == batch.next_observation["b"][0, :, 1, 1].tolist()


def test_numbers_without_axes_are_sampled_without_axes():
    space = gym.Dict({"image": gym.Box(0, 255, (7, 7, 3), np.uint8), "direction": gym.Discrete(4)})  # as of MiniGrid
    memory = ReplayMemory(10, space, 3, stack=2, num_envs=2)
    image = np.zeros((2, 7, 7, 3), np.uint8)
    memory.begin({"image": image, "direction": np.array([1, 3])})
    memory.append([0, 1], [0, 0], [False] * 2, [False] * 2, {"image": image, "direction": np.array([2, 0])})

    assert [[1, 2], [3, 0]] == memory.observations()["direction"].tolist()
    assert [[1, 2], [3, 0]] == memory.get([0, 1]).next_observation["direction"].tolist()
    assert np.int64 == memory.sample(5).observation["direction"].dtype
    assert [1, 2] == next(memory.episodes()).frames()["direction"].tolist()


NOT_KEPT = [gym.Text(5), gym.Graph(gym.Box(0, 1, (2,)), None), gym.Sequence(gym.Box(0, 1, (2,))), object()]
if hasattr(gym, "OneOf"):
    NOT_KEPT.append(gym.OneOf([gym.Box(0, 1, (2,))]))


@pytest.mark.parametrize("space", NOT_KEPT, ids=lambda space: type(space).__name__)
def test_unsupported_spaces_are_refused_at_construction_by_their_key(space):
    nested = {"camera": SMALL["camera"], "told": (SMALL["pose"], space)}

    with pytest.raises(InvalidSettingsError, match=re.escape(f"observation_space['told'][1] is {space!r}: ")):
        ReplayMemory(10, nested, 3, stack=4)
    with pytest.raises(InvalidSettingsError, match=r"^observation_space is "):
        ReplayMemory(10, space, 3, stack=4)


@pytest.mark.parametrize("space", [{}, (), gym.Dict({}), {"a": {}}, {3: FrameSpec((4,))}])
def test_an_empty_observation_or_keys_that_are_not_strings_are_refused(space):
    with pytest.raises(InvalidSettingsError, match=r"^observation_space"):
        ReplayMemory(10, space, 3, stack=4)


WRONG_FRAMES = [
    (lambda frames: np.zeros((2, 4, 5), np.uint8), "frames are a ndarray: this memory needs a dict of camera, pose"),
    (lambda frames: {"camera": frames["camera"]}, "frames have the keys camera: this memory needs camera, pose"),
    (lambda frames: frames | {"extra": np.zeros(2)}, "frames have the keys camera, pose, extra: this memory needs"),
    (
        lambda frames: frames | {"pose": np.zeros((2, 2))},
        "frames['pose'] have dtype float64: this memory stores float32",
    ),
    (
        lambda frames: frames | {"pose": np.zeros((2, 3), np.float32)},
        "frames['pose'] have shape (2, 3): 2 environments take",
    ),
    (
        lambda frames: frames | {"pose": np.zeros((1, 2), np.float32)},
        "frames['pose'] have shape (1, 2): 2 environments take",
    ),
    (lambda frames: frames | {"camera": np.zeros((2, 3, 4, 5), np.uint8)}, "frames['camera'] have shape (2, 3, 4, 5)"),
    (
        lambda frames: {key: part[:1] for key, part in frames.items()},
        "frames['camera'] have shape (1, 4, 5): 2 environments",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG_FRAMES)
def test_frames_that_do_not_fit_are_refused_by_their_key_and_leave_no_trace(change, message):
    memory = ReplayMemory(10, SMALL, 3, stack=2, num_envs=2)
    frames = {"camera": np.ones((2, 4, 5), np.uint8), "pose": np.ones((2, 2), np.float32)}
    memory.begin(frames)
    memory.append([0, 1], [0, 0], [False] * 2, [False] * 2, frames)

    for call in (
        lambda wrong: memory.append([0, 1], [0, 0], [False] * 2, [False] * 2, wrong),
        memory.begin,
    ):
        with pytest.raises(InvalidStepError, match=re.escape(message)):
            call(change(frames))

    memory.inner.parts.check()
    assert [0, 1] == memory.sampleable_indices().tolist()
    memory.append([2, 2], [1, 1], [True] * 2, [False] * 2, {key: part * 2 for key, part in frames.items()})
    assert [1, 2] == memory.get([2]).next_observation["camera"][0, :, 0, 0].tolist()


def test_frames_in_another_valid_form_are_accepted():
    memory = ReplayMemory(10, (FrameSpec((2, 3)), FrameSpec((2,), np.int64)), 3, stack=1, num_envs=2)
    turned = np.arange(12, dtype=np.uint8).reshape(3, 2, 2).T  # not in C order

    memory.begin([turned, [[1, 2], [3, 4]]])

    np.testing.assert_array_equal(turned, memory.observations()[0][:, 0])
    assert [[[1, 2]], [[3, 4]]] == memory.observations()[1].tolist()


def test_the_budget_counts_all_keys_and_the_memory_stays_within_it():
    memory = MemoryOfBytes(ReplayMemory(100_000, SPACE, 4, stack=3, num_envs=2, max_bytes="5 MiB", seed=0))
    noise = np.random.default_rng(0).integers(0, 256, (6_000, 2, NUM_BYTES), dtype=np.uint8)
    memory.begin(noise[0])
    for frames in noise:
        memory.append([0, 0], [0, 0], [False] * 2, [False] * 2, frames)
    memory.sample(32)

    report = memory.report()

    assert 4_000 < len(memory) < len(noise) * 2
    assert report.nbytes <= 5 * 2**20
    assert {"camera", "arm.0.joints", "arm.1", "depth", "seen", "touch"} == set(report.frame_bytes_by_key)
    others = sum(report.parts[part] for part in ("steps", "stacks", "output pool"))
    assert report.nbytes - others == sum(report.frame_bytes_by_key.values())
    assert "\n  arm.0.joints " in str(report)


def test_split_and_join_of_this_test_are_each_others_inverse():
    frames = np.random.default_rng(0).integers(0, 256, (3, 2, NUM_BYTES), dtype=np.uint8)

    np.testing.assert_array_equal(frames, join(split(frames)))
