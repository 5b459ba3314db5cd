"""The report and the warnings about observations: what is stored whole, on which axis, and which loops look wrong.

Every warning of a test that does not expect it is an error, so all other loops of these tests, of the documentation and
of the libraries' examples are right ones that warn of nothing.
"""

from itertools import pairwise

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation

from framestow import FrameSpec, ReplayMemory
from framestow.errors import InvalidStepError, ObservationWarning

SIDE = 32  # pixels, the least of a picture
STACKS = FrameSpec((4, SIDE, SIDE))
CAMERA_AND_JOINTS = {"camera": FrameSpec((SIDE, SIDE, 4)), "joints": FrameSpec((3,), np.float32)}


def film(num_frames, shape=(SIDE, SIDE), seed=0):
    return np.random.default_rng(seed).integers(0, 256, (num_frames, *shape), dtype=np.uint8)


def stack(frames, t, depth=4, axis=0):
    return np.moveaxis(frames[t : t + depth], 0, axis)


def add_episode(memory, num_steps=10, depth=4, axis=0, seed=0, first=0):
    """Add the steps of one episode, whose first observation is no padded one, without its end."""
    frames = film(num_steps + depth, seed=seed)
    for t in range(first, num_steps):
        memory.add(stack(frames, t, depth, axis), 0, 0.0, stack(frames, t + 1, depth, axis), False, False)
    return frames


def add_unrelated(memory, num_steps, shape=STACKS.shape):
    """Add consecutive observations that share no frames."""
    observations = film(num_steps + 1, shape)
    for before, after in pairwise(observations):
        memory.add(before, 0, 0.0, after, False, False)


# The report


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        ({"observation_space": STACKS}, ["stacks of 4 on the first axis; 0.0 % of the observations stored whole"]),
        ({"observation_space": FrameSpec((SIDE, SIDE)), "stack": 1}, ["no stacks"]),
        (
            {"observation_space": CAMERA_AND_JOINTS},
            [
                "camera: stacks of 4 on the last axis",
                "joints: no stacks",
                "0.0 % of the observations stored whole",
            ],
        ),
        (
            {"observation_space": {"left": STACKS, "right": STACKS}},
            ["stacks of 4 on the first axis; 0.0 % of the observations stored whole"],
        ),
    ],
)
def test_a_report_says_which_axes_are_stacks(settings, lines):
    report = ReplayMemory(10, action_space=4, **settings).report()

    assert "\n".join(lines) == str(report.observations)
    assert "\n".join(lines) in str(report)
    assert lines[0] in report._repr_html_()


def memory_with_three_whole(**settings):
    """Return a memory with 3 of 23 observations stored whole: the first one, and 2 next observations."""
    memory = ReplayMemory(100, STACKS, 4, frames_per_segment=5, seed=0, **settings)
    frames = add_episode(memory, 20)
    memory.add(stack(frames, 20), 0, 0.0, stack(frames, 3), False, False)
    memory.add(stack(frames, 3), 0, 0.0, stack(frames, 9), False, True)
    return memory


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_a_report_counts_the_observations_that_are_stored_whole(storage, tmp_path):
    memory = memory_with_three_whole(storage=storage)

    report = memory.report().observations

    assert (23, 3) == (report.observations, report.whole)
    assert 3 / 23 == report.share_whole
    assert "stacks of 4 on the first axis; 13.0 % of the observations stored whole" in str(memory.report())
    memory.save(tmp_path)
    assert report == ReplayMemory.load(tmp_path).report().observations


def test_whole_observations_in_files_count_once_they_were_read(tmp_path):
    with memory_with_three_whole(directory=tmp_path) as memory:
        memory.flush()
        assert 3 == memory.report().observations.whole

    opened = ReplayMemory.open(tmp_path)
    opened.get(opened.sampleable_indices())

    assert 3 == opened.report().observations.whole


def test_padded_beginnings_are_not_stored_whole():
    memory = ReplayMemory(100, STACKS, 4)
    first, black = film(1)[0], np.zeros((SIDE, SIDE), np.uint8)
    for older in (first, black):
        memory.add(np.stack([older, older, older, first]), 0, 0.0, np.stack([older, older, first, first]), False, True)

    assert 0 == memory.report().observations.whole


