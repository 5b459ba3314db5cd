"""Tianshou's buffers and ours get the same steps; a plain list has the true observations."""

import copy
import pickle
import re

import numpy as np
import pytest

pytest.importorskip("tianshou")

from tianshou import data as tianshou
from tianshou.data import Batch

from framestow.errors import IncompatibleError, InvalidSettingsError, InvalidStepError
from framestow.integrations import tianshou as packed
from integrations.libraries.tianshou_play import DEPTH, Play, assert_same
from oracles.wrong_values import Call, Made, assert_wrong_values_are_refused, each_argument

SIZE = 13  # slots per environment, a prime

WAYS = [
    # the environment stacks; the buffer stores stacks, or stacks their newest frames again
    {"env_stacks": True},
    {"env_stacks": True, "is_dict": True},
    {"env_stacks": True, "padding": "zeros"},
    {"env_stacks": True, "save_only_last_obs": True},
    {"env_stacks": True, "save_only_last_obs": True, "stack_num": DEPTH},
    # single frames, stacked by the buffer or not at all
    {"env_stacks": False},
    {"env_stacks": False, "stack_num": DEPTH},
    {"env_stacks": False, "stack_num": 2, "is_dict": True},
]
PLAYED = ("env_stacks", "is_dict", "padding")


class BesideOneAnother:
    """A Tianshou buffer and ours with the same steps, and the true content of their slots."""

    def __init__(
        self, way, num_envs, seed=0, size=SIZE, reset_chance=0.0, kind="VectorReplayBuffer", where=None, **settings
    ):
        played = {key: value for key, value in way.items() if key in PLAYED}
        settings |= {key: value for key, value in way.items() if key not in PLAYED}
        self.play = Play(seed, num_envs, reset_chance=reset_chance, **played)
        sizes = (num_envs * size, num_envs) if "Vector" in kind else (size,)
        self.theirs = getattr(tianshou, kind)(*sizes, **settings)
        has_stacks = way["env_stacks"] and not settings.get("save_only_last_obs")
        frame_stack = DEPTH if has_stacks else None
        self.ours = getattr(packed, kind)(*sizes, **settings, frame_stack=frame_stack, **where or {})
        self.seen = {}

    def add(self, env_ids, with_next=True):
        batch, seen = self.play.step(env_ids)
        if not with_next:
            batch.pop("obs_next")
        theirs = self.theirs.add(Batch(batch, copy=True), buffer_ids=env_ids)
        ours = self.ours.add(batch, buffer_ids=env_ids)
        for part in (batch.obs, batch.get("obs_next")):  # an environment may reuse its arrays
            for array in part.values() if isinstance(part, Batch) else [part]:
                if array is not None:
                    array[:] = 99
        for expected, actual in zip(theirs, ours, strict=True):
            assert_same(expected, actual)
        self.seen |= dict(zip(ours[0].tolist(), seen, strict=True))

    def truth(self, slots, which):
        """Return the true observations before (0) or after (1) the step in each slot, in the buffers' form."""
        windows = [self.seen[slot][which] for slot in slots.tolist()]
        as_it_comes = self.play.env_stacks and self.ours.stack_num == 1 and not self.ours.options["save_only_last_obs"]
        return Batch(obs=self.play.sampled(windows, None if as_it_comes else self.ours.stack_num)).obs

    def assert_all_right(self):
        """Check the true observations in every slot, and that all else equals Tianshou's."""
        slots = self.ours.sample_indices(0)
        shown, expected = self.ours[slots], self.theirs[slots]
        assert_same(self.truth(slots, 0), shown.pop("obs"))
        assert_same(self.truth(slots, 1), shown.pop("obs_next"))
        del expected.__dict__["obs"], expected.__dict__["obs_next"]
        assert_same(expected, shown)


