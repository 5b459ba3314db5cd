"""A saved memory goes into another one with other settings: every step as it was played, and nothing more."""

from __future__ import annotations

import re
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles.any_play
from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.offline import MemoryData
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.replay.store.verify import verify_store
from oracles.any_play import EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, assert_same, row_of
from oracles.damage import damage_a_segment

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual

DICT = {"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}
KINDS = {
    "whole observations": (SMALL, {"stack_axis": 0}),
    "frames": (FrameSpec((3, 5)), {"stack": 4}),
    "dict": (DICT, {"stack_axis": {"camera": 0}}),
}


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.name != "LOCK"}


def played(folder: str, kind: str, seed: int, num_calls: int, num_forgotten: int = 0, **given_ones) -> AnyPlay:
    """Play into a new memory in ``folder``; some steps are forgotten."""
    space, choice = KINDS[kind]
    layout = ObservationLayout.of_arguments(space, choice.get("stack"), choice.get("stack_axis"))
    memory = ReplayMemory(
        **{"capacity": 330, "extras": EXTRAS, "seed": 0, "discount": 0.5} | given_ones,
        observation_space=space,
        action_space=NUM_ACTIONS,
        **choice,
    )
    play = AnyPlay(memory, layout, seed, mixes=True).play(num_calls)
    stored = memory.sampleable_indices()
    memory.forget(play.random.choice(stored, min(num_forgotten, len(stored)), replace=False))
    memory.save(folder)
    return play


def parts_of(play: AnyPlay, readable: set[int]) -> list[list[int]]:
    """Return the steps of each episode that are there, without what lies between two of them, by their last steps."""
    parts = []
    for numbers in play.by_episode.values():
        part: list[int] = []
        for number in [*numbers, -1]:
            if number in readable:
                part.append(number)
            elif part:
                parts.append(part)
                part = []
    return sorted(parts, key=lambda numbers: numbers[-1])


def assert_steps(play: AnyPlay, memory: ReplayMemory, parts: list[list[int]], target) -> None:
    """Compare the episodes of ``memory`` with those that should be there, every step with the listed one."""
    memory.inner.parts.check()
    found = {(each.env_id, tuple(each.extras["number"].tolist())): each for each in memory.episodes()}
    assert sorted(found) == sorted((target(play.steps[part[0]].env_id), tuple(part)) for part in parts)
    assert not memory.open_episodes.any()
    for (_, numbers), episode in found.items():
        observations = episode.observations()
        for row, number in enumerate(numbers):
            step = play.steps[number]
            assert_same(step.observation, row_of(observations, row))
            assert_same(step.next_observation, row_of(observations, row + 1))
            values = episode.actions[row], episode.rewards[row], episode.terminated[row], episode.truncated[row]
            assert values == (step.action, step.reward, step.terminated, step.truncated), number


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    retentions=st.tuples(*[st.sampled_from(["fifo", "random"])] * 2),
    paddings=st.tuples(*[st.sampled_from(["first_frame", "zeros"])] * 2),
    storages=st.tuples(*[st.sampled_from(["packed", "raw"])] * 2),
    num_envs=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    n_steps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    offset=st.integers(0, 5),
    num_forgotten=st.integers(0, 4),
    num_calls=st.integers(1, 160),
)
def test_every_step_is_in_the_new_memory_as_it_was_played(
    kind, seed, retentions, paddings, storages, num_envs, n_steps, offset, num_forgotten, num_calls
):
    (old, new), target = zip(retentions, paddings, storages, num_envs, n_steps, strict=True), None
    names = "retention", "stack_padding", "storage", "num_envs", "n_step"
    old, new = dict(zip(names, old, strict=True)), dict(zip(names, new, strict=True))
    target = lambda env_id: (offset + env_id) % new["num_envs"]  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        play = played(folder, kind, seed, num_calls, num_forgotten, **old)
        readable = readable_in_memory(play)
        before = content_of(Path(folder))
        data = MemoryData.open(folder)
        memory = ReplayMemory(2000, **data.settings | new)

        result = data.import_into(memory, offset=offset)

        assert before == content_of(Path(folder))
        parts = parts_of(play, readable)
        assert_steps(play, memory, parts, target)
        assert (len(readable), len(parts)) == (result.transitions, result.episodes)
        order = memory.get(memory.sampleable_indices()).extras["number"].tolist()
        if new["retention"] == "fifo" and old["retention"] == "fifo":
            assert order == [number for part in parts for number in part]
        batch = memory.get(memory.sampleable_indices())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(oracles.any_play, "DISCOUNT", 0.5)
            play.assert_batch(batch, new["n_step"], lost=True)
        assert sorted(order) == sorted(readable)  # no return waits for a step
        memory.save(Path(folder, "new"))
        assert verify_store(Path(folder, "new")).is_intact