def test_whole_observations_leave_the_count_when_they_are_evicted():
    memory = ReplayMemory(40, STACKS, 4, frames_per_segment=5)
    frames = add_episode(memory, 1)
    memory.add(stack(frames, 1), 0, 0.0, stack(frames, 1), False, True)
    assert 2 == memory.report().observations.whole

    add_episode(memory, 100, seed=1)

    assert 0 == memory.report().observations.whole


def test_a_report_counts_the_sampled_sequences_with_a_border():
    memory = memory_with_three_whole()
    memory.sample_sequences(8, 2, borders="inside")
    assert memory.sampleable_indices().size == 22

    sampled = memory.sample_sequences(8, 22)  # from any step to the end, so all have the last border
    memory.sample_sequences(8, 1)

    assert sampled.mask[:, 0].all()
    num_bordered = memory.report().observations.bordered_sequences
    assert 8 <= num_bordered <= 24
    assert f"{num_bordered} sampled sequences had a border" in str(memory.report())


# Warnings about bytes


def test_observations_that_are_no_stacks_are_warned_of_once():
    memory = ReplayMemory(1000, STACKS, 4)
    message = 'looks like stacks of 4 frames, but .* is not .* shifted by one frame.*give stack_axis="none"'

    with pytest.warns(ObservationWarning, match=message):
        add_unrelated(memory, 100)
    add_unrelated(memory, 200)

    assert 1.0 == memory.report().observations.share_whole


def test_whole_stacks_in_a_memory_of_frames_are_warned_of_too():
    memory = ReplayMemory(1000, FrameSpec((SIDE, SIDE)), 4, stack=4)

    with pytest.warns(ObservationWarning, match="if they are no stacks, leave out stack="):
        add_unrelated(memory, 100)


def test_few_whole_observations_are_not_warned_of():
    memory = ReplayMemory(1000, STACKS, 4, num_envs=32)
    frames = film(200)

    # All environments begin in the middle of an episode. Later, one in four next observations skips a frame.
    t = 0
    for step in range(150):
        following = t + 2 if step % 4 == 3 else t + 1
        observations = (np.repeat(stack(frames, at)[None], 32, axis=0) for at in (t, following))
        zeros, no = np.zeros(32, int), np.zeros(32, bool)
        memory.add(next(observations), zeros, zeros, next(observations), no, no)
        t = following

    assert 0.2 < memory.report().observations.share_whole < 0.3


# Warnings about loops


class Screens(Env):
    """Numbered screens that begin anew in each episode; every other episode is cut off after ``length`` steps."""

    action_space = Discrete(4)

    def __init__(self, length=5, changes=True, terminates=True):
        self.observation_space = Box(0, 255, (SIDE, SIDE), np.uint8)
        self.length, self.changes, self.terminates = length, changes, terminates
        self.episode = 0

    def screen(self):
        return film(1, seed=self.episode * 1000 + self.steps if self.changes else 0)[0]

    def reset(self, *, seed=None, options=None):
        self.episode, self.steps = self.episode + 1, 0
        return self.screen(), {}

    def step(self, action):
        self.steps += 1
        has_ended, terminates = self.steps == self.length, self.terminates and self.episode % 2 == 0
        return self.screen(), 0.0, has_ended and terminates, has_ended and not terminates, {}


def right_loop(memory, env, num_steps):
    """Add the steps of any autoreset mode, without the steps that reset an environment."""
    mode = env.metadata["autoreset_mode"]
    observations, _ = env.reset()
    is_running = np.ones(env.num_envs, bool)
    for _ in range(num_steps):
        actions = env.action_space.sample()
        following, rewards, terminated, truncated, infos = env.step(actions)
        ended = terminated | truncated
        last = following.copy()
        if mode is AutoresetMode.SAME_STEP:
            for env_id in np.flatnonzero(ended):
                last[env_id] = infos["final_obs"][env_id]
        chosen = np.flatnonzero(is_running)
        step = (observations, actions, rewards, last, terminated, truncated)
        memory.add(*(part[chosen] for part in step), env_ids=chosen)
        if mode is AutoresetMode.NEXT_STEP:
            is_running = ~ended
        elif mode is AutoresetMode.DISABLED and ended.any():
            following, _ = env.reset(options={"reset_mask": ended})
        observations = following