def some_env_ids(generator, num_envs, is_uneven):
    if is_uneven and generator.random() < 0.5:
        return np.sort(generator.permutation(num_envs)[: generator.integers(1, num_envs + 1)])
    return np.arange(num_envs)


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(f"{key}={value}" for key, value in way.items()))
def test_samples_have_the_true_observations_and_equal_tianshous_otherwise(way, num_envs, is_uneven):
    generator = np.random.default_rng(num_envs + is_uneven)
    both = BesideOneAnother(way, num_envs, reset_chance=0.05, ignore_obs_next=bool(generator.integers(2)))

    for step in range(2 * SIZE * (1 + is_uneven) + 5):
        both.add(some_env_ids(generator, num_envs, is_uneven))
        if step % 5 == 0:
            both.assert_all_right()
        assert_same(both.theirs.sample_indices(4), both.ours.sample_indices(4))
    both.assert_all_right()
    assert len(both.ours.memories) == (num_envs if is_uneven else 1)


def fed(buffer, frames, ends=()):
    """Add a step from each of these frames to the next; steps of ``ends`` are truncated."""
    step = {"act": 0, "rew": 0.0, "terminated": False, "info": Batch()}
    for index in range(len(frames) - 1):
        buffer.add(Batch(obs=frames[index], obs_next=frames[index + 1], truncated=index in ends, **step))


def numbered(num):
    return np.arange(num, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)


def shown(observations):
    """Return the frame numbers of each observation."""
    return observations[..., 0, 0].tolist()


STACKED = {"stack_num": 3}
UNLIKE_TIANSHOU = {
    # it bootstraps from the wrong observation: s' = s
    "a truncated step": (10, {"ignore_obs_next": True}, [(range(4), [2])], 2, "obs_next", 2, 3),
    "the oldest step": (5, STACKED, [(range(9), [])], 3, "obs", [3, 3, 3], [1, 2, 3]),
    "the next of a first step": (9, STACKED, [(range(4), [])], 0, "obs_next", [1, 1, 1], [0, 0, 1]),
    "a reset in mid-episode": (9, STACKED, [(range(3), []), (range(6, 9), [])], 2, "obs", [0, 1, 6], [6, 6, 6]),
}


@pytest.mark.parametrize("case", UNLIKE_TIANSHOU.values(), ids=UNLIKE_TIANSHOU)
def test_an_observation_is_the_true_one_unlike_in_tianshou(case):
    size, settings, plays, slot, key, of_tianshou, true = case
    theirs, ours = (library.ReplayBuffer(size, **settings) for library in (tianshou, packed))

    for buffer in (theirs, ours):
        for frames, ends in plays:
            fed(buffer, numbered(9)[list(frames)], ends)

    assert shown(theirs[np.array([slot])][key]) == [of_tianshou]
    assert shown(ours[np.array([slot])][key]) == [true]


def test_without_next_observations_they_are_the_next_slots_observations_as_in_tianshou():
    both = BesideOneAnother({"env_stacks": False, "stack_num": DEPTH}, 3, ignore_obs_next=True)
    generator = np.random.default_rng(0)

    for _ in range(40):
        both.add(some_env_ids(generator, 3, is_uneven=both.ours.memories and len(both.seen) > 20), with_next=False)
        slots = both.ours.sample_indices(0)
        oldest_too = both.theirs._lengths.max() < SIZE
        theirs, ours = both.theirs[slots], both.ours[slots]
        assert_same(both.truth(slots, 0), ours.obs)
        if oldest_too:
            assert_same(theirs, ours)


def test_without_next_observations_stacks_of_the_environment_are_restored():
    both = BesideOneAnother({"env_stacks": True}, 2, ignore_obs_next=True)

    for _ in range(3 * SIZE):
        both.add(np.arange(2), with_next=False)
        slots = both.ours.sample_indices(0)
        assert_same(both.theirs[slots], both.ours[slots])
    assert both.ours.memory.stack == DEPTH