def readable_in_memory(play: AnyPlay) -> set[int]:
    """Return the numbers of the steps that the memory has, pending ones too."""
    return {number for part in play.memory.episodes() for number in part.extras["number"].tolist()}


def test_what_a_smaller_memory_keeps_is_the_newest_of_all_environments(tmp_path):
    play = played(str(tmp_path), "frames", 1, 120, num_envs=3)
    data = MemoryData.open(tmp_path)
    memory = ReplayMemory(40, **data.settings, num_envs=3)

    data.import_into(memory)

    newest = [number for part in parts_of(play, readable_in_memory(play)) for number in part][-40:]
    assert newest == memory.get(memory.sampleable_indices()).extras["number"].tolist()
    assert {0, 1, 2} == {play.steps[number].env_id for number in newest}


SPACE = FrameSpec((2, 2))


def one_episode(folder: Path, number: int, length: int = 5, flag: str = "", **given_ones) -> ReplayMemory:
    """Save a memory of one episode, whose frames are all ``number`` and whose rewards count its steps."""
    memory = ReplayMemory(100, SPACE, 4, stack=2, seed=0, **given_ones)
    memory.begin(np.full((1, 2, 2), number, np.uint8))
    for step in range(length):
        is_last = step == length - 1
        ends = [is_last and flag == "terminated"], [is_last and flag == "truncated"]
        memory.append([step % 4], [step], *ends, np.full((1, 2, 2), number, np.uint8))
    memory.save(folder)
    return memory


@pytest.mark.parametrize("n_step", [1, 3])
def test_episodes_that_show_the_same_are_not_joined(n_step, tmp_path):
    one_episode(tmp_path, 7)  # it is open, and the next one begins with what it showed last
    memory = ReplayMemory(100, SPACE, 4, stack=2, n_step=n_step, discount=1.0)
    memory.begin(np.full((1, 2, 2), 7, np.uint8))
    memory.append([0], [10.0], [False], [False], np.full((1, 2, 2), 7, np.uint8))
    data = MemoryData.open(tmp_path)

    for _ in range(2):
        data.import_into(memory)
    seven = np.full((2, 2, 2), 7, np.uint8)
    memory.add(seven, 0, 20.0, seven, True, False)

    assert [[10], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [20]] == [each.rewards.tolist() for each in memory.episodes()]
    assert [False, False, False, True] == [each.has_end for each in memory.episodes()]
    rewards = np.array([10, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 20.0])
    if n_step == 3:
        rewards = [10, 3, 6, 9, 7, 4, 3, 6, 9, 7, 4, 20]
    assert list(rewards) == memory.get(memory.sampleable_indices()).reward.tolist()


def test_the_axis_of_the_stack_may_be_another_one(tmp_path):
    play = played(str(tmp_path), "frames", 3, 60)
    memory = ReplayMemory(1000, FrameSpec((3, 5, 4)), NUM_ACTIONS, stack_axis=-1, extras=EXTRAS)

    MemoryData.open(tmp_path).import_into(memory)

    batch = memory.get(memory.sampleable_indices())
    assert len(batch)
    for row, number in enumerate(batch.extras["number"].tolist()):
        assert_same(np.moveaxis(play.steps[number].observation, 0, -1).copy(), row_of(batch.observation, row))