def cleanrl_loop(memory, env, num_steps):
    """Add the steps as CleanRL's scripts do, with the true last observation of truncated episodes alone."""
    observations, _ = env.reset()
    for _ in range(num_steps):
        actions = env.action_space.sample()
        following, rewards, terminated, truncated, infos = env.step(actions)
        last = following.copy()
        for env_id in np.flatnonzero(truncated):
            last[env_id] = infos["final_obs"][env_id]
        memory.add(observations, actions, rewards, last, terminated, truncated)
        observations = following


def careless_loop(memory, env, num_steps):
    """Add every step with what it returned."""
    observations, _ = env.reset()
    for _ in range(num_steps):
        actions = env.action_space.sample()
        following, rewards, terminated, truncated, _ = env.step(actions)
        memory.add(observations, actions, rewards, following, terminated, truncated)
        observations = following


def play(loop, mode, stacks=True, num_steps=60, num_envs=2, **settings):
    def make():
        env = Screens(**settings)
        return FrameStackObservation(env, 4) if stacks else env

    env = SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
    memory = ReplayMemory(1000, env.single_observation_space, 4, num_envs=num_envs)
    loop(memory, env, num_steps)
    return memory.report()


@pytest.mark.parametrize("stacks", [True, False])
@pytest.mark.parametrize(
    ("loop", "mode"), [*((right_loop, mode) for mode in AutoresetMode), (cleanrl_loop, AutoresetMode.SAME_STEP)]
)
def test_right_loops_of_every_autoreset_mode_are_warned_of_nothing(loop, mode, stacks):
    observations = play(loop, mode, stacks).observations
    assert (0, 0, 0) == (observations.whole, observations.wrong_last, observations.resets)


@pytest.mark.parametrize("stacks", [True, False])
def test_a_truncated_step_with_the_next_episodes_first_observation_is_warned_of_once(stacks):
    with pytest.warns(ObservationWarning, match=r'a learner bootstraps from it; .*infos\["final_obs"\]') as warned:
        report = play(careless_loop, AutoresetMode.SAME_STEP, stacks)

    assert 1 == len(warned)
    assert 12 == report.observations.wrong_last  # of both environments, in every other episode of 5 steps
    assert "12 truncated steps have the next episode's first observation" in str(report)


def test_recorded_resets_are_warned_of_once():
    with pytest.warns(ObservationWarning, match="NEXT_STEP, the step after an end only resets") as warned:
        report = play(careless_loop, AutoresetMode.NEXT_STEP)

    assert 1 == len(warned)
    assert 20 == report.observations.resets  # of both environments, after each episode of 5 steps and a reset
    assert "20 steps lead from an episode's end to the next one" in str(report)


def test_a_recorded_reset_of_single_frames_is_warned_of_where_an_episode_was_truncated():
    with pytest.warns(ObservationWarning, match="and no step that resets the environment") as warned:
        play(careless_loop, AutoresetMode.NEXT_STEP, stacks=False)

    assert 1 == len(warned)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("stacks", [True, False])
def test_screens_that_never_change_are_warned_of_nothing(mode, stacks):
    play(careless_loop, mode, stacks, changes=False)