@pytest.mark.parametrize("stack_num", [1, 2, 3, DEPTH, 7])
def test_get_stacks_the_requested_number_of_frames(stack_num):
    both = BesideOneAnother({"env_stacks": False, "stack_num": DEPTH}, 2)

    for _ in range(SIZE - 1):  # not full, since a full Tianshou buffer repeats the oldest frame
        both.add(np.arange(2))
    several = [np.array([[0, 1], [2, SIZE]]), slice(2, 5)] if stack_num == 1 else []  # Tianshou stacks none of these
    for index in (3, [1, 2], np.array([SIZE, 4]), np.zeros(0, int), *several):
        expected = both.theirs.get(index, "obs", stack_num=stack_num)
        assert_same(expected, both.ours.get(index, "obs", stack_num=stack_num))
    for key in ("act", "rew", "info"):
        assert_same(both.theirs.get([1, 2], key), both.ours.get([1, 2], key))


@pytest.mark.parametrize("way", WAYS[:2] + WAYS[6:], ids=str)
def test_a_buffer_restored_from_a_pickle_or_a_file_resumes(way, tmp_path):
    both = BesideOneAnother(way, 2)
    for _ in range(SIZE + 4):
        both.add(np.arange(2))
    copies = [pickle.loads(pickle.dumps(both.ours)), copy.deepcopy(both.ours)]
    both.ours.save_hdf5(str(tmp_path / "buffer.hdf5"))
    copies.append(packed.VectorReplayBuffer.load_hdf5(str(tmp_path / "buffer.hdf5")))

    original = both.ours
    for ours in (*copies, original):
        assert_same(original[:], ours[:])
    for ours in copies:
        saved, both.ours = both.ours, ours
        both.assert_all_right()
        both.ours = saved
    batch, _ = both.play.step([0, 1])
    original.add(Batch(batch, copy=True), buffer_ids=[0, 1])
    drawn = original.sample_indices(5)
    for ours in copies:
        ours.add(Batch(batch, copy=True), buffer_ids=[0, 1])
        assert_same(drawn, ours.sample_indices(5))
        assert_same(original[:], ours[:])
        assert_same(original.buffers[1][:], ours.buffers[1][:])


def loaded_from_hdf5(ours, folder):
    ours.save_hdf5(str(folder / "buffer.hdf5"))
    return lambda: packed.VectorReplayBuffer.load_hdf5(str(folder / "buffer.hdf5"))


def loaded_from_a_pickle(ours, _folder):
    pickled = pickle.dumps(ours)
    return lambda: pickle.loads(pickled)


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("way_to_load", [loaded_from_hdf5, loaded_from_a_pickle])
@pytest.mark.parametrize("way", [WAYS[1], WAYS[6]], ids=str)
def test_a_buffer_in_a_folder_equals_tianshous_and_goes_on_there(way, way_to_load, is_uneven, tmp_path):
    generator, folder = np.random.default_rng(0), tmp_path / "replay"
    both = BesideOneAnother(way, 3, where={"directory": folder})

    def play(num_steps):
        for _ in range(num_steps):
            both.add(some_env_ids(generator, 3, is_uneven))
        both.assert_all_right()
        assert_same(both.theirs.sample_indices(4), both.ours.sample_indices(4))

    play(SIZE + 4)
    load = way_to_load(both.ours, tmp_path)
    living = both.ours.memories

    both.ours = load()
    assert living == both.ours.memories
    assert [folder] * len(living) == [memory.directory.parent for memory in living]
    for memory in living:
        memory.close()
    both.ours = load()
    play(SIZE)
    with pytest.raises(IncompatibleError, match=r"generation \d+ of .* which now has generation \d+ "):
        load()
    with pytest.raises(IncompatibleError, match=r"has the observations of another buffer: .* load that, or give"):
        packed.VectorReplayBuffer(39, 3, directory=folder)
    with pytest.raises(InvalidSettingsError, match="was copied: one memory lives in a folder"):
        copy.deepcopy(both.ours)
    both.theirs.reset()
    both.ours.reset()
    assert 0 == len(both.ours)
    both.play.windows = [both.play.begun() for _ in range(3)]
    play(SIZE + 2)


