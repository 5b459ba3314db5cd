"""One native call stores a step, its frames and its stacks: any observation comes back, also where a run begins."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED
from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.frames.stacking import FrameStacker
from framestow.replay.action_spec import ActionSpec
from framestow.replay.eviction import RandomRetention
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from framestow.storage.frame_storage import FrameStorage

FRAME = FrameSpec((3, 4))
SPEC = observation_spec(FRAME)
CONTINUES, ZEROS, LEAD_INS, USUAL = range(4)  # paddings
MAKERS = {"fifo": RingSteps, "random": lambda steps: BlockSteps(steps, RandomRetention(0))}
SEGMENT = 8
STEP_STORES = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


class AnyStacks:
    """Steps of environments whose observations are any stacks, with what was given in a list."""

    def __init__(self, make, stack: int, padding: str, n_step: int = 1, num_envs: int = 3, seed: int = 0) -> None:
        action = ActionSpec.from_space(4)
        self.steps = make(StepSettings(2000, num_envs, stack, SPEC, action, 0.9, SEGMENT, n_step=n_step))
        self.storage = FrameStorage(FRAME, num_envs, frames_per_segment=SEGMENT, depths=[stack])
        self.stacker = FrameStacker(FRAME, stack, num_envs, padding, depths=[stack])
        self.random, self.stack, self.padding = np.random.default_rng(seed), stack, padding
        self.current = np.zeros((num_envs, stack, *FRAME.shape), np.uint8)
        self.given: list[tuple[np.ndarray, np.ndarray, int, int]] = []  # observation, next one, environment, episode
        self.episodes = np.zeros(num_envs, int)
        self.begin(list(range(num_envs)))

    def next_stacks(self, env_ids: list[int], paddings: np.ndarray) -> np.ndarray:
        """What follows the current stacks: of each padding, the stacks that it may have."""
        stacks = np.roll(self.current[env_ids], -1, axis=1)
        stacks[:, -1] = self.random.integers(1, 255, (len(env_ids), *FRAME.shape))
        for stack, padding in zip(stacks, paddings.tolist(), strict=True):
            if padding == LEAD_INS:
                stack[:-1] = self.random.integers(1, 255, stack[:-1].shape)
            elif padding != CONTINUES:
                stack[:-1] = 0 if padding == ZEROS or self.padding == "zeros" else stack[-1]
        return stacks

    def begin(self, env_ids: list[int]) -> None:
        paddings = self.random.integers(ZEROS, USUAL + 1, len(env_ids)).astype(np.uint8)
        stacks = self.next_stacks(env_ids, paddings)
        frames = np.ascontiguousarray(stacks[:, -1])
        numbers = np.array(env_ids, np.int32)
        self.steps.begin_whole(self.storage, self.stacker.native, numbers, frames, paddings, stacks[:, :-1])
        self.current[env_ids] = stacks
        self.episodes[env_ids] += 1

    def play(self, num_steps: int, border_chance: float = 0.2) -> None:
        for _ in range(num_steps):
            env_ids = np.flatnonzero(self.random.random(len(self.current)) < 0.7).tolist()
            count, first = len(env_ids), len(self.given)
            paddings = np.zeros(count, np.uint8)
            is_border = self.random.random(count) < border_chance
            paddings[is_border] = self.random.integers(ZEROS, USUAL + 1, is_border.sum())
            stacks, ended = self.next_stacks(env_ids, paddings), self.random.random(count) < 0.05
            frames, rewards = np.ascontiguousarray(stacks[:, -1]), np.arange(first, first + count, dtype=np.float64)
            step = [0] * count, rewards, ended, np.zeros(count, bool), frames
            assert self.steps.stage(env_ids, *step, borders=is_border)
            if self.steps.evict_for_staged():
                raise AssertionError("nothing is evicted here")
            arrays = (paddings, stacks[:, :-1]) if is_border.any() or first % 2 else ()
            self.steps.append_whole(self.storage, self.stacker.native, frames, *arrays)
            for row, env_id in enumerate(env_ids):
                self.given.append((self.current[env_id].copy(), stacks[row], env_id, self.episodes[env_id]))
            self.current[env_ids] = stacks
            self.begin(np.array(env_ids)[ended].tolist())

    def last_of(self, number: int) -> int:
        """The number of the last step in a transition's return."""
        later = [n for n in range(number, len(self.given)) if self.given[n][2:] == self.given[number][2:]]
        return later[: self.steps.n_step][-1]

    def check(self) -> None:
        indices = self.steps.sampleable_indices()
        numbers = self.steps.resolve_steps(indices)[1][1].astype(int).tolist()
        windows, _ = self.steps.resolve(indices)
        out = FRAME.empty(2 * len(indices), self.stack)
        self.storage.windows(*windows, out, self.padding)
        np.testing.assert_array_equal([self.given[number][0] for number in numbers], out[: len(indices)])
        np.testing.assert_array_equal([self.given[self.last_of(number)][1] for number in numbers], out[len(indices) :])
        np.testing.assert_array_equal(self.current, self.stacker.stacks()[0])


