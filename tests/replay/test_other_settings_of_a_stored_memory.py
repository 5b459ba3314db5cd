"""A stored memory takes a larger capacity, another discount and another n_step, and names the way for all else."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles.any_play
from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.replay.store.verify import verify_store
from oracles.any_play import EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, readable_steps
from oracles.damage import damage_a_block_of_steps

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual
BLOCK = 1024  # steps of a store, with the retention "fifo"


def expected_numbers(play: AnyPlay, readable: set[int], n_step: int, before: int) -> list[int]:
    """Return the readable steps whose returns are complete; with a larger n_step, none includes a step that is gone."""
    every = set(range(len(play.steps)))
    return [
        number
        for number in sorted(readable)
        if (not play.is_open(number) or len(play.rest_of(number)) >= n_step)
        and (n_step <= before or readable.issuperset(play.following(number, n_step, False, every)))
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("way", ["load", "directory"])
@pytest.mark.parametrize("retention", ["fifo", "random"])
@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    num_envs=st.integers(1, 3),
    before=st.integers(1, 6),
    after=st.integers(1, 6),
    discount=st.sampled_from([0.0, 0.5, 1.0]),
    more=st.integers(0, 400),
    num_forgotten=st.integers(0, 4),
    num_calls=st.integers(1, 200),
)
def test_what_is_sampled_is_what_the_new_settings_make_of_the_stored_steps(
    way, retention, seed, num_envs, before, after, discount, more, num_forgotten, num_calls
):
    after = min(before, after) if retention == "random" else after
    capacity = 330
    fixed = {"stack_axis": 0, "num_envs": num_envs, "retention": retention, "extras": EXTRAS, "seed": 0}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracles.any_play, "DISCOUNT", discount)
        first = {"n_step": before, "discount": 0.9, "directory": folder, "flush_every": None}
        with ReplayMemory(capacity, SMALL, NUM_ACTIONS, **fixed, **first) as memory:
            play = AnyPlay(memory, ObservationLayout.of_space(SMALL, 0), seed).play(num_calls)
            stored = memory.sampleable_indices()
            memory.forget(play.random.choice(stored, min(num_forgotten, len(stored)), replace=False))
            readable = readable_steps(memory, play)
        changes = {"n_step": after, "discount": discount}
        if way == "load":
            memory = ReplayMemory.load(folder, **changes, capacity=capacity + more)
        else:
            memory = ReplayMemory(capacity + more, SMALL, NUM_ACTIONS, **fixed, **changes, directory=folder)
            play.closed |= {numbers[-1] for numbers in play.by_env if numbers}
            play.current = [None] * num_envs
        with memory:
            play.memory = memory

            memory.inner.parts.check()
            found = play.numbers_at(memory.sampleable_indices())
            assert sorted(found) == expected_numbers(play, readable, after, before)
            if found:
                play.assert_batch(memory.get(memory.sampleable_indices()), after, lost=True)

            count = len(play.steps)
            play.play(60)  # what is stored later is as ever, up to the new capacity
            memory.inner.parts.check()
            readable = {*readable, *range(count, len(play.steps))}
            if retention == "fifo":
                readable &= set(range(len(play.steps) - capacity - more, len(play.steps)))
                found = play.numbers_at(memory.sampleable_indices())
                assert sorted(found) == expected_numbers(play, readable, after, before)
            assert len(memory) <= capacity + more == memory.capacity
            memory.save(Path(folder, "saved"))
        assert verify_store(Path(folder, "saved")).is_intact
        saved = ReplayMemory.load(Path(folder, "saved"))
        assert (capacity + more, after, discount) == (saved.capacity, saved.n_step, saved.discount)
        assert saved.sampleable_indices().tolist() == memory.sampleable_indices().tolist()


def numbered(num_steps: int, **settings) -> ReplayMemory:
    """Two environments in turn, whose steps have their number as reward; no episode ends."""
    settings = {"num_envs": 2, "flush_every": None} | settings
    memory = ReplayMemory(10_000, FrameSpec((2, 2)), 4, stack=2, seed=0, **settings)
    memory.begin(np.zeros((2, 2, 2), np.uint8))
    for step in range(num_steps // 2):
        memory.append([0, 1], [2 * step, 2 * step + 1], [False] * 2, [False] * 2, np.full((2, 2, 2), step % 256, "u1"))
    return memory


@pytest.mark.parametrize("n_step", [1, 2, 4, 9])
def test_no_return_of_a_larger_n_step_includes_a_step_of_a_damaged_block(n_step, tmp_path):
    numbered(4 * BLOCK + 100, n_step=2, directory=tmp_path).close()
    damage_a_block_of_steps(tmp_path)
    with ReplayMemory.open(tmp_path, read_only=False, on_damage="skip") as memory:
        memory.save(tmp_path / "skipped")  # where the block is gone, not damaged
        there = {int(reward) for part in memory.episodes() for reward in part.rewards}

    loaded = ReplayMemory.load(tmp_path / "skipped", n_step=n_step, discount=1.0)

    loaded.inner.parts.check()
    gone = set(range(4 * BLOCK + 100)) - there
    assert len(gone) in range(BLOCK, BLOCK + 2 * 8 + 1)
    starts = loaded.sampleable_indices()
    is_larger = n_step > 2  # otherwise no return reaches more than it did
    expected = sorted(
        number
        for number in there
        if number + 2 * n_step - 2 < 4 * BLOCK + 100
        and (not is_larger or all(number + 2 * later in there for later in range(n_step)))
    )
    first = loaded.steps_from(starts).reward[:, 0].astype(int).tolist()
    assert expected == first
    assert [sum(number + 2 * later for later in range(n_step)) for number in first] == loaded.get(
        starts
    ).reward.tolist()


def test_priorities_go_on_in_a_larger_memory(tmp_path):
    memory = ReplayMemory(50, FrameSpec((2, 2)), 4, stack=2, seed=0, sampler=Prioritized(epsilon=0.0))
    memory.begin(np.zeros((1, 2, 2), np.uint8))
    for step in range(120):  # twice around the ring
        memory.append([0], [step], [False], [False], np.full((1, 2, 2), step, np.uint8))
    indices = memory.sampleable_indices()
    memory.update_priorities(indices, np.where(indices == 100, 1.0, 0.0))
    memory.save(tmp_path)

    loaded = ReplayMemory.load(tmp_path, capacity=64, seed=1)

    assert set(memory.sample(64).index.tolist()) == set(loaded.sample(64).index.tolist()) == {100}


ASKED = {"capacity": 400, "n_step": 4, "num_envs": 2, "storage": "raw", "retention": "random", "discount": 0.5}
REFUSED = {
    "capacity": (399, 400, ", and a stored memory takes the same or a larger one"),
    "n_step": (5, 4, ", and with retention='random', a stored memory takes the same or a smaller one"),
    "num_envs": (1, 2, ""),
    "storage": ("packed", "raw", ""),
    "retention": ("fifo", "random", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_all_other_settings_are_refused_and_the_message_names_the_import(name, tmp_path):
    given_one, stored, rule = REFUSED[name]
    ReplayMemory(observation_space=FrameSpec((2, 2)), action_space=4, stack=1, **ASKED, directory=tmp_path).close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "LOCK"}

    message = (
        f"{name} is {given_one!r}: the memory in {tmp_path} has {stored!r}{rule}; give the same value, another "
        f"directory, or a new memory: framestow import memory {tmp_path} --to NEW"
    )
    changed = ASKED | {name: given_one}
    with pytest.raises(IncompatibleError, match=f"^{re.escape(message)}$"):
        ReplayMemory(observation_space=FrameSpec((2, 2)), action_space=4, stack=1, **changed, directory=tmp_path)
    if rule:
        with pytest.raises(IncompatibleError, match=f"^{re.escape(message)}$"):
            ReplayMemory.load(tmp_path, **{name: given_one})
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != "LOCK"}


@pytest.mark.parametrize("changes", [{"capacity": 0}, {"capacity": "9"}, {"n_step": 256}, {"discount": 2}])
def test_what_no_memory_takes_is_refused_as_ever(changes, tmp_path):
    ReplayMemory(50, FrameSpec((2, 2)), 4, stack=1).save(tmp_path)
    with pytest.raises(InvalidSettingsError, match=f"^{next(iter(changes))} is "):
        ReplayMemory.load(tmp_path, **changes)