def test_a_folder_that_another_buffer_used_first_is_refused_at_the_first_step(tmp_path):
    buffers = [packed.ReplayBuffer(9, directory=tmp_path) for _ in range(2)]
    fed(buffers[0], numbered(4))

    with pytest.raises(IncompatibleError, match="has the observations of another buffer"):
        fed(buffers[1], numbered(4))
    assert (3, 0) == tuple(map(len, buffers))


def test_priorities_and_draws_equal_tianshous():
    both = BesideOneAnother({"env_stacks": True}, 2, kind="PrioritizedVectorReplayBuffer", alpha=0.6, beta=0.4)
    generator = np.random.default_rng(1)

    for _ in range(3 * SIZE):
        both.add(np.arange(2))
        np.random.seed(3)
        theirs, slots = both.theirs.sample(6)
        np.random.seed(3)
        ours, own_slots = both.ours.sample(6)
        assert_same(slots, own_slots)
        assert_same(theirs, ours)
        errors = generator.normal(size=6)
        both.theirs.update_weight(slots, errors)
        both.ours.update_weight(slots, errors)


@pytest.mark.parametrize("settings", [{}, {"stack_num": DEPTH}, {"ignore_obs_next": True}], ids=str)
@pytest.mark.parametrize("source", [tianshou, packed])
def test_a_buffer_can_be_updated_with_the_steps_of_another(settings, source):
    both = BesideOneAnother({"env_stacks": False}, 1, kind="ReplayBuffer", **settings)
    for _ in range(SIZE + 4):
        both.add(np.arange(1))
    target, expected = packed.ReplayBuffer(SIZE, **settings), tianshou.ReplayBuffer(SIZE, **settings)
    came_from = both.ours.sample_indices(0)

    slots = target.update(both.theirs if source is tianshou else both.ours)

    assert_same(expected.update(both.theirs), slots)
    assert_same(expected.get(slots, "obs"), target.get(slots, "obs"))
    newest = [both.seen[slot][1][-1] for slot in came_from.tolist()]
    if source is packed or "ignore_obs_next" not in settings:  # Tianshou cannot move what it did not store
        assert_same(np.stack(newest), target.get(slots, "obs_next", stack_num=1))
    for key in ("act", "rew", "terminated", "truncated", "done"):
        assert_same(expected[slots][key], target[slots][key])


def test_deeper_stacks_without_next_observations_are_those_of_the_next_slots_as_in_tianshou():
    theirs, ours = (library.ReplayBuffer(9, ignore_obs_next=True) for library in (tianshou, packed))
    for step, frame in enumerate(numbered(8)):
        for buffer in (theirs, ours):
            buffer.add(Batch(obs=frame, act=0, rew=0.0, terminated=step % 3 == 0, truncated=False, info=Batch()))

    for buffer in (theirs, ours):
        buffer.stack_num = 4

    slots = np.arange(8)
    assert_same(theirs[slots].obs, ours[slots].obs)
    assert_same(theirs[slots].obs_next, ours[slots].obs_next)


def test_obs_reads_as_an_array_of_all_slots():
    both = BesideOneAnother({"env_stacks": True, "is_dict": True}, 2)
    for _ in range(SIZE - 3):
        both.add(np.arange(2))
    theirs, ours = both.theirs, both.ours

    assert theirs.obs.pixels.shape == ours.obs.pixels.shape
    assert theirs.obs_next.angles.dtype == ours.obs_next.angles.dtype
    np.testing.assert_array_equal(theirs.obs.pixels, ours.obs.pixels)
    np.testing.assert_array_equal(theirs.obs_next["angles"][3:5], ours.obs_next["angles"][3:5])
    assert bool((ours.obs.angles == theirs.obs.angles).all())
    assert ours.obs.pixels.mean() == theirs.obs.pixels.mean()
    with pytest.raises(AttributeError):
        _ = ours.obs.depth