@STEP_STORES
@pytest.mark.parametrize("padding", ["first_frame", "zeros"])
@pytest.mark.parametrize(("stack", "n_step"), [(1, 1), (2, 1), (4, 1), (4, 3), (4, 6), (11, 2)])
def test_every_observation_comes_back_as_it_was_given(make, stack, n_step, padding):
    steps = AnyStacks(make, stack, padding, n_step)

    for border_chance in (0.0, 0.1, 1.0):
        steps.play(40, border_chance)
        steps.check()

    assert 200 < len(steps.given)


@STEP_STORES
def test_paddings_that_contradict_the_borders_store_nothing(make):
    steps = AnyStacks(make, 3, "zeros", num_envs=1)
    frame, older = np.ones((1, *FRAME.shape), np.uint8), np.ones((1, 2, *FRAME.shape), np.uint8)
    for is_border, padding in ((False, LEAD_INS), (True, CONTINUES)):
        assert steps.steps.stage([0], [0], [0.0], [False], [False], frame, borders=[is_border])

        message = f"paddings has {padding} at row 0: it must be 1 to 3 where a run begins, 0 where it goes on"
        with pytest.raises(ValueError, match=re.escape(message)):
            steps.steps.append_whole(steps.storage, steps.stacker.native, frame, np.array([padding], np.uint8), older)

    env_ids, paddings = np.zeros(1, np.int32), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="paddings has 0 at row 0"):
        steps.steps.begin_whole(steps.storage, steps.stacker.native, env_ids, frame, paddings, older)
    assert 1 == steps.storage.stored_positions(0).stop
    steps.play(20)
    steps.check()


@STEP_STORES
def test_stacks_of_another_depth_than_the_lead_ins_are_refused(make):
    steps = AnyStacks(make, 3, "zeros", num_envs=1)
    shallow = FrameStacker(FRAME, 2, 1)
    frame, padding = np.ones((1, *FRAME.shape), np.uint8), np.array([ZEROS], np.uint8)

    with pytest.raises(
        ValueError, match="stacks have 2 frames: they must have 3, one more than the storage's lead-ins"
    ):
        steps.steps.begin_whole(steps.storage, shallow.native, np.zeros(1, np.int32), frame, padding)

    assert 1 == steps.storage.stored_positions(0).stop


def chunks_of(played: AnyStacks) -> list[tuple[bytes, np.ndarray, np.ndarray, np.ndarray, int]]:
    """Segment, bits, actions and rewards of the sealed segments of environment 0, and the step that ends each or -1."""
    indices = played.steps.sampleable_indices()
    (_, lasts, _), (actions, rewards, *_) = played.steps.resolve_steps(indices)
    flags = played.steps.flags_of(indices)
    bits = np.full(played.storage.stored_positions(0).stop, BEGINS_EPISODE, np.uint8)
    bits[lasts] = flags & (TERMINATED | TRUNCATED) | np.where(flags & BORDER, BORDER, 0)
    found = []
    for number in range(len(bits) // SEGMENT):
        here, span = lasts // SEGMENT == number, slice(number * SEGMENT, (number + 1) * SEGMENT)
        newest = -1 if bits[span][-1] == BEGINS_EPISODE else int(rewards[here][-1])
        found.append((played.storage.segment(0, number), bits[span], actions[here], rewards[here], newest))
    return found


@pytest.mark.parametrize("stack", [2, 4, 11])
def test_a_segment_that_is_taken_over_shows_the_lead_ins_of_its_runs(stack):
    played, taken = (AnyStacks(RingSteps, stack, "zeros", num_envs=1) for _ in range(2))
    played.play(150, 0.3)
    taken.steps = RingSteps(StepSettings(2000, 1, stack, SPEC, ActionSpec.from_space(4), 0.9, SEGMENT))
    taken.storage = FrameStorage(FRAME, 1, frames_per_segment=SEGMENT, depths=[stack])
    taken.given = played.given

    for *chunk, newest in chunks_of(played):
        assert taken.steps.stage_segment(taken.storage, 0, *chunk, None)
        taken.steps.append_segment(taken.storage, taken.stacker.native)

        if newest >= 0:
            np.testing.assert_array_equal(played.given[newest][1][None], taken.stacker.stacks()[0])
            taken.current[0] = played.given[newest][1]
    assert newest >= 0
    taken.check()


def test_a_segment_with_a_run_that_its_steps_do_not_begin_is_refused():
    played = AnyStacks(RingSteps, 3, "zeros", num_envs=1)
    played.play(60, 0.5)
    segment, bits, *fields, _ = chunks_of(played)[1]
    fresh = AnyStacks(RingSteps, 3, "zeros", num_envs=1)
    fresh.storage = FrameStorage(FRAME, 1, frames_per_segment=SEGMENT, depths=[3])
    fresh.steps = RingSteps(StepSettings(2000, 1, 3, SPEC, ActionSpec.from_space(4), 0.9, SEGMENT))

    with pytest.raises(DamagedDataError, match="its steps have none there; send it again"):
        fresh.steps.stage_segment(fresh.storage, 0, segment, bits & ~np.uint8(BORDER), *fields, None)
