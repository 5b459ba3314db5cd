"""``ReplayMemory.add`` takes whole observations, stores each frame once, and gives back what it was given."""

import logging
from itertools import pairwise

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.errors import ClosedMemoryError, InvalidStepError

CAPACITY, NUM_ACTIONS, FRAME = 24, 5, (5, 6)

# How an environment joins its frames to an observation, and the space of one frame.
FORMS = {
    "first axis": (np.stack, FrameSpec(FRAME)),
    "last axis": (lambda stack: np.stack(stack, -1), FrameSpec(FRAME)),
    "joined channels": (lambda stack: np.concatenate([colours(frame) for frame in stack], -1), FrameSpec((*FRAME, 3))),
    "vectors": (lambda stack: np.stack(stack).reshape(len(stack), -1) / np.float32(7), FrameSpec((30,), np.float32)),
    "joined vectors": (lambda stack: np.concatenate(stack).ravel().astype(np.int16), FrameSpec((30,), np.int16)),
    "scaled": (lambda stack: np.stack(stack) / np.float32(255), FrameSpec(FRAME, np.float32, is_scaled=True)),
    "dict": (
        lambda stack: {"camera": np.stack(stack, -1), "place": stack[-1][0].astype(np.float32)},
        {"camera": FrameSpec(FRAME), "place": FrameSpec((6,), np.float32)},
    ),
}


def colours(frame):
    return np.stack([frame, frame // 2, 9 * frame], -1)


class Play:
    """Environments with random frames, stacked by hand, and the list of all steps: the oracle."""

    def __init__(self, seed, num_envs, depth, padding, join):
        self.generator, self.depth, self.padding, self.join = np.random.default_rng(seed), depth, padding, join
        self.stacks = [self.first() for _ in range(num_envs)]
        self.steps = []

    def frame(self):
        return self.generator.integers(0, 3, FRAME, dtype=np.uint8)  # few values: frames are often equal

    def first(self):
        frame = self.frame()
        return [frame if self.padding == "first_frame" else np.zeros_like(frame)] * (self.depth - 1) + [frame]

    def step(self, env_ids, shows_next_episode=False):
        """Return the arguments of ``add``; some episodes end, with and without a flag."""
        rows = []
        for env_id in env_ids:
            now, chance = self.stacks[env_id], self.generator.random()
            after, following = [*now[1:], self.frame()], None
            terminated, truncated = chance < 0.1, 0.1 <= chance < 0.2
            if chance < 0.3:  # the third kind of end is a reset in the middle
                following = self.first()
            shown = following if terminated and shows_next_episode else after
            reward, action = np.float32(self.generator.normal()), int(self.generator.integers(NUM_ACTIONS))
            rows.append((self.join(now), action, reward, self.join(shown), terminated, truncated))
            self.stacks[env_id] = after if following is None else following
        self.steps += rows
        columns = list(zip(*rows, strict=True))
        return (batched(columns[0]), *map(np.array, columns[1:3]), batched(columns[3]), *map(np.array, columns[4:]))


def batched(observations):
    if isinstance(observations[0], dict):
        return {key: np.stack([one[key] for one in observations]) for key in observations[0]}
    return np.stack(observations)


def stacks_first(join, stored):
    """Return a stored observation, ``(stack, *frame)``, as ``join`` has it."""
    if isinstance(stored, dict):
        return {"camera": np.moveaxis(stored["camera"], 0, -1), "place": stored["place"][-1]}
    if join is FORMS["last axis"][0]:
        return np.moveaxis(stored, 0, -1)
    if join is FORMS["joined channels"][0]:
        return np.concatenate(list(stored), -1)
    return stored.ravel() if join is FORMS["joined vectors"][0] else stored


def assert_gives_back(memory, play, is_terminal_shown=True):
    newest = len(play.steps)
    assert newest - CAPACITY // memory.num_envs * memory.num_envs <= newest - len(memory)
    assert len(memory) == min(newest, CAPACITY)
    for index in range(newest - len(memory), newest):
        batch = memory.get([index])
        observation, action, reward, next_observation, terminated, truncated = play.steps[index]
        found = take(batch.observation), take(batch.next_observation)
        np.testing.assert_equal(stacks_first(play.join, found[0]), observation, err_msg=f"step {index}")
        if is_terminal_shown or not terminated:
            np.testing.assert_equal(stacks_first(play.join, found[1]), next_observation, err_msg=f"step {index}")
        assert (batch.action[0], batch.reward[0]) == (action, reward)
        assert (batch.terminated[0], batch.truncated[0]) == (terminated, truncated)
        assert batch.discount[0] == (0 if terminated else np.float32(0.99))
    memory._check()


def take(observation):
    return {key: part[0] for key, part in observation.items()} if isinstance(observation, dict) else observation[0]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_envs=st.integers(1, 3),
    depth=st.sampled_from([2, 4]),
    padding=st.sampled_from(["first_frame", "zeros"]),
    form=st.sampled_from(sorted(FORMS)),
    shows_next_episode=st.booleans(),
    calls=st.lists(st.integers(1, 7), min_size=1, max_size=40),
)
def test_every_step_is_given_back_for_any_stacks(seed, num_envs, depth, padding, form, shows_next_episode, calls):
    join, frame = FORMS[form]
    play = Play(seed, num_envs, depth, padding, join)
    memory = ReplayMemory(
        CAPACITY, frame, NUM_ACTIONS, stack=depth, stack_padding=padding, num_envs=num_envs, frames_per_segment=4
    )
    for call in calls:  # bits say which environments step
        env_ids = [env_id for env_id in range(num_envs) if call >> env_id & 1] or [0]
        memory.add(*play.step(env_ids, shows_next_episode), env_ids=env_ids)
    assert_gives_back(memory, play, is_terminal_shown=not shows_next_episode)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    depth=st.sampled_from([1, 2, 4]),
    padding=st.sampled_from(["first_frame", "zeros"]),
    form=st.sampled_from(["first axis", "last axis", "dict"]),
    num_steps=st.integers(1, 2 * CAPACITY),
)
def test_add_finds_out_how_observations_of_the_environments_space_are_stacked(seed, depth, padding, form, num_steps):
    play = Play(seed, 2, depth, padding, FORMS[form][0])
    memory = ReplayMemory(CAPACITY, space_of(play), NUM_ACTIONS, num_envs=2)
    steps = [play.step([0, 1]) for _ in range(num_steps)]
    for step in steps:
        memory.add(*step)

    assert len(memory) == min(2 * num_steps, CAPACITY)
    for index in memory.sampleable_indices():
        batch = memory.get([index])
        for stored, given_one in ((batch.observation, 0), (batch.next_observation, 3)):
            expected = play.steps[index][given_one]
            found = take(stored)
            camera, wanted = (found["camera"], expected["camera"]) if form == "dict" else (found, expected)
            if memory.stack == 1:
                np.testing.assert_array_equal(camera[0], wanted)
            else:
                np.testing.assert_array_equal(camera if form == "first axis" else np.moveaxis(camera, 0, -1), wanted)
    memory._check()