class OwnArray:
    """Film whose screens an environment writes into one array, which every step returns."""

    def __init__(self, kind, changes=True):
        self.kind, self.changes = kind, changes
        self.buffer = np.zeros((5, SIDE, SIDE), np.uint8)
        self.films = film(300)

    @property
    def space(self):
        spaces = {
            "one frame": FrameSpec((SIDE, SIDE)),
            "stack": STACKS,
            "channels last": FrameSpec((SIDE, SIDE, 4)),
            "Dict": {"camera": STACKS, "goal": FrameSpec((3,))},
            "Tuple": (STACKS, FrameSpec((3,))),
        }
        return spaces.get(self.kind, STACKS)

    def step(self, t):
        """Return the observation after step ``t``."""
        if self.changes:
            self.buffer[:] = self.films[t : t + 5]
        stacked, goal = self.buffer[:4], np.full(3, 7, np.uint8)
        made = {
            "one frame": lambda: self.buffer[0],
            "channels last": lambda: np.moveaxis(stacked, 0, -1),
            "Dict": lambda: {"camera": stacked, "goal": goal},
            "Tuple": lambda: (stacked, goal),
            "tensor": lambda: pytest.importorskip("torch").from_numpy(stacked),
            "several": lambda: stacked[None],
        }
        return made.get(self.kind, lambda: stacked)()


KINDS_OF_ARRAYS = ["one frame", "stack", "channels last", "Dict", "Tuple", "tensor", "several"]


@pytest.mark.parametrize("kind", KINDS_OF_ARRAYS)
def test_an_environment_that_writes_into_its_own_array_is_warned_of_once(kind):
    env = OwnArray(kind)
    memory = ReplayMemory(1000, env.space, 4)

    def play():
        observation = env.step(0)
        for t in range(1, 100):
            following = env.step(t)
            memory.add(observation, 0, 0.0, following, t % 10 == 0, False)
            observation = following

    with pytest.warns(ObservationWarning, match=r"one array in 3 steps.* env\.step\(action\)\[0\]\.copy\(\)") as warned:
        play()

    assert [__file__] == [each.filename for each in warned]
    report = memory.report()
    assert 89 == report.observations.in_one_array  # all but the first of each of 10 episodes
    assert "89 steps have their next observation in the array of their observation" in str(report)


@pytest.mark.parametrize("kind", KINDS_OF_ARRAYS)
def test_one_array_that_stays_the_same_is_warned_of_nothing(kind):
    env = OwnArray(kind, changes=False)
    memory = ReplayMemory(1000, env.space, 4)
    for t in range(40):
        memory.add(env.step(t), 0, 0.0, env.step(t), t % 10 == 0, False)
    assert 0 == memory.report().observations.in_one_array


def test_views_of_one_array_and_a_goal_that_stays_are_warned_of_nothing():
    memory = ReplayMemory(1000, {"camera": STACKS, "goal": FrameSpec((3,))}, 4)
    frames, goals = film(60), film(6, (3,))
    for t in range(0, 50, 2):  # every other step is left out, so each begins an episode
        camera, following = stack(frames, t), stack(frames, t + 1)
        goal = goals[t // 10]
        memory.add({"camera": camera, "goal": goal}, 0, 0.0, {"camera": following, "goal": goal}, t % 10 == 8, False)
    assert 0 == memory.report().observations.in_one_array


def test_a_task_that_goes_on_after_a_truncation_is_warned_of_nothing():
    memory = ReplayMemory(1000, STACKS, 4)
    frames = film(104)
    for t in range(100):
        memory.add(stack(frames, t), 0, 0.0, stack(frames, t + 1), False, t % 10 == 9)
    assert 0 == memory.report().observations.wrong_last


def test_the_end_before_a_load_is_known(tmp_path):
    space = FrameSpec((SIDE, SIDE))
    memory = ReplayMemory(1000, space, 4)
    screens = film(20)
    memory.add(screens[0], 0, 0.0, screens[1], False, True)
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path)

    loaded.add(screens[1], 0, 0.0, screens[2], False, True)

    assert 1 == loaded.report().observations.wrong_last


def test_a_refused_step_is_not_looked_at():
    memory = ReplayMemory(1000, FrameSpec((SIDE, SIDE)), 4)
    screens = film(3)
    memory.add(screens[0], 0, 0.0, screens[1], False, True)

    with pytest.raises(InvalidStepError):
        memory.add(screens[1], 7, 0.0, screens[2], False, True)

    assert 0 == memory.report().observations.wrong_last