def test_hasnull_finds_nan_in_an_observation():
    buffer = packed.ReplayBuffer(5)
    frames = np.zeros((4, 3), np.float32)
    fed(buffer, frames)
    assert not buffer.hasnull()

    frames[2, 1] = np.nan
    fed(buffer, frames)
    assert buffer.hasnull()


def test_reset_removes_steps_and_keep_statistics_continues_open_episodes():
    theirs, ours = (library.ReplayBuffer(9, stack_num=3) for library in (tianshou, packed))
    for buffer in (theirs, ours):
        fed(buffer, numbered(5))
        buffer.reset(keep_statistics=True)
        fed(buffer, numbered(8)[4:])

    assert_same(theirs.sample_indices(0), ours.sample_indices(0))
    assert shown(ours[np.array([0])].obs) == [[2, 3, 4]]  # the true observation

    ours.reset()
    assert (len(ours), ours.memories) == (0, ())
    fed(ours, numbered(3))
    assert shown(ours[:].obs) == [[0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("keep_statistics", [False, True])
def test_after_a_reset_no_priority_of_removed_steps_is_left(keep_statistics):
    buffer = packed.PrioritizedReplayBuffer(9, alpha=0.6, beta=0.4)
    fed(buffer, numbered(8))
    buffer.reset(keep_statistics)
    fed(buffer, numbered(3))

    _, slots = buffer.sample(100)

    assert set(slots.tolist()) == set(buffer.sample_indices(0).tolist())


def test_observations_that_are_numbers_are_read_by_any_index():
    buffer = packed.ReplayBuffer(5)
    for step in range(3):
        buffer.add(Batch(obs=step, obs_next=step + 1, act=0, rew=0.0, terminated=False, truncated=False, info={}))

    assert (buffer[2].obs, buffer[1].obs_next, buffer.obs[1], buffer.get(1, "obs")) == (2, 2, 1, 1)


def test_set_batch_stores_the_whole_batch():
    both = BesideOneAnother({"env_stacks": False, "stack_num": 2}, 2)
    for _ in range(SIZE):
        both.add(np.arange(2))
    other = BesideOneAnother({"env_stacks": False, "stack_num": 2}, 2).ours

    other.set_batch(both.theirs._meta)
    other._lengths, other.last_index = both.ours._lengths.copy(), both.ours.last_index.copy()

    slots = np.arange(2 * SIZE)
    assert_same(both.ours[slots], other[slots])


def test_invalid_steps_are_refused_before_anything_is_stored():
    ours = packed.VectorReplayBuffer(10, 2)
    frames = numbered(2)
    step = {"act": [0, 0], "rew": [0.0, 0.0], "terminated": [False] * 2, "truncated": [False] * 2}

    for observations, message in ((["a", "b"], "dtype"), (np.array([None, {}]), "dtype")):
        with pytest.raises(InvalidStepError, match=message):
            ours.add(Batch(obs=observations, obs_next=observations, **step))
    with pytest.raises(AttributeError, match="terminated"):  # Tianshou's error
        ours.add(Batch(act=[0, 0]))
    ours.add(Batch(obs=frames, obs_next=frames, **step))
    for other in (frames.astype(np.int64), numbered(2)[:, :1]):
        with pytest.raises(InvalidStepError, match=re.escape("they must be uint8[2, 2], as the first ones")):
            ours.add(Batch(obs=other, obs_next=other, **step))
    assert len(ours) == 2
    assert len(ours.memory) == 2


def test_invalid_settings_are_refused():
    with pytest.raises(InvalidSettingsError, match="frame_stack is 4 with stack_num 2"):
        packed.ReplayBuffer(10, stack_num=2, frame_stack=4)
    with pytest.raises(InvalidSettingsError, match="threads"):
        packed.VectorReplayBuffer(10, 2, threads=0)
    with pytest.raises(InvalidSettingsError, match=r"stack is not an argument here: .* the library's own argument"):
        packed.VectorReplayBuffer(10, 2, stack=4)
    with pytest.raises(InvalidSettingsError, match="buffer_num is 0"):
        packed.VectorReplayBuffer(10, 0)
    with pytest.raises(InvalidSettingsError, match="there is none before the first step"):
        _ = packed.ReplayBuffer(10).memory
    step = {"obs": numbered(2), "act": [0, 0], "rew": [0.0, 0.0]}
    with pytest.raises(InvalidStepError, match=r"VectorReplayBuffer\(total_size, buffer_num=2\)"):
        packed.ReplayBuffer(10).add(Batch(terminated=[False, False], truncated=[False, False], **step))
    with pytest.raises(InvalidSettingsError, match=r"^max_bytes is not possible here: Tianshou draws slots of a full"):
        packed.PrioritizedVectorReplayBuffer(9, 3, alpha=0.6, beta=0.4, max_bytes=3)
    with pytest.raises(InvalidSettingsError, match=r"^direcotry is not an argument of .*; did you mean 'directory'"):
        packed.ReplayBuffer(9, direcotry="replay")
    with pytest.raises(InvalidSettingsError, match="call it on the vector buffer"):
        packed.VectorReplayBuffer(10, 2).buffers[0].set_batch(Batch())


BUFFER = {
    "stack_num": 1,
    "ignore_obs_next": False,
    "save_only_last_obs": False,
    "sample_avail": False,
    "random_seed": 42,
    "frame_stack": None,
    "threads": 1,
    "storage": "packed",
    "directory": None,
    "flush_every": None,
}
BUFFER_TAKES = {
    "ignore_obs_next": "True",
    "save_only_last_obs": "True",
    "sample_avail": "True",
    "random_seed": "0 None",
    "frame_stack": "None",
    "directory": "None 'a'",
    "flush_every": "None 2.5",
}
PRIORITIES = {"alpha": 0.6, "beta": 0.4, "weight_norm": True}
PRIORITIES_TAKE = {"alpha": "2.5", "beta": "0 2.5", "weight_norm": "True"}
OBSERVATION = np.zeros((DEPTH, 3, 2), np.uint8)
STEP = {"obs": OBSERVATION, "obs_next": OBSERVATION, "rew": 0.5, "terminated": False, "truncated": False}
ROWS = {name: np.stack([value] * 2) for name, value in STEP.items()}
# Tianshou stores rewards of any shape; not a number is found by its ``hasnull``.
STEP_TAKES = {
    "rew": "0 -1 nan inf 2.5 True [1]",
    "terminated": "0 True [1]",
    "truncated": "0 True [1]",
    "obs_next": "None",
}


def one(num_steps=2):
    buffer = packed.ReplayBuffer(10)
    for _ in range(num_steps):
        buffer.add(Batch(act=1, **STEP))
    return buffer


def several(num_steps=2):
    buffer = packed.VectorReplayBuffer(10, 2)
    for _ in range(num_steps):
        buffer.add(Batch(act=[1, 1], **ROWS))
    return buffer


CALLS = {
    "ReplayBuffer": Call(packed.ReplayBuffer, {"size": 10, **BUFFER}, {"size": "0", **BUFFER_TAKES}),
    "PrioritizedReplayBuffer": Call(
        packed.PrioritizedReplayBuffer,
        {"size": 10, **BUFFER, **PRIORITIES},
        {"size": "0", **BUFFER_TAKES, **PRIORITIES_TAKE},
    ),
    "VectorReplayBuffer": Call(
        packed.VectorReplayBuffer,
        {"total_size": 10, "buffer_num": 2, **BUFFER},
        BUFFER_TAKES,
        {"total_size": [-5, 1e6]},
    ),
    "PrioritizedVectorReplayBuffer": Call(
        packed.PrioritizedVectorReplayBuffer,
        {"total_size": 10, "buffer_num": 2, **BUFFER, **PRIORITIES},
        BUFFER_TAKES | PRIORITIES_TAKE,
    ),
    "add": Call(
        lambda **step: one().add(Batch(act=1, **step)),
        STEP,
        STEP_TAKES,
        {"terminated": [2, 0.5], "truncated": [2, 0.5]},
        {"obs": "dict", "obs_next": "dict", "rew": "array"},  # the keys are named; Tianshou refuses another shape
    ),
    "add of several": Call(
        lambda **step: several().add(Batch(act=[1, 1], **step)),
        ROWS,
        {"obs_next": "None"},
        {"terminated": [np.array([2, 0.5])]},
        {"rew": "array"},  # of two environments, which Tianshou refuses
    ),
    "add to some": Call(
        lambda buffer_ids: several().add(Batch(act=[1, 1], **ROWS), buffer_ids),
        {"buffer_ids": [0, 1]},
        {"buffer_ids": "None"},
        {"buffer_ids": [[0, 2]]},
        {"buffer_ids": "[1]"},  # the batch has two rows
    ),
    "sample": Call(lambda batch_size: one().sample(batch_size), {"batch_size": 2}, {"batch_size": "0 None"}),
    "get": Call(lambda stack_num: one().get(0, "obs", stack_num=stack_num), {"stack_num": 1}, {"stack_num": "None"}),
    "update": Call(lambda buffer: one().update(buffer), {"buffer": Made(one)}),
}


@pytest.mark.parametrize(("call", "name"), each_argument(CALLS))
def test_a_wrong_argument_is_refused_with_its_value(call, name):
    assert_wrong_values_are_refused(call, name)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[6], {"env_stacks": False}], ids=str)
