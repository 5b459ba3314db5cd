"""``ReplayMemory.add`` takes whole observations: where episodes begin, what is refused, which spaces it takes.

tests/replay/test_any_observation.py compares everything that can be read with a list of what was given.
"""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from framestow import FrameSpec, ReplayMemory
from framestow.errors import ClosedMemoryError, InvalidStepError

FRAME, NUM_ACTIONS = (32, 33), 5
STACKS, SPACE = FrameSpec((4, *FRAME)), FrameSpec((2, *FRAME))


def stacked(*numbers):
    return np.stack([np.full(FRAME, number, np.uint8) for number in numbers])


def add(memory, before, after, terminated=False, truncated=False, **others):
    memory.add(stacked(*before), 0, 0.0, stacked(*after), terminated, truncated, **others)


def lengths(memory):
    return [len(episode) for episode in memory.episodes()]


@pytest.mark.parametrize("settings", [{"stack": 2}, {}])
def test_a_truncated_episode_bootstraps_from_its_true_last_observation(settings):
    memory = ReplayMemory(10, FrameSpec(FRAME) if settings else SPACE, NUM_ACTIONS, **settings)
    add(memory, (1, 1), (1, 2), truncated=True)
    add(memory, (8, 8), (8, 9))
    batch = memory.get([0])
    assert [1, 2] == batch.next_observation[0, :, 0, 0].tolist()
    assert batch.discount[0] == np.float32(0.99)
    assert [1, 1] == lengths(memory)


REFUSED = {
    "action is not in its space": {"action": [0, 7]},
    "reward is nan": {"reward": [0.0, np.nan]},
    "terminated is 2": {"terminated": [0, 2]},
    "truncated": {"truncated": [False]},
    "observation has shape": {"observation": np.zeros((3, 2, *FRAME), np.uint8)},
    "next_observation has dtype": {"next_observation": np.zeros((2, 2, *FRAME), np.int64)},
    "env_ids is": {"env_ids": [0, 2]},
    "extras have": {"extras": {"unknown": [1, 2]}},
}


def pair(*numbers):
    return np.stack([stacked(*numbers)] * 2)


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("kind", ["first", "continues", "begins", "border"])
def test_a_refused_step_changes_nothing(wrong, kind):
    memory = ReplayMemory(20, SPACE, NUM_ACTIONS, num_envs=2)
    numbers = {"first": (1, 1, 2), "continues": (1, 2, 3), "begins": (5, 5, 6), "border": (1, 2, 9)}[kind]
    step = {"action": [0, 0], "reward": [0.0, 0.0], "terminated": [False, False], "truncated": [False, False]}
    if kind != "first":
        memory.add(observation=pair(1, 1), next_observation=pair(1, 2), **step)
    step |= {"observation": pair(*numbers[:2]), "next_observation": pair(*numbers[1:])}
    if kind == "border":
        step["next_observation"] = pair(8, 9)
    before = len(memory), memory.inner.observations().tolist(), memory.open_episodes.tolist(), lengths(memory)

    with pytest.raises(InvalidStepError):
        memory.add(**step | wrong)

    assert before == (len(memory), memory.inner.observations().tolist(), memory.open_episodes.tolist(), lengths(memory))
    memory.add(**step)
    assert len(memory) == (2 if kind == "first" else 4)
    memory.inner.parts.check()


ODD_FORMS = {
    "unaligned": lambda row: np.append(np.uint8(0), row.view(np.uint8))[1:].view(row.dtype).reshape(row.shape),
    "another name of int64": lambda row: row.view(np.longlong),
    "every other": lambda row: np.repeat(row, 2, axis=-1)[:, ::2],
    "read-only": lambda row: np.frombuffer(row.tobytes(), row.dtype).reshape(row.shape),
}


@pytest.mark.parametrize("change", ODD_FORMS.values(), ids=ODD_FORMS)
@pytest.mark.parametrize("wrap", [lambda row: row, lambda row: {"vector": row}], ids=["array", "dict"])
def test_an_observation_is_stored_however_its_array_lies_in_memory(wrap, change):
    rows = [wrap(change(row)) for row in np.arange(6 * 5, dtype=np.int64).reshape(6, 1, 5)]
    memory = ReplayMemory(10, wrap(FrameSpec((5,), np.int64)), NUM_ACTIONS)
    step = [0], [0.0], [False], [False]
    memory.begin(rows[0])
    memory.append(*step, rows[1])
    memory.add(rows[1], *step[:2], rows[2], *step[2:])
    memory.add(rows[4], *step[:2], rows[5], *step[2:])

    batch = memory.get([0, 1, 2])
    both = (part["vector"] if isinstance(part, dict) else part for part in (batch.observation, batch.next_observation))
    assert [[0, 5, 20], [5, 10, 25]] == [part[:, 0].tolist() for part in both]


def test_a_closed_memory_in_a_directory_takes_no_step(tmp_path):
    with ReplayMemory(20, SPACE, NUM_ACTIONS, directory=tmp_path) as memory:
        add(memory, (1, 1), (1, 2))
    with pytest.raises(ClosedMemoryError):
        add(memory, (1, 2), (2, 3))


def test_numbers_in_a_dict_are_stored():
    space = Dict({"camera": Box(0, 255, (2, *FRAME), np.uint8), "lives": Discrete(6)})
    memory = ReplayMemory(20, space, NUM_ACTIONS)
    for lives in (5, 4):
        camera = stacked(lives, lives)
        memory.add({"camera": camera, "lives": lives}, 0, 0.0, {"camera": camera, "lives": lives - 1}, False, False)
    batch = memory.get([0, 1])
    assert (2, 2, *FRAME) == batch.observation["camera"].shape
    assert [5, 4] == batch.observation["lives"].tolist()
    assert [4, 3] == batch.next_observation["lives"].tolist()


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_add_and_append_return_the_indices_of_the_stored_steps(retention, n_step):
    memory = ReplayMemory(2000, SPACE, 200, num_envs=3, n_step=n_step, retention=retention, seed=0)
    random, given = np.random.default_rng(0), {}
    for turn in range(60):
        env_ids = random.permutation(3)[: random.integers(4)]
        count, numbers = len(env_ids), (turn * 3 + np.arange(len(env_ids))) % 200
        after = random.integers(0, 255, (count, 2, *FRAME), np.uint8)  # every step is a border
        step = numbers, np.zeros(count), np.zeros(count, bool), random.random(count) < 0.2
        if memory.open_episodes[env_ids].all() and turn % 2:
            indices = memory.append(*step, after, env_ids)
        else:
            before = random.integers(0, 255, after.shape, np.uint8)
            indices = memory.add(before, *step[:2], after, *step[2:], env_ids)
        assert (np.int64, (count,)) == (indices.dtype, indices.shape)
        given |= dict(zip(indices.tolist(), numbers.tolist(), strict=True))

    stored = memory.sampleable_indices()
    assert [given[index] for index in stored.tolist()] == memory.get(stored).action.tolist()
    assert len(given) - 3 * (n_step - 1) <= len(stored)
