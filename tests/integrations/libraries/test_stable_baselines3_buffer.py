"""Arrays, tensors, saving and error messages of the Stable-Baselines3 buffers."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common import buffers
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl

from framestow import Prioritized, ReplayMemory
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.stable_baselines3 import (
    DictReplayBuffer,
    NStepReplayBuffer,
    PrioritizedReplayBuffer,
    ReplayBuffer,
)
from integrations.libraries.sb3_play import Play, assert_equal_samples
from oracles.python_calls import python_calls

SPACE, ACTIONS = spaces.Box(0, 255, (4, 6, 5), np.uint8), spaces.Discrete(4)
DICT = spaces.Dict({"picture": SPACE, "place": spaces.Box(-1, 1, (2,), np.float32)})


def filled(kind, num_rows, space=SPACE, num_envs=2, seed=0, size=16, **settings):
    play, buffer = (
        Play(seed, space, ACTIONS, num_envs, stack=4),
        kind(size, space, ACTIONS, "cpu", num_envs, **settings),
    )
    for _ in range(num_rows):
        buffer.add(*play.step())
    return buffer


def samples(buffer, seed=0):
    np.random.seed(seed)
    return buffer.sample(32)


@pytest.mark.parametrize("num_rows", [0, 5, 21])
def test_arrays_read_as_those_of_the_library(num_rows):
    theirs, ours = filled(buffers.ReplayBuffer, num_rows), filled(ReplayBuffer, num_rows)

    for name in ("actions", "rewards", "dones", "timeouts"):
        expected, actual = getattr(theirs, name), getattr(ours, name)
        assert expected.dtype == actual.dtype, name
        np.testing.assert_array_equal(expected, actual, err_msg=name)
    for name in ("observations", "next_observations"):
        expected, actual = getattr(theirs, name), getattr(ours, name)
        assert (expected.shape, expected.dtype, len(expected)) == (actual.shape, actual.dtype, len(actual))
        np.testing.assert_array_equal(expected, actual, err_msg=name)
        for key in (3, -1, np.s_[2:6], np.s_[1, 0], np.s_[:, 1], ([1, 7], [0, 1]), np.s_[[1, 2], [1, 0], :], np.s_[-3]):
            np.testing.assert_array_equal(expected[key], actual[key], err_msg=f"{name}[{key}]")


def test_dict_observations_read_as_a_dict_of_arrays():
    theirs, ours = filled(buffers.DictReplayBuffer, 5, DICT), filled(ReplayBuffer, 5, DICT)

    assert list(theirs.observations) == list(ours.observations)
    for key, expected in theirs.next_observations.items():
        np.testing.assert_array_equal(expected, ours.next_observations[key])


def test_samples_are_not_changed_later_and_may_be_written_to():
    buffer = filled(ReplayBuffer, 12)
    kept = samples(buffer)
    copies = [field.clone() for field in kept[:5]]
    for seed in range(20):
        samples(buffer, seed)
        buffer.add(*Play(seed, SPACE, ACTIONS, 2, stack=4).step())
    assert all(torch.equal(copy, field) for copy, field in zip(copies, kept[:5], strict=True))

    kept.observations.fill_(7)
    assert torch.equal(copies[2], kept.next_observations)
    one = buffer.sample(1)
    before = one.next_observations.clone()
    one.observations.fill_(7)
    assert torch.equal(before, one.next_observations)


def test_samples_go_to_a_device_set_later():
    buffer = filled(ReplayBuffer, 5)
    buffer.device = torch.device("meta")

    assert {torch.device("meta")} == {field.device for field in buffer.sample(3)[:5]}


def test_steps_of_one_environment_may_come_without_its_axis_and_many_by_extend():
    alone, together = ReplayBuffer(9, SPACE, ACTIONS, "cpu"), ReplayBuffer(9, SPACE, ACTIONS, "cpu")
    play = Play(0, SPACE, ACTIONS, 1, stack=4)
    steps = [play.step() for _ in range(5)]
    for now, after, action, reward, done, infos in steps:
        alone.add(now[0], after[0], action[0], reward[0], done[0], infos)
    together.extend(*map(list, zip(*steps, strict=True)))

    assert_equal_samples(samples(alone), samples(together))


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_buffer_is_extended_by_the_arrays_of_another_one(num_envs):
    read = filled(buffers.ReplayBuffer, 9, num_envs=num_envs)
    infos = [[{"TimeLimit.truncated": timeouts}] for timeouts in read.timeouts[:9]]
    arrays = [read.observations, read.next_observations, read.actions, read.rewards, read.dones]
    theirs, ours = filled(buffers.ReplayBuffer, 0, num_envs=num_envs), filled(ReplayBuffer, 0, num_envs=num_envs)

    for buffer in (theirs, ours):
        buffer.extend(*(array[:9] for array in arrays), infos)

    assert read.timeouts.any()
    assert_equal_samples(samples(theirs), samples(ours))


def test_reset_removes_all_steps():
    buffer, play = filled(ReplayBuffer, 12), Play(0, SPACE, ACTIONS, 2, stack=4)
    buffer.reset()

    assert (0, False, 0, 0) == (buffer.pos, buffer.full, buffer.size(), len(buffer.memory))
    for _ in range(12):
        buffer.add(*play.step())
    assert_equal_samples(samples(filled(ReplayBuffer, 12)), samples(buffer))


@pytest.mark.parametrize("space", [SPACE, DICT])
def test_a_prioritized_buffer_draws_as_the_memory_of_its_steps_and_goes_on_after_a_save(space, tmp_path):
    np.random.seed(3)
    buffer = filled(PrioritizedReplayBuffer, 21, space, alpha=0.7, beta=0.5)
    np.random.seed(3)
    memory = ReplayMemory(16, space, ACTIONS, num_envs=2, sampler=Prioritized(0.7, 0.5), seed=np.random.randint(2**31))
    play = Play(0, space, ACTIONS, 2, stack=4)
    for _ in range(21):
        now, after, action, reward, done, infos = play.step()
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos], bool)
        memory.add(now, action.reshape(2), reward, after, done & ~truncated, truncated)

    for draw in range(4):
        if draw == 2:
            save_to_pkl(tmp_path / "buffer.pkl", buffer)
            buffer = load_from_pkl(tmp_path / "buffer.pkl")
        expected, found = memory.sample(32), buffer.sample(32)
        np.testing.assert_array_equal(expected.index, found.indices)
        np.testing.assert_array_equal(expected.weight[:, None], found.weights)
        np.testing.assert_array_equal(expected.reward[:, None], found.rewards)
        np.testing.assert_array_equal(expected.terminated[:, None], found.dones)
        np.testing.assert_array_equal(expected.action[:, None], found.actions)
        for name in ("observation", "next_observation"):
            map_arrays(np.testing.assert_array_equal, getattr(expected, name), getattr(found, f"{name}s"))
        errors = np.linspace(-1, 3, 32)
        memory.update_priorities(expected.index, errors)
        buffer.update_priorities(found.indices, torch.tensor(errors, requires_grad=True)[:, None])
    buffer.reset()
    assert isinstance(buffer.memory.sampler, Prioritized)
    with pytest.raises(NothingToSampleError):
        buffer.sample(1)


def test_a_prioritized_buffer_refuses_wrong_priorities_and_arguments_of_others():
    with pytest.raises(InvalidSettingsError, match="alpha is -1"):
        filled(PrioritizedReplayBuffer, 0, alpha=-1)
    with pytest.raises(InvalidSettingsError, match="PrioritizedReplayBuffer"):
        filled(ReplayBuffer, 0, alpha=0.5)
    buffer = filled(PrioritizedReplayBuffer, 5)
    with pytest.raises(InvalidSettingsError, match=r"priority of transition .* is nan"):
        buffer.update_priorities(buffer.sample(1).indices, [np.nan])


def test_instances_are_those_of_the_library():
    assert isinstance(filled(ReplayBuffer, 0), buffers.ReplayBuffer)
    assert isinstance(filled(DictReplayBuffer, 0, DICT), buffers.DictReplayBuffer)
    assert isinstance(filled(NStepReplayBuffer, 0), buffers.NStepReplayBuffer)


@pytest.mark.parametrize(
    ("space", "settings"), [(SPACE, {"optimize_memory_usage": True, "threads": 2}), (DICT, {"n_steps": 2})]
)
def test_a_saved_buffer_continues_like_the_original(tmp_path, space, settings):
    kind = NStepReplayBuffer if "n_steps" in settings else ReplayBuffer
    play, buffer = Play(3, space, ACTIONS, 2, stack=4), kind(40, space, ACTIONS, "cpu", 2, **settings)
    for _ in range(30):
        buffer.add(*play.step())
    save_to_pkl(tmp_path / "buffer", buffer)
    loaded = load_from_pkl(tmp_path / "buffer")

    assert buffer.memory.inner.settings.threads == loaded.memory.inner.settings.threads
    for seed in range(10):
        assert_equal_samples(samples(buffer, seed), samples(loaded, seed))
        step = play.step()
        buffer.add(*step)
        loaded.add(*step)
    loaded.memory.inner.parts.check()


class TestRefusals:
    @pytest.mark.parametrize(("name", "value"), [("pos", 3), ("full", True)])
    def test_pos_and_full_cannot_be_set(self, name, value):
        with pytest.raises(InvalidSettingsError, match=f"^{name} is set to {value}: "):
            setattr(filled(ReplayBuffer, 2), name, value)

    def test_stored_flags_cannot_be_set(self):
        with pytest.raises(InvalidSettingsError, match=r"^dones\[0\] is set to True: stored steps cannot be changed; "):
            filled(ReplayBuffer, 2).dones[0] = True
        observations = filled(ReplayBuffer, 2).observations
        with pytest.raises(InvalidSettingsError, match="are assigned: stored ones are packed"):
            np.clip(observations, 0, 1, out=observations)

    def test_unpacking_everything(self):
        space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        buffer = ReplayBuffer(100_000, space, ACTIONS, "cpu")
        with pytest.raises(InvalidSettingsError, match=r"^100000 observations have 2\.6 GiB unpacked: the limit is 1"):
            np.asarray(buffer.observations)

    def test_indexing_within_observations(self):
        with pytest.raises(
            InvalidSettingsError,
            match=r"^observations are indexed with 3 indices: the limit is 2, ",
        ):
            filled(ReplayBuffer, 2).observations[:, 0, 3]

    def test_a_space_that_is_not_a_dict(self):
        with pytest.raises(InvalidSettingsError, match=r"DictReplayBuffer needs a Dict space; use ReplayBuffer$"):
            DictReplayBuffer(16, SPACE, ACTIONS)


@pytest.mark.parametrize(("name", "most"), [("add", 20), ("sample", 35)])
def test_a_call_of_every_step_goes_through_few_functions(name, most):
    space = spaces.Box(0, 255, (4, 36, 36), np.uint8)  # taken for stacks on the first axis
    play, buffer = Play(0, space, ACTIONS, 1, stack=4), ReplayBuffer(100, space, ACTIONS, "cpu", 1)
    for _ in range(12):
        buffer.add(*play.step())
    buffer.sample(8)
    step = play.step()

    called = python_calls(lambda: buffer.add(*step) if name == "add" else buffer.sample(8))

    assert len(called) <= most, called