def test_a_batch_shares_no_memory_and_is_c_contiguous(way):
    both = BesideOneAnother(way, 2)
    for _ in range(SIZE):
        both.add(np.arange(2))
    batch, slots = both.ours.sample(6)
    for part in (batch.obs, batch.obs_next):
        assert part.flags.c_contiguous
        part[:] = 77

    assert not np.shares_memory(batch.obs, batch.obs_next)
    both.assert_all_right()
    assert (both.ours[slots].obs != 77).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_environments_that_start_to_step_separately_keep_their_frame_history(way, seed):
    both = BesideOneAnother(way, 3, seed)
    for _ in range(SIZE + 5):  # the oldest steps are inside an episode
        both.add(np.arange(3))
    stack = both.ours.memory.stack

    for env_ids in ([0, 2], [1], [1], [2, 0]):
        both.add(np.array(env_ids))
        both.assert_all_right()
    assert [memory.stack for memory in both.ours.memories] == [stack] * 4  # the first has older steps
    for _ in range(2 * SIZE):
        both.add(np.array([0, 1]))
    both.assert_all_right()
    for _ in range(SIZE):
        both.add(np.array([2]))
    both.assert_all_right()
    assert [memory.stack for memory in both.ours.memories] == [stack] * 3


def test_repr_says_in_one_line_how_full_the_buffer_and_how_large_its_memory_is():
    buffer = packed.VectorReplayBuffer(1_000, 2)
    assert "VectorReplayBuffer(0 of 1,000 transitions)" == repr(buffer)

    play = Play(0, 2, env_stacks=True)
    for _ in range(3):
        buffer.add(play.step([0, 1])[0], buffer_ids=[0, 1])
    assert re.fullmatch(
        r"VectorReplayBuffer\(6 of 1,000 transitions, [\d.]+ KiB, of which [\d.]+ KiB work space, stack \d, "
        r"2 environments\)",
        repr(buffer),
    )

    buffer.add(play.step([0])[0], buffer_ids=[0])
    assert "VectorReplayBuffer(7 of 1,000 transitions in 3 memories)" == repr(buffer)