def space_of(play):
    one = play.join(play.stacks[0])
    if isinstance(one, dict):
        return Dict({key: Box(0, 255, part.shape, part.dtype) for key, part in one.items()})
    return Box(0, 255, one.shape, one.dtype)


def numbered(number, shape=FRAME):
    return np.full(shape, number, np.uint8)


def stacked(*numbers):
    return np.stack([numbered(number) for number in numbers])


def test_a_single_environment_needs_no_axis():
    memory = ReplayMemory(10, FrameSpec((4, *FRAME)), NUM_ACTIONS, extras={"log_prob": np.float32})
    memory.add(stacked(1, 1, 1, 1), 3, 0.5, stacked(1, 1, 1, 2), False, False, extras={"log_prob": -1.5})
    memory.add(stacked(1, 1, 1, 2), 4, 1.5, stacked(1, 1, 2, 3), False, np.True_, extras={"log_prob": -2.5})

    batch = memory.get([0, 1])
    assert (memory.stack, memory._settings.frame.shape) == (4, FRAME)
    assert [[1, 1, 1, 1], [1, 1, 1, 2]] == batch.observation[..., 0, 0].tolist()
    assert [[1, 1, 1, 2], [1, 1, 2, 3]] == batch.next_observation[..., 0, 0].tolist()
    assert [3, 4] == batch.action.tolist()
    assert [-1.5, -2.5] == batch.extras["log_prob"].tolist()
    assert [False, True] == batch.truncated.tolist()


def test_a_single_environment_of_several_is_named_by_its_number():
    memory = ReplayMemory(10, FrameSpec((2, *FRAME)), NUM_ACTIONS, num_envs=3)
    memory.add(stacked(1, 1), 3, 0.5, stacked(1, 2), False, False, env_ids=2)
    assert [False, False, True] == memory.open_episodes.tolist()


