"""Hindsight: a share of the goals is replaced by achieved goals, and their rewards are recomputed."""

from __future__ import annotations

import re
from functools import partial
from itertools import islice

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.reading.batches_ahead import BatchesAhead
from framestow.replay.reading.hindsight import HindsightGoals
from oracles.chi_square import chi_square, chi_square_bound
from oracles.damage import flip_bit
from oracles.goal_play import GOAL, NO_GOAL, SPACE, GoalPlay, started_at

STRATEGIES = ["future", "final", "episode"]


def reward_of(achieved, desired, info):
    """As Gymnasium-Robotics computes it: 0 where the goal is reached, else -1."""
    assert achieved.shape == desired.shape
    return -(achieved != desired).any(-1).astype(np.float32)


def is_relabelled(batch) -> np.ndarray:
    return (batch.observation["desired_goal"] != NO_GOAL).any((1, 2))


def goals_of(batch) -> np.ndarray:
    return batch.observation["desired_goal"][:, -1]


def steps_a_goal_may_be_of(play: GoalPlay, strategy: str, env_id: int, episode: int, step: int) -> list[int]:
    """By the table in the docstring, over all frames of the episode."""
    last = play.lengths[env_id][episode]
    return {"future": list(range(step + 1, last + 1)), "final": [last], "episode": list(range(1, last + 1))}[strategy]


@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_are_achieved_in_stored_frames_of_the_same_episode(strategy, retention):
    settings = {"capacity": 700, "frames_per_segment": 16} if retention == "random" else {"capacity": 83}
    play = GoalPlay(longest=40, retention=retention, **settings).play(600)
    hindsight = HindsightGoals(play.memory, reward_of, share=1.0, strategy=strategy)
    held = play.memory.get(play.memory.sampleable_indices())
    reached = {tuple(goal) for goal in held.next_observation["achieved_goal"][:, -1].tolist()}

    seen: dict[tuple[int, ...], set[int]] = {}
    for _ in range(40):
        batch = hindsight.sample(50)
        for start, goal in zip(started_at(batch).tolist(), goals_of(batch).tolist(), strict=True):
            assert start[:2] == goal[:2], "of the same environment and episode"
            assert tuple(goal) in reached
            seen.setdefault(tuple(start), set()).add(goal[2])

    for start, steps in seen.items():
        candidates = [step for step in steps_a_goal_may_be_of(play, strategy, *start) if (*start[:2], step) in reached]
        if strategy == "final" and not candidates:  # the last frame has left: the newest that is held
            candidates = [max(step for env_id, episode, step in reached if (env_id, episode) == start[:2])]
        assert steps <= set(candidates)
    assert len(seen) > 50


@pytest.mark.parametrize("strategy", ["future", "episode"])
def test_each_frame_is_equally_likely_as_a_goal(strategy):
    play = GoalPlay(num_envs=1).play(3)
    play.begin(0, 9)
    play.play(9)
    index = int(play.memory.sampleable_indices()[-1]) - 5  # the transition whose goals are counted
    candidates = steps_a_goal_may_be_of(play, strategy, *started_at(play.memory.get([index]))[0].tolist())
    hindsight = HindsightGoals(play.memory, reward_of, share=1.0, strategy=strategy)

    counts = dict.fromkeys(candidates, 0)
    for _ in range(12):
        batch = hindsight.sample(1000)
        for step in goals_of(batch)[batch.index == index, 2].tolist():
            counts[step] += 1

    assert {"future": 6, "episode": 9}[strategy] == len(candidates)
    assert sum(counts.values()) > 800
    assert chi_square(np.array(list(counts.values()))) < chi_square_bound(len(candidates) - 1)