OTHERS = {
    "frames": ({"observation_space": FrameSpec((2, 3))}, "memory has the frames .*: the memory in .* has .*; build it"),
    "stack": ({"stack": 3}, r"memory has the stack \(3,\): the memory in .* has \(2,\)"),
    "actions": ({"action_space": 5}, "memory has the actions .*: the memory in .* has"),
    "extras": (
        {"extras": {"cost": np.float64}},
        "memory has the extra cost float64: .* has cost float32, note int8; build the memory without it",
    ),
    "label": ({"label": "Pong"}, "label of environment 0 in .* is 'Breakout': environment 0 of the memory is labelled"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_memory_of_other_steps_is_refused_before_anything_is_stored(name, tmp_path):
    changed, message = OTHERS[name]
    extras = {"cost": np.float32, "note": np.int8}
    old = ReplayMemory(100, SPACE, 4, stack=2, label="Breakout", extras=extras)
    old.begin(np.zeros((1, 2, 2), np.uint8))
    old.append([0], [0], [False], [False], np.zeros((1, 2, 2), np.uint8), extras={"cost": [0.5], "note": [3]})
    old.save(tmp_path)
    memory = ReplayMemory(
        **{"capacity": 100, "observation_space": SPACE, "action_space": 4, "stack": 2, "label": "Breakout"} | changed
    )

    with pytest.raises(InvalidSettingsError, match=message):
        MemoryData.open(tmp_path).import_into(memory)

    assert not list(memory.episodes())
    assert not memory.open_episodes.any()


def test_what_is_left_out_is_said(tmp_path):
    old = ReplayMemory(100, SPACE, 4, stack=2, n_step=3, label="Pong", extras=EXTRAS, sampler=Prioritized())
    old.begin(np.zeros((1, 2, 2), np.uint8))
    for step in range(20):
        extras = {"number": [step]}
        old.append([0], [step], [False], [False], np.zeros((1, 2, 2), np.uint8), extras=extras)
    old.forget([10])
    old.save(tmp_path)

    result = MemoryData.open(tmp_path).import_into(ReplayMemory(100, SPACE, 4, stack=2))

    assert 17 == result.transitions
    assert 3 == sum(result.left_out.values())
    assert ["forgotten" in reason for reason in result.left_out] == [True]
    assert [note.partition(" left out")[0] for note in result.notes] == [
        "extras are",
        "labels are",
        "the state of the sampler Prioritized is",
    ]


def test_a_damaged_segment_ends_the_import_or_is_left_out(tmp_path):
    memory = ReplayMemory(5000, SPACE, 4, stack=2, frames_per_segment=50, seed=0, extras=EXTRAS)
    rng, numbers = np.random.default_rng(0), iter(range(5000))
    for length in (400, 300, 500):
        memory.begin(rng.integers(0, 255, (1, 2, 2), np.uint8))
        for _ in range(length):
            extras = {"number": [next(numbers)]}
            memory.append([0], [0], [False], [False], rng.integers(0, 255, (1, 2, 2), np.uint8), extras=extras)
    memory.save(tmp_path)
    damage_a_segment(tmp_path)
    new = ReplayMemory(5000, SPACE, 4, stack=2, extras=EXTRAS)

    with pytest.raises(
        DamagedDataError, match="or skip what is damaged; leave such steps out by skip_bad=True, --skip-bad"
    ):
        MemoryData.open(tmp_path).import_into(new)
    new.clear()
    result = MemoryData.open(tmp_path, skip_bad=True).import_into(new)

    [count] = result.left_out.values()
    assert count in range(50, 55)
    assert 1200 - count == result.transitions == len(new)
    assert any("damage that was left out, the first: " in note for note in result.notes)
    stored = set(new.get(new.sampleable_indices()).extras["number"].tolist())
    missing = sorted(set(range(1200)) - stored)
    assert missing == list(range(missing[0], missing[0] + count))
    for number in sorted(stored)[::50]:
        [index] = [one for one in new.sampleable_indices() if new.get([one]).extras["number"][0] == number]
        expected, found = memory.get([number]), new.get([index])
        assert_same(expected.observation, found.observation)
        assert_same(expected.next_observation, found.next_observation)


def test_ctrl_c_leaves_whole_steps_and_says_how_many(tmp_path):
    one_episode(tmp_path, 3, length=90)
    before = content_of(tmp_path)
    memory = ReplayMemory(1000, SPACE, 4, stack=2, n_step=3)

    def stop(done: int, total: int) -> None:
        assert 0 < done < total
        signal.raise_signal(signal.SIGINT)

    message = f"the import stopped: the memory has 64 of 90 transitions, and {tmp_path} is unchanged"
    with pytest.raises(KeyboardInterrupt, match=f"^{re.escape(message)}$"):
        MemoryData.open(tmp_path).import_into(memory, stop)

    assert 64 == len(memory)
    assert not memory.open_episodes.any()
    memory.inner.parts.check()
    assert before == content_of(tmp_path)


def test_a_memory_is_not_imported_into_itself(tmp_path):
    with ReplayMemory(100, SPACE, 4, stack=2, directory=tmp_path) as memory:
        memory.begin(np.zeros((1, 2, 2), np.uint8))
        memory.append([0], [0], [False], [False], np.zeros((1, 2, 2), np.uint8))
        memory.flush()

        with pytest.raises(InvalidSettingsError, match="it would be imported into itself; give a memory of another"):
            MemoryData.open(tmp_path).import_into(memory)
