"""What a drop-in refuses or warns of names the argument, call or class of that drop-in that leads out."""

from __future__ import annotations

import copy

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3.common import buffers
from tensordict import TensorDict

from framestow.errors import InvalidSettingsError, InvalidStepError, ObservationWarning
from framestow.integrations import classic, cleanrl, stable_baselines3, torchrl

PICTURES, ACTIONS = gymnasium.spaces.Box(0, 255, (4, 40, 40), np.uint8), gymnasium.spaces.Discrete(4)
TWO = np.zeros((2, 4, 40, 40), np.uint8)  # observations of two environments
FRAMES = np.random.default_rng(0).integers(0, 256, (200, 40, 40), np.uint8)


def row_buffer(module, space=PICTURES, actions=ACTIONS, **settings):
    return module.ReplayBuffer(100, space, actions, "cpu", **settings)


def add_to_rows(module):
    buffer = row_buffer(module)
    buffer = copy.deepcopy(buffer)  # a copy warns as the first one

    def add(before, after):
        buffer.add(before[None], after[None], np.zeros((1, 1), int), np.zeros(1), np.ones(1), [{}])

    return add


def add_to_prioritized():
    buffer = cleanrl.PrioritizedReplayBuffer(100, (4, 40, 40), "cpu", n_step=2, gamma=0.9)
    return lambda before, after: buffer.add(before, 0, 0.0, after, True)


def add_to_nnabla():
    buffer = classic.MemoryEfficientAtariBuffer(100, stacked_frames=4)
    return lambda before, after: buffer.append((before, 0, 0.0, 1.0, after))


def play(add) -> None:
    """Add steps whose observations share no frame."""
    for step in range(90):
        add(FRAMES[step : step + 4], FRAMES[step + 5 : step + 9])


@pytest.mark.parametrize(
    ("make", "way_out"),
    [
        (lambda: add_to_rows(cleanrl), "give frame_stack=1"),
        (lambda: add_to_rows(stable_baselines3), "give frame_stack=1"),
        (add_to_prioritized, "give frame_stack=1"),
        (add_to_nnabla, "give stacked_frames=1"),
    ],
    ids=["cleanrl", "stable_baselines3", "prioritized", "nnabla"],
)
def test_a_warning_about_stacks_names_an_argument_of_the_drop_in(make, way_out: str):
    add = make()

    with pytest.warns(ObservationWarning) as warned:
        play(add)

    messages = {str(each.message) for each in warned if "stored" in str(each.message)}
    assert all(message.endswith(way_out) for message in messages), messages
    assert messages


@pytest.mark.parametrize(
    "space",
    [gymnasium.spaces.MultiDiscrete([[2, 3, 4], [5, 6, 7]]), gymnasium.spaces.MultiBinary((2, 3))],
    ids=["MultiDiscrete", "MultiBinary"],
)
def test_integer_actions_of_two_axes_are_flat_in_cleanrl_and_refused_where_stable_baselines_has_none(space):
    buffer = row_buffer(cleanrl, actions=space, n_envs=2)
    actions = np.stack([space.sample(), space.sample()])

    buffer.add(TWO, TWO, actions, [0, 0], [0, 0], [{}, {}])

    np.testing.assert_array_equal(actions.reshape(2, 6), buffer.actions[0])
    assert buffer.sample(5).actions.shape == (5, 6)
    with pytest.raises(InvalidSettingsError, match=r"own buffer cannot store .* \(2, 3\); flatten them in a"):
        row_buffer(stable_baselines3, actions=space)


def test_integer_actions_whose_second_axis_has_one_entry_are_stored_as_stable_baselines_stores_them():
    space = gymnasium.spaces.MultiDiscrete([[2], [3]])
    own = buffers.ReplayBuffer(10, PICTURES, space, "cpu", 2)
    buffer = row_buffer(stable_baselines3, actions=space, n_envs=2)
    actions = np.stack([space.sample(), space.sample()])

    for one in own, buffer:
        one.add(TWO, TWO, actions, np.zeros(2), np.zeros(2), [{}, {}])

    np.testing.assert_array_equal(own.actions[0], buffer.actions[0])


@pytest.mark.parametrize("module", [cleanrl, stable_baselines3], ids=["cleanrl", "stable_baselines3"])
def test_an_assignment_to_what_is_stored_says_that_it_cannot_be_changed(module):
    buffer = row_buffer(module)
    buffer.add(PICTURES.sample()[None], PICTURES.sample()[None], np.ones((1, 1), int), np.ones(1), np.zeros(1), [{}])

    for name in ("observations", "next_observations"):
        with pytest.raises(InvalidSettingsError, match="packed, and cannot be changed; add steps"):
            getattr(buffer, name)[0] = 0
    for name in ("actions", "rewards", "timeouts"):
        with pytest.raises(InvalidSettingsError, match="stored steps cannot be changed, and this is a copy; add steps"):
            getattr(buffer, name)[0] = 0
        own = getattr(buffer, name).copy()
        own[0] = 5
        assert (own[0] == 5).all()


def prioritized_of_one(actions, flags):
    buffer = cleanrl.PrioritizedReplayBuffer(9, (4, 40, 40), "cpu", n_step=2, gamma=0.9)
    buffer.add(TWO, actions, flags, TWO, flags)


def rows_of_one(module):
    return lambda actions, flags: row_buffer(module).add(TWO, TWO, actions, flags, flags, [{}, {}])


@pytest.mark.parametrize(
    ("add", "way_out"),
    [
        (rows_of_one(cleanrl), "n_envs=2"),
        (rows_of_one(stable_baselines3), "n_envs=2"),
        (prioritized_of_one, "num_envs=2"),
    ],
    ids=["cleanrl", "stable_baselines3", "prioritized"],
)
def test_a_buffer_of_one_environment_that_gets_two_names_its_argument(add, way_out: str):
    with pytest.raises(InvalidStepError, match=f"create the buffer with {way_out}"):
        add(np.zeros(2, int), np.zeros(2))


@pytest.mark.parametrize("dim", [-3, -1])
def test_frame_stack_over_pixels_that_are_stacks_already_is_refused(dim: int):
    storage = torchrl.FramestowStorage(100, frame_stack=4, dim=dim)
    stacks = np.stack([FRAMES[first : first + 4] for first in (0, 0, 1, 2)])
    pixels = torch.from_numpy(stacks if dim == -3 else np.moveaxis(stacks, 1, -1))
    done = torch.zeros(3, 1, dtype=torch.bool)
    steps = TensorDict({"pixels": pixels[:-1], "next": {"pixels": pixels[1:], "done": done}}, [3])

    storage.set(0, steps[0])  # its pixels stay as they are
    with pytest.raises(InvalidStepError, match="are stacks of 4 frames already, and would be stacked"):
        storage.set(range(1, 3), steps[1:])
    assert len(storage) == 1


def test_frame_stack_over_colours_of_as_many_channels_works():
    storage = torchrl.FramestowStorage(100, frame_stack=4)
    pixels = torch.from_numpy(FRAMES[:16].reshape(4, 4, 40, 40))
    done = torch.zeros(3, 1, dtype=torch.bool)

    storage.set(range(3), TensorDict({"pixels": pixels[:-1], "next": {"pixels": pixels[1:], "done": done}}, [3]))

    assert storage.get(2)["pixels"].shape == (16, 40, 40)