@pytest.mark.parametrize(("share", "batch_size"), [(0.0, 7), (0.3, 7), (0.8, 1), (0.8, 32), (1.0, 7)])
def test_the_share_of_relabelled_transitions_is_exact_but_for_rounding(share, batch_size):
    play = GoalPlay().play(100)
    hindsight = HindsightGoals(play.memory, reward_of, share=share)

    relabelled = np.array([is_relabelled(hindsight.sample(batch_size)) for _ in range(200)])

    counts = relabelled.sum(1)
    assert counts.min() >= int(share * batch_size)
    assert counts.max() <= -int(-share * batch_size // 1)
    spread = np.sqrt(0.25 / len(counts))  # of the mean of counts that vary by 1
    assert abs(counts.mean() - share * batch_size) <= 4 * spread
    if 0 < share < 1:  # any row may be one
        assert 0.5 * share < relabelled.mean(0).min() <= relabelled.mean(0).max() < (1 + share) / 2


def test_rewards_of_new_goals_are_computed_and_nothing_else_changes():
    play = GoalPlay(extras={"weight_of_it": np.float32}).play(
        100, weight_of_it=lambda env_id, step: np.array([10 * env_id + step], np.float32)
    )
    calls = []

    def compute_reward(achieved, desired, info):
        calls.append(len(achieved))
        np.testing.assert_array_equal(10 * achieved[:, 0] + achieved[:, 2], info["weight_of_it"])
        return reward_of(achieved, desired, info)

    batch = HindsightGoals(play.memory, compute_reward, share=0.5).sample(64)

    stored = play.memory.get(batch.index)
    new = is_relabelled(batch)
    assert [32] == calls
    assert 32 == new.sum()
    achieved = batch.next_observation["achieved_goal"][:, -1]
    np.testing.assert_array_equal(reward_of(achieved, goals_of(batch), {})[new], batch.reward[new])
    assert 0.0 in batch.reward[new].tolist()
    np.testing.assert_array_equal(stored.reward[~new], batch.reward[~new])
    for name in ("action", "discount", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(batch, name))
    for key in ("achieved_goal", "observation"):
        np.testing.assert_array_equal(stored.observation[key], batch.observation[key])
        np.testing.assert_array_equal(stored.next_observation[key], batch.next_observation[key])
    np.testing.assert_array_equal(batch.observation["desired_goal"], batch.next_observation["desired_goal"])
    assert (stored.observation["desired_goal"] == NO_GOAL).all(), "the memory keeps what was recorded"


def test_compute_terminated_also_determines_the_discount():
    play = GoalPlay(discount=0.9).play(100)
    is_reached = lambda achieved, desired, info: (achieved == desired).all(-1)  # noqa: E731

    batch = HindsightGoals(play.memory, reward_of, strategy="episode", compute_terminated=is_reached).sample(200)

    new, stored = is_relabelled(batch), play.memory.get(batch.index)
    reached = is_reached(batch.next_observation["achieved_goal"][:, -1], goals_of(batch), {})
    has_ended = reached | stored.terminated  # by what is no goal, since no recorded goal is ever reached
    np.testing.assert_array_equal(has_ended[new], batch.terminated[new])
    np.testing.assert_array_equal(np.where(has_ended[new], 0.0, np.float32(0.9)), batch.discount[new])
    np.testing.assert_array_equal(stored.terminated[~new], batch.terminated[~new])
    np.testing.assert_array_equal(stored.discount[~new], batch.discount[~new])
    assert 0 < reached[new].sum() < new.sum()
    assert (stored.terminated & ~reached)[new].any()  # some fell, and do not bootstrap with the new goal either


def test_a_step_that_terminated_at_its_recorded_goal_does_not_terminate_with_another_goal():
    space = {"achieved_goal": FrameSpec((1,), np.float32), "desired_goal": FrameSpec((1,), np.float32)}
    memory = ReplayMemory(500, space, 2, stack=1, seed=0, extras={"fell": np.bool_}, discount=0.9)

    def frames(step: float) -> dict[str, np.ndarray]:
        return {"achieved_goal": np.float32([[step]]), "desired_goal": np.float32([[5]])}

    for episode in range(40):  # to the goal, or falling one step before it
        falls = episode % 2
        memory.begin(frames(0))
        for step in range(1, 6 - falls):
            ends = step == 5 - falls
            memory.append([0], [0.0], [ends], [False], frames(step), extras={"fell": [bool(ends and falls)]})
    calls = []

    def is_reached(achieved, desired, info):
        calls.append((len(achieved), set(info)))
        return (achieved == desired)[:, 0]

    hindsight = HindsightGoals(memory, reward_of, share=1.0, strategy="episode", compute_terminated=is_reached)
    batch = hindsight.sample(400)

    achieved, fell = batch.next_observation["achieved_goal"][:, -1, 0], batch.extras["fell"]
    has_reached = achieved == goals_of(batch)[:, 0]
    ended = memory.get(batch.index).terminated
    assert (ended & ~fell & ~has_reached).sum() > 5
    assert (fell & ~has_reached).sum() > 5
    np.testing.assert_array_equal(fell | has_reached, batch.terminated)
    np.testing.assert_array_equal(np.where(fell | has_reached, np.float32(0), np.float32(0.9)), batch.discount)
    assert [(int(ended.sum()), {"fell"}), (400, {"fell"})] == calls


def test_the_new_goal_is_in_every_frame_of_a_stack():
    play = GoalPlay(stack=3).play(60)

    batch = HindsightGoals(play.memory, reward_of, share=1.0).sample(40)

    for observation in (batch.observation, batch.next_observation):
        goals = observation["desired_goal"]
        assert (40, 3, 3) == goals.shape
        np.testing.assert_array_equal(np.repeat(goals_of(batch)[:, None], 3, axis=1), goals)


def goal_picture(shape: tuple[int, ...], is_history: bool, episode: int, step: int) -> np.ndarray:
    """Return a goal of the newest frames of an episode, or of several cameras."""
    axis = shape.index(min(shape))
    entries = np.arange(shape[axis])
    values = (
        np.maximum(step - entries[::-1] // (3 if entries.size == 6 else 1), 0) if is_history else step + 40 * entries
    )
    form = [1] * 3
    form[axis] = entries.size
    return np.broadcast_to((values + 10 * episode).reshape(form), shape).astype(np.uint8)


@pytest.mark.parametrize("is_history", [True, False], ids=["history", "cameras"])
@pytest.mark.parametrize("shape", [(32, 32, 6), (32, 32, 4), (2, 32, 33), (32, 32, 3)])
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning")
def test_a_goal_whose_shape_looks_like_a_stack_is_relabelled_whole(retention, shape, is_history):
    goal = FrameSpec(shape)
    space = {"observation": FrameSpec((2,), np.int64), "achieved_goal": goal, "desired_goal": goal}
    memory = ReplayMemory(200, space, 3, seed=0, retention=retention, frames_per_segment=8)

    def observation(episode: int, step: int) -> dict[str, np.ndarray]:
        achieved = goal_picture(shape, is_history, episode, step)
        wanted = np.full(shape, 255, np.uint8)
        return {"observation": np.array([episode, step]), "achieved_goal": achieved, "desired_goal": wanted}

    for episode in range(9):
        for step in range(9):
            memory.add(observation(episode, step), 0, -1.0, observation(episode, step + 1), False, step == 8)
    shapes = set()

    def compute_reward(achieved, desired, info):
        shapes.update((achieved.shape, desired.shape))
        return (achieved == desired).all((1, 2, 3))

    batch = HindsightGoals(memory, compute_reward, share=1.0).sample(48)

    assert {(48, *shape)} == shapes
    achieved, desired = batch.next_observation["achieved_goal"], batch.next_observation["desired_goal"]
    np.testing.assert_array_equal(desired, batch.observation["desired_goal"])
    np.testing.assert_array_equal((achieved == desired).all((1, 2, 3)), batch.reward)
    for row, (episode, step) in enumerate(batch.observation["observation"].tolist()):
        later = [goal_picture(shape, is_history, episode, one) for one in range(step + 1, 10)]
        assert any(np.array_equal(desired[row], one) for one in later), (episode, step, desired[row, 0, 0])
        np.testing.assert_array_equal(goal_picture(shape, is_history, episode, step + 1), achieved[row])
        before = goal_picture(shape, is_history, episode, step)
        np.testing.assert_array_equal(before, batch.observation["achieved_goal"][row])


def test_goals_that_are_numbers_are_relabelled_too():
    number = type("Number", (), {"shape": (), "dtype": np.dtype(np.int64), "n": 50})()
    space = {"achieved_goal": number, "desired_goal": number}
    memory = ReplayMemory(100, space, 2, stack=1, seed=0)
    memory.begin({"achieved_goal": np.array([0]), "desired_goal": np.array([-1])})
    for step in range(1, 30):
        frames = {"achieved_goal": np.array([step]), "desired_goal": np.array([-1])}
        memory.append([0], [0.0], [False], [False], frames)

    batch = HindsightGoals(memory, lambda achieved, desired, info: achieved == desired, share=1.0).sample(64)

    goals, achieved = batch.observation["desired_goal"], batch.next_observation["achieved_goal"]
    assert (64, 1) == goals.shape
    assert (goals >= achieved).all()
    np.testing.assert_array_equal((goals == achieved)[:, 0], batch.reward)


def test_the_same_seed_gives_the_same_goals_also_after_a_load(tmp_path):
    play, again = GoalPlay().play(100), GoalPlay().play(100)
    HindsightGoals(play.memory, reward_of).sample(32)
    HindsightGoals(again.memory, reward_of).sample(32)
    play.memory.save(tmp_path / "memory")

    batches = [
        HindsightGoals(memory, reward_of).sample(32)
        for memory in (play.memory, again.memory, ReplayMemory.load(tmp_path / "memory"))
    ]

    for other in batches[1:]:
        np.testing.assert_array_equal(batches[0].index, other.index)
        np.testing.assert_array_equal(goals_of(batches[0]), goals_of(other))


def test_a_loader_draws_what_sample_draws():
    play, again = GoalPlay().play(100), GoalPlay().play(100)
    sampled = HindsightGoals(again.memory, reward_of)

    with BatchesAhead(partial(HindsightGoals(play.memory, reward_of).draw_ahead, 32), Batch.copy) as loader:
        for batch in islice(loader, 5):
            expected = sampled.sample(32)
            np.testing.assert_array_equal(expected.index, batch.index)
            np.testing.assert_array_equal(goals_of(expected), goals_of(batch))
            np.testing.assert_array_equal(expected.reward, batch.reward)


def test_after_skipped_damage_goals_are_drawn_again_with_their_transitions(tmp_path):
    settings = {"capacity": 5000, "frames_per_segment": 64, "directory": tmp_path / "memory", "flush_every": None}
    with GoalPlay(longest=40, on_damage="skip", **settings).play(700).memory as memory:
        memory.flush()
        (log,) = (tmp_path / "memory").glob("frames*.log")
        random = np.random.default_rng(1)
        for _ in range(8):
            flip_bit(log, random)

        batches = [HindsightGoals(memory, reward_of, share=1.0, strategy="episode").sample(64) for _ in range(20)]

        assert 1 <= memory.report().skipped_segments < 20
        assert len(memory) > 200
        for batch in batches:
            np.testing.assert_array_equal(started_at(batch)[:, :2], goals_of(batch)[:, :2])


@pytest.mark.parametrize(
    ("settings", "arguments", "message"),
    [
        ({}, {"share": "all"}, "share is 'all': it must be a number; it must be a share from 0 to 1"),
        ({}, {"share": np.nan}, "share is nan: it must be a share from 0 to 1"),
        ({}, {"compute_terminated": True}, "compute_terminated is True: it must be a function; give compute(achieved_"),
        ({}, {"share": 1.5}, "share is 1.5: it must be a share from 0 to 1"),
        ({}, {"strategy": "past"}, "strategy is 'past': it must be one of 'future', 'final', 'episode'"),
        ({"n_step": 3}, {}, "n_step is 3: hindsight computes rewards of single steps"),
        ({"observation_space": GOAL}, {}, "observations have one array: hindsight needs an array for each of "),
        ({"observation_space": {"achieved_goal": GOAL}}, {}, "observations have achieved_goal: hindsight needs"),
        (
            {"observation_space": SPACE | {"desired_goal": FrameSpec((3,), np.dtype(np.int64))}},
            {},
            "one replaces the other; give both the same shape and dtype",
        ),
    ],
)
def test_a_memory_that_cannot_be_relabelled_is_refused_at_construction(settings, arguments, message):
    memory = ReplayMemory(10, **{"observation_space": SPACE, "action_space": 4, "stack": 1} | settings)

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        HindsightGoals(memory, reward_of, **arguments)


@pytest.mark.parametrize("given", [lambda *_: 0.0, lambda achieved, *_: achieved, lambda *_: ["a"] * 8])
def test_a_reward_that_is_not_one_number_a_transition_is_refused(given):
    play = GoalPlay().play(20)

    with pytest.raises(
        InvalidSettingsError, match=r"compute_reward returned shape .* it must return numbers of shape \(8,"
    ):
        HindsightGoals(play.memory, given, share=1.0).sample(8)


@pytest.mark.parametrize("reward", [np.nan, -np.inf, 1e300])
def test_a_reward_that_is_not_finite_in_the_batch_is_refused(reward):
    play = GoalPlay().play(20)
    message = f"compute_reward returned {reward} for row 0: its values must be finite in float32; correct"

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        HindsightGoals(play.memory, lambda achieved, *_: np.full(len(achieved), reward), share=1.0).sample(8)


@pytest.mark.parametrize("given", [0.5, np.nan, 2, -1])
def test_what_compute_terminated_returns_must_be_booleans_or_0_and_1(given):
    play = GoalPlay().play(20)

    def sample(value):
        return HindsightGoals(
            play.memory, reward_of, share=1.0, compute_terminated=lambda achieved, *_: np.full(len(achieved), value)
        ).sample(8)

    for value in (True, 1, 1.0):
        assert sample(value).terminated.all()
    with pytest.raises(InvalidSettingsError, match=f"the result of compute_terminated is {given}: it must be True or"):
        sample(given)


def test_there_is_nothing_to_relabel_in_an_empty_memory():
    with pytest.raises(NothingToSampleError):
        HindsightGoals(GoalPlay().memory, reward_of).sample(1)