def test_a_truncated_episode_bootstraps_from_its_true_last_observation():
    memory = ReplayMemory(10, FrameSpec(FRAME), NUM_ACTIONS, stack=2)
    memory.add(stacked(1, 1), 0, 0.0, stacked(1, 2), False, True)
    memory.add(stacked(8, 8), 0, 0.0, stacked(8, 9), False, False)
    batch = memory.get([0])
    assert [1, 2] == batch.next_observation[0, :, 0, 0].tolist()
    assert batch.discount[0] == np.float32(0.99)
    assert 2 == len(list(memory.episodes()))


def test_the_first_observation_of_the_next_episode_is_no_next_observation_of_a_truncated_one():
    memory = ReplayMemory(10, FrameSpec(FRAME), NUM_ACTIONS, stack=2)
    with pytest.raises(InvalidStepError, match=r"next_observation of environment 0.*give the true last.*final_obs"):
        memory.add(stacked(1, 1), 0, 0.0, stacked(8, 8), False, True)
    memory.add(stacked(1, 1), 0, 0.0, stacked(8, 8), True, False)
    assert 1 == len(memory)


def test_a_reset_without_a_flag_begins_an_episode():
    memory = ReplayMemory(10, FrameSpec(FRAME), NUM_ACTIONS, stack=2)
    memory.add(stacked(1, 1), 0, 0.0, stacked(1, 2), False, False)
    memory.add(stacked(7, 7), 0, 0.0, stacked(7, 8), False, False)
    assert [1, 1] == [len(episode) for episode in memory.episodes()]


def test_an_episode_whose_first_observation_equals_the_last_one_of_the_episode_before_is_another_episode():
    memory = ReplayMemory(10, FrameSpec(FRAME), NUM_ACTIONS, stack=1)
    memory.add(numbered(1), 0, 0.0, numbered(2), True, False)
    memory.add(numbered(2), 0, 0.0, numbered(3), False, False)
    assert [1, 1] == [len(episode) for episode in memory.episodes()]


def test_observations_that_are_no_stacks_are_kept_whole(caplog):
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 256, (6, 4, *FRAME), dtype=np.uint8)
    memory = ReplayMemory(10, FrameSpec((4, *FRAME)), NUM_ACTIONS)
    with caplog.at_level(logging.INFO):
        for before, after in pairwise(noise):
            memory.add(before, 0, 0.0, after, False, False)
    batch = memory.get(np.arange(5))
    assert (1, (4, *FRAME)) == (memory.stack, memory._settings.frame.shape)
    np.testing.assert_array_equal(batch.observation[:, 0], noise[:-1])
    np.testing.assert_array_equal(batch.next_observation[:, 0], noise[1:])
    assert not caplog.records  # nothing was stored before


def contradicted(memory):
    """Add steps of stacks, and then one that is no stack; return all observations and next observations."""
    generator = np.random.default_rng(1)
    frames = np.concatenate([[numbered(9)] * 3, generator.integers(0, 256, (9, *FRAME), dtype=np.uint8)])
    frames[:4] = frames[3]
    pairs = [(frames[t : t + 4], frames[t + 1 : t + 5]) for t in range(8)]
    pairs.append(tuple(generator.integers(0, 256, (2, 4, *FRAME), dtype=np.uint8)))
    for number, (before, after) in enumerate(pairs):
        memory.add(before, number % NUM_ACTIONS, float(number), after, False, False)
    return pairs


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_step_that_contradicts_the_stacks_stores_all_steps_again_with_their_indices(caplog, n_step):
    memory = ReplayMemory(5, FrameSpec((4, *FRAME)), NUM_ACTIONS, n_step=n_step, sampler=Prioritized(), seed=0)
    draws = np.random.default_rng(0)
    with caplog.at_level(logging.INFO):
        pairs = contradicted(memory)
    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert "not a stack of 4 frames" in caplog.text
    assert 1 == memory.stack
    steps = memory._steps
    assert (4, 9) == (steps.oldest, steps.next_index)
    for index in memory.sampleable_indices():
        batch = memory.get([index])
        np.testing.assert_array_equal(batch.observation[0, 0], pairs[index][0])
        assert index % NUM_ACTIONS == batch.action[0]
    assert [5.0, 6.0, 7.0] == memory.steps_from([5, 6, 7]).reward.ravel().tolist()
    index = memory.sample(8).index
    memory.update_priorities(index, draws.random(8))
    assert set(index) <= set(memory.sampleable_indices())
    memory._check()


