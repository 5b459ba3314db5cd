"""``add`` takes any observation, and every reading gives back what went in, bit for bit; a list is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import FrameSpec, ReplayMemory
from framestow.errors import NothingToSampleError
from framestow.replay.reading.hindsight import HindsightGoals
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import (
    DISCOUNT,
    EXTRAS,
    NUM_ACTIONS,
    SMALL,
    SPACES,
    AnyPlay,
    assert_same,
    is_equal,
    readable_steps,
    row_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")  # most steps are unusual

SEEDS = st.integers(0, 2**32)
PADDINGS = st.sampled_from(["first_frame", "zeros"])
SEGMENTS = st.sampled_from([1, 8, 16, None])  # frames; one frame each is the extreme
STORAGES = st.sampled_from(["packed", "raw"])
BORDERS = ["mask", "inside", "cross"]
DICT = {"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}

quick = settings(max_examples=8, deadline=None)
exhaustive = settings(max_examples=1000, deadline=None)


def begun(seed, space=SMALL, capacity=300, *, stack_axis=0, stack=None, mixes=False, kinds=9, **others):
    """Return a play with its memory: stacks of 4 small frames without another ``space``."""
    if stack is not None:
        layout, choice = ObservationLayout.of_frames(space, stack), {"stack": stack}
    else:
        layout, choice = ObservationLayout.of_space(space, stack_axis), {"stack_axis": stack_axis}
    memory = ReplayMemory(
        capacity, space, NUM_ACTIONS, **{"discount": DISCOUNT, "extras": EXTRAS, "seed": 0} | choice | others
    )
    return AnyPlay(memory, layout, seed, mixes=mixes, kinds=kinds)


def assert_all_transitions(play, n_step=1, capacity=None):
    """Compare all transitions that can be sampled, and which these are."""
    memory = play.memory
    memory.inner.parts.check()
    numbers = play.sampleable(memory.capacity if capacity is None else capacity, n_step)
    assert numbers == memory.sampleable_indices().tolist()
    if numbers:
        play.assert_batch(memory.get(numbers), n_step)
        play.assert_batch(memory.sample(16), n_step)


@pytest.mark.parametrize("name", SPACES)
@settings(max_examples=10, deadline=None)
@given(
    seed=SEEDS,
    num_envs=st.integers(1, 3),
    n_step=st.integers(1, 6),
    capacity=st.integers(18, 300),
    padding=PADDINGS,
    storage=STORAGES,
    frames_per_segment=SEGMENTS,
    num_calls=st.integers(1, 120),
)
def test_what_goes_in_comes_out(
    name, seed, num_envs, n_step, capacity, padding, storage, frames_per_segment, num_calls
):
    play = begun(
        seed,
        SPACES[name],
        capacity,
        stack_axis=None,
        num_envs=num_envs,
        n_step=n_step,
        stack_padding=padding,
        storage=storage,
        frames_per_segment=frames_per_segment,
    )

    play.play(num_calls)

    assert_all_transitions(play, n_step)


KINDS_OF_MEMORY = {
    "without stack": {},
    "stack of 4": {"space": FrameSpec((3, 5)), "stack": 4},
    "stack of 1": {"space": FrameSpec((3, 5)), "stack": 1},
    "dict with one stack": {"space": DICT, "stack_axis": {"camera": 0}},
    "last axis": {"space": FrameSpec((3, 5, 4)), "stack_axis": -1},
    "joined channels": {"space": FrameSpec((3, 5, 6)), "stack_axis": (-1, 3)},
    "dict of one picture": {"space": {"camera": FrameSpec((4, 3, 5))}, "stack_axis": 0},
    "dict of one frame": {"space": {"camera": FrameSpec((3, 5))}, "stack": 4},
    "dict of stacks": {"space": {"eye": FrameSpec((3, 5)), "hand": FrameSpec((2,), np.float32)}, "stack": 3},
}


def check_mixed_calls(kind, seed, num_envs, n_step, padding, num_calls):
    play = begun(
        seed, **KINDS_OF_MEMORY[kind], mixes=True, num_envs=num_envs, n_step=n_step, stack_padding=padding
    ).play(num_calls)

    assert_all_transitions(play, n_step)
    assert [current is not None for current in play.current] == play.memory.open_episodes.tolist()
    for env_id, current in enumerate(play.current):
        if current is not None:
            assert_same(current, row_of(play.memory.observations(), env_id))


OF_MIXED_CALLS = {
    "seed": SEEDS,
    "num_envs": st.integers(1, 3),
    "n_step": st.integers(1, 6),
    "padding": PADDINGS,
    "num_calls": st.integers(1, 80),
}


@pytest.mark.parametrize("kind", KINDS_OF_MEMORY)
@quick
@given(**OF_MIXED_CALLS)
def test_begin_append_and_add_take_turns(kind, seed, num_envs, n_step, padding, num_calls):
    check_mixed_calls(kind, seed, num_envs, n_step, padding, num_calls)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS_OF_MEMORY)
@exhaustive
@given(**OF_MIXED_CALLS)
def test_begin_append_and_add_take_turns_in_a_thousand_plays(kind, seed, num_envs, n_step, padding, num_calls):
    check_mixed_calls(kind, seed, num_envs, n_step, padding, num_calls)


@pytest.mark.each_value
@pytest.mark.parametrize("space", ["small", "dict"])
@pytest.mark.parametrize("borders", BORDERS)
@quick
@given(
    seed=SEEDS,
    length=st.integers(1, 9),
    n_step=st.integers(1, 6),
    capacity=st.sampled_from([20, 300]),
    retention=st.sampled_from(["fifo", "fifo", "random"]),
    kinds=st.sampled_from([9, 60]),
    overlaps=st.booleans(),
)
def test_sequences_show_every_step_as_it_was_given(
    borders, space, seed, length, n_step, capacity, retention, kinds, overlaps
):
    of_space = {} if space == "small" else {"space": DICT, "stack_axis": {"camera": 0}}
    of_space |= {"retention": "random", "frames_per_segment": 8} if retention == "random" else {"capacity": capacity}
    play = begun(seed, **of_space, num_envs=2, n_step=n_step, kinds=kinds, mixes=True)
    play.play(300 if retention == "random" else 60)
    memory, half = play.memory, length // 2
    stride, sampled = length - half if overlaps else 1, set(play.numbers_at(memory.sampleable_indices()))
    readable = readable_steps(memory, play)

    try:
        batch = memory.sample_sequences(16, length, borders=borders, overlap=half if overlaps else None, burn_in=half)
    except NothingToSampleError:
        assert not (sampled & set(play.fitting(length, stride, readable)) if borders == "inside" else sampled)
        return

    play.assert_sequences(batch, borders, readable, fewest=length if borders == "inside" else 1)
    starts = play.numbers_at(batch.index[:, 0])
    assert set(starts) <= sampled
    assert all(play.is_aligned(number, stride, readable) for number in starts)
    np.testing.assert_array_equal(batch.mask & (np.arange(length) >= half), batch.learns)
    np.testing.assert_array_equal(np.ones(16, np.float32), batch.weight)


@pytest.mark.parametrize("kinds", [9, 60])
def test_whole_episodes_are_sampled_with_borders_inside(kinds):
    play = begun(1, num_envs=3, kinds=kinds).play(120)

    batch = play.memory.sample_episodes(12)

    play.assert_sequences(batch, "mask", readable_steps(play.memory, play))
    for row, number in enumerate(batch.extras["number"][:, 0].tolist()):
        assert play.steps[number].offset == 0
        assert not play.is_open(number)
        assert len(play.rest_of(number)) == batch.mask[row].sum()


@pytest.mark.parametrize("kind", KINDS_OF_MEMORY)
@quick
@given(seed=SEEDS, retention=st.sampled_from(["fifo", "fifo", "random"]), kinds=st.sampled_from([9, 60]))
def test_episodes_have_the_observations_of_their_steps(kind, seed, retention, kinds):
    is_random = retention == "random"
    others = {"retention": "random", "frames_per_segment": 8} if is_random else {"capacity": [25, 300][seed % 2]}
    play = begun(seed, **KINDS_OF_MEMORY[kind], num_envs=2, mixes=True, kinds=kinds, **others)
    play.play(400 if is_random else 60)
    numbers = []

    for episode in play.memory.episodes():
        steps = [play.steps[number] for number in episode.extras["number"].tolist()]
        numbers += episode.extras["number"].tolist()
        assert play.rest_of(numbers[-len(steps)])[: len(steps)] == numbers[-len(steps) :]
        # Of a stack of one nothing says what was before a frame at random.
        is_unknown = is_random and play.layout.depth == 1
        assert (steps[0].offset == 0) == episode.has_beginning or (is_unknown and not episode.has_beginning)
        observations = episode.observations()
        assert_same(steps[-1].next_observation, row_of(observations, len(steps)))
        part = episode.observations(len(steps) // 2, len(steps))
        for place, step in enumerate(steps):
            assert_same(step.observation, row_of(observations, place))
            if place >= len(steps) // 2:
                assert_same(step.observation, row_of(part, place - len(steps) // 2))
            if place < len(steps) - 1 and not episode.borders[place]:
                assert_same(step.next_observation, row_of(observations, place + 1))

    held = play.numbers_at(play.memory.sampleable_indices()) if is_random else readable_steps(play.memory, play)
    assert sorted(held) == sorted(numbers)


@pytest.mark.parametrize("kind", KINDS_OF_MEMORY)
@quick
@given(seed=SEEDS, capacity=st.sampled_from([25, 300]), n_step=st.integers(1, 4))
def test_a_memory_filled_from_the_episodes_of_another_has_the_same_steps(kind, seed, capacity, n_step):
    play = begun(seed, **KINDS_OF_MEMORY[kind], capacity=capacity, num_envs=2, n_step=n_step).play(60)
    copy = begun(0, **KINDS_OF_MEMORY[kind], num_envs=2, n_step=n_step).memory

    for episode in play.memory.episodes():
        observations = episode.observations()
        for place in range(len(episode)):
            one = slice(place, place + 1)
            before, after = row_of(observations, one), row_of(observations, slice(place + 1, place + 2))
            ends = episode.terminated[one], episode.truncated[one]
            extras = {"number": episode.extras["number"][one]}
            copy.add(before, episode.actions[one], episode.rewards[one], after, *ends, [episode.env_id], extras)

    copy.inner.parts.check()
    indices = copy.sampleable_indices()
    batch = copy.get(indices)
    play.assert_batch(batch, n_step, lost=True)
    assert play.sampleable(capacity, n_step) == sorted(batch.extras["number"].tolist())


@quick
@given(seed=SEEDS, num_envs=st.integers(1, 3), discount=st.sampled_from([1.0, 0.5]), num_calls=st.integers(1, 60))
def test_steps_and_returns_to_go_cross_borders_and_no_ends(seed, num_envs, discount, num_calls):
    play = begun(seed, num_envs=num_envs, mixes=True).play(num_calls)
    numbers = range(len(play.steps))
    if not numbers:
        return

    steps = play.memory.steps_from(numbers, 5)
    returns = play.memory.returns_to_go(numbers, discount)

    for number in numbers:
        rest = play.rest_of(number)
        assert [*rest[:5], *[-1] * (5 - len(rest))] == steps.index[number].tolist()
        rewards = [play.steps[other].reward for other in rest]
        assert sum(discount**power * reward for power, reward in enumerate(rewards)) == pytest.approx(returns[number])


GOALS = {
    "vectors": (FrameSpec((3,), np.float32), None),
    "stacked vectors": (FrameSpec((3, 2), np.float32), {"achieved_goal": 0, "desired_goal": 0}),
    "joined vectors": (FrameSpec((6,), np.float32), {"achieved_goal": (-1, 3), "desired_goal": (-1, 3)}),
}


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("name", GOALS)
def test_hindsight_takes_goals_that_the_episode_achieved(name, strategy):
    goal, stack_axis = GOALS[name]
    space = {"achieved_goal": goal, "desired_goal": goal, "camera": FrameSpec((4, 32, 32))}
    play = begun(4, space, stack_axis=stack_axis, num_envs=2, kinds=30).play(100)

    def has_reached(achieved, desired, _):
        return (achieved == desired).reshape(len(achieved), -1).all(1)

    goals = HindsightGoals(play.memory, has_reached, share=1.0, strategy=strategy, compute_terminated=has_reached)
    for _ in range(5):
        batch = goals.sample(16)
        for row, number in enumerate(batch.index.tolist()):
            of_row, step = row_of(batch.observation, row), play.steps[number]
            assert_same(step.observation | {"desired_goal": of_row["desired_goal"]}, of_row)
            episode = play.by_episode[step.env_id, step.episode]
            steps = {"future": play.rest_of(number), "final": episode[-1:], "episode": episode}[strategy]
            achieved = [play.steps[other].next_observation["achieved_goal"] for other in steps]
            assert any(is_equal(one, of_row["desired_goal"]) for one in achieved)
            reached = row_of(batch.next_observation, row)["achieved_goal"] == of_row["desired_goal"]
            assert float(reached.all()) == batch.reward[row]


@pytest.mark.each_value
@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("frames_per_segment", [8, 16])
@settings(max_examples=3, deadline=None)
@given(seed=SEEDS, kinds=st.sampled_from([9, 60]), padding=PADDINGS)
def test_random_retention_keeps_what_was_given(n_step, frames_per_segment, seed, kinds, padding):
    play = begun(
        seed,
        retention="random",
        capacity=300,
        frames_per_segment=frames_per_segment,
        n_step=n_step,
        num_envs=2,
        kinds=kinds,
        stack_padding=padding,
    ).play(400)

    play.memory.inner.parts.check()
    batch = play.memory.get(play.memory.sampleable_indices())
    play.assert_batch(batch, n_step, lost=True)
    assert 0 < len(batch) <= 300


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("kinds", [9, 60])
def test_a_budget_holds_and_keeps_what_was_given(retention, kinds):
    play = begun(
        5,
        FrameSpec((4, 24, 24)),
        100_000,
        max_bytes="1600 KiB" if retention == "fifo" else "2000 KiB",
        retention=retention,
        storage="raw",
        num_envs=2,
        n_step=2,
        kinds=kinds,
    )

    for _ in range(8):
        play.play(200 if retention == "fifo" else 260)
        batch = play.memory.sample(32)
        play.assert_batch(batch, n_step=2, lost=retention == "random")
        assert play.memory.nbytes <= play.memory.max_bytes
    assert len(play.memory) < len(play.steps) * 0.8
    play.memory.inner.parts.check()


@pytest.mark.parametrize("capacity", [1, 2, 3, 5])
@quick
@given(seed=SEEDS, frames_per_segment=SEGMENTS, padding=PADDINGS)
def test_a_capacity_below_the_stack_is_enough(capacity, seed, frames_per_segment, padding):
    play = begun(seed, capacity=capacity, frames_per_segment=frames_per_segment, stack_padding=padding)

    for _ in range(20):
        play.play(2)
        assert_all_transitions(play)


@pytest.mark.parametrize("n_step", [1, 100])
def test_a_stack_has_up_to_256_frames(n_step):
    space = FrameSpec((256, 2, 2))
    play = begun(6, space, capacity=200, stack_axis=(0, 256), num_envs=2, n_step=n_step, frames_per_segment=8)

    play.play(200)

    assert_all_transitions(play, n_step)


@pytest.mark.exhaustive
@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_million_steps_come_out_as_they_went_in(retention):
    play = begun(7, capacity=5_000, retention=retention, num_envs=4, n_step=3, kinds=40, mixes=True)

    while len(play.steps) < 10**6:
        play.play(500)
        play.assert_batch(play.memory.sample(64), n_step=3, lost=retention == "random")
        if retention == "fifo":
            play.forget(len(play.steps) - 10_000)
    play.memory.inner.parts.check()