def test_a_given_stack_makes_anything_else_an_error():
    memory = ReplayMemory(20, FrameSpec(FRAME), NUM_ACTIONS, stack=4)
    with pytest.raises(InvalidStepError, match=r"observation of environment 0 neither continues nor begins an episode"):
        contradicted(memory)
    assert 8 == len(memory)


@pytest.mark.parametrize(
    ("stack", "shape", "message"),
    [
        (4, (3, *FRAME), "stacks of 4 frames; build the memory with that stack"),
        (4, FRAME, r"one frame each: the memory has stack=4; give stacks such as \(1, 4, 5, 6\)"),
        (
            None,
            (7, 7),
            r"observation has shape \(7, 7\) for each environment: a frame .* has \(5, 6",
        ),
        (None, (300, *FRAME), "same number of frames, at most 256"),
    ],
)
def test_observations_of_another_shape_are_refused(stack, shape, message):
    memory = ReplayMemory(20, FrameSpec(FRAME), NUM_ACTIONS, stack=stack)
    with pytest.raises(InvalidStepError, match=message):
        memory.add(np.zeros(shape, np.uint8), 0, 0.0, np.zeros(shape, np.uint8), False, False)
    assert 0 == len(memory)


REFUSED = {
    "action is not in its space": {"action": [0, 7]},
    "reward is nan": {"reward": [0.0, np.nan]},
    "terminated": {"terminated": [0, 1]},
    "truncated": {"truncated": [False]},
    "observation has shape": {"observation": np.zeros((3, 2, *FRAME), np.uint8)},
    "next_observation has dtype": {"next_observation": np.zeros((2, 2, *FRAME), np.int64)},
    "env_ids is": {"env_ids": [0, 2]},
    "extras have": {"extras": {"unknown": [1, 2]}},
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_a_refused_step_changes_nothing(wrong, is_first, begins):
    memory = ReplayMemory(20, FrameSpec((2, *FRAME)), NUM_ACTIONS, num_envs=2)
    first = pair(1, 1), [0, 0], [0.0, 0.0], pair(1, 2), [False, False], [False, False]
    if not is_first:
        memory.add(*first)
    before = memory.stack, len(memory), memory.observations().tolist(), memory.open_episodes.tolist()
    names = "observation", "action", "reward", "next_observation", "terminated", "truncated"
    step = (pair(5, 5), *first[1:3], pair(5, 6), *first[4:]) if begins else first
    if not is_first and not begins:
        step = pair(1, 2), *first[1:3], pair(2, 3), *first[4:]
    with pytest.raises(InvalidStepError):
        memory.add(**(dict(zip(names, step, strict=True)) | wrong))
    assert before == (memory.stack, len(memory), memory.observations().tolist(), memory.open_episodes.tolist())
    memory.add(*step)
    assert memory._steps.next_index == (2 if is_first else 4)


def pair(*numbers):
    return np.stack([stacked(*numbers)] * 2)


def test_a_memory_that_was_loaded_continues_its_open_episodes(tmp_path):
    for name in ("last axis", "dict"):
        play = Play(3, 2, 4, "zeros", FORMS[name][0])
        memory = ReplayMemory(CAPACITY, space_of(play), NUM_ACTIONS, num_envs=2)
        for _ in range(3):
            memory.add(*play.step([0, 1]))
        memory.save(tmp_path / name)
        loaded = ReplayMemory.load(tmp_path / name)
        for _ in range(9):
            step = play.step([0, 1])
            memory.add(*step)
            loaded.add(*step)
        assert [len(episode) for episode in memory.episodes()] == [len(episode) for episode in loaded.episodes()]
        assert memory.stack == loaded.stack == 4
        for index in range(24):
            one, other = memory.get([index]), loaded.get([index])
            np.testing.assert_equal(take(one.observation), take(other.observation))


def test_a_memory_in_a_directory_takes_stacks_and_is_resumed(tmp_path):
    steps = [(stacked(1, 1), stacked(1, 2)), (stacked(1, 2), stacked(2, 3)), (stacked(2, 3), stacked(3, 4))]
    with ReplayMemory(20, FrameSpec(FRAME), NUM_ACTIONS, stack=2, directory=tmp_path) as memory:
        for before, after in steps[:2]:
            memory.add(before, 0, 0.0, after, False, False)
    with pytest.raises(ClosedMemoryError):
        memory.add(steps[2][0], 0, 0.0, steps[2][1], False, False)
    with ReplayMemory.open(tmp_path, read_only=False) as resumed:
        resumed.add(steps[2][0], 0, 0.0, steps[2][1], False, False)
        assert [3] == [len(episode) for episode in resumed.episodes()]


def test_a_memory_in_a_directory_cannot_change_its_stack(tmp_path):
    refused = pytest.raises(InvalidStepError, match=r"one frame each: the memory has stack=4.*stack=1 keeps them whole")
    with ReplayMemory(20, FrameSpec((2, *FRAME)), NUM_ACTIONS, directory=tmp_path) as memory, refused:
        memory.add(stacked(1, 1), 0, 0.0, stacked(1, 2), False, False)


@pytest.mark.parametrize("settings", [{"retention": "random"}, {"max_bytes": "1 MiB"}, {"storage": "raw"}])
def test_the_first_step_decides_in_every_kind_of_memory(settings):
    memory = ReplayMemory(2_000, FrameSpec((4, *FRAME)), NUM_ACTIONS, **settings)
    memory.add(stacked(1, 1, 1, 1), 0, 0.0, stacked(1, 1, 1, 2), False, False)
    assert (4, FRAME) == (memory.stack, memory._settings.frame.shape)
    assert [1, 1, 1, 2] == memory.sample(1).next_observation[0, :, 0, 0].tolist()


def test_add_continues_an_episode_that_begin_and_append_began():
    memory = ReplayMemory(20, FrameSpec(FRAME), NUM_ACTIONS, stack=2)
    memory.begin(numbered(1)[None])
    memory.append([0], [0.0], [False], [False], numbered(2)[None])
    memory.add(stacked(1, 2), 0, 0.0, stacked(2, 3), False, False)
    memory.append([0], [0.0], [False], [False], numbered(4)[None])
    assert [3] == [len(episode) for episode in memory.episodes()]
    assert [3, 4] == memory.observations()[0, :, 0, 0].tolist()


def test_a_memory_with_steps_before_the_first_add_keeps_its_stack():
    memory = ReplayMemory(20, FrameSpec(FRAME), NUM_ACTIONS)
    memory.begin(numbered(1)[None])
    memory.append([0], [0.0], [False], [False], numbered(2)[None])
    with pytest.raises(InvalidStepError, match=r"one frame each: the memory has stack=4"):
        memory.add(numbered(2), 0, 0.0, numbered(3), False, False)
    memory.add(stacked(1, 1, 1, 2), 0, 0.0, stacked(1, 1, 2, 3), False, False)
    with pytest.raises(InvalidStepError, match=r"neither continues nor begins.*with steps before the first add"):
        memory.add(stacked(5, 6, 7, 8), 0, 0.0, stacked(6, 7, 8, 9), False, False)
    assert [2] == [len(episode) for episode in memory.episodes()]


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_contradiction_that_cannot_be_stored_is_refused_and_later_steps_continue(retention):
    memory = ReplayMemory(2_000, FrameSpec((2, *FRAME)), NUM_ACTIONS, retention=retention)
    memory.add(stacked(1, 1), 0, 0.0, stacked(1, 2), False, False)
    strange = stacked(5, 6), 0, 0.0, stacked(7, 8), False, False
    if retention == "random":
        with pytest.raises(InvalidStepError, match=r"neither continues nor begins"):
            memory.add(*strange)
    else:
        memory.add(*strange)
    memory.add(stacked(1, 2) if retention == "random" else stacked(7, 8), 0, 0.0, stacked(2, 3), False, False)
    assert ((2, 2) if retention == "random" else (3, 1)) == (len(memory), memory.stack)
    memory._check()


def test_numbers_in_a_dict_are_stored():
    space = Dict({"camera": Box(0, 255, (2, *FRAME), np.uint8), "lives": Discrete(6)})
    memory = ReplayMemory(20, space, NUM_ACTIONS)
    for lives in (5, 4):
        camera = stacked(lives, lives)
        memory.add({"camera": camera, "lives": lives}, 0, 0.0, {"camera": camera, "lives": lives - 1}, False, False)
    batch = memory.get([0, 1])
    assert (2, 2) == (memory.stack, batch.observation["camera"].shape[1])
    assert [5, 4] == batch.observation["lives"][:, -1].tolist()
    assert [4, 3] == batch.next_observation["lives"][:, -1].tolist()
