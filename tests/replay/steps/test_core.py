"""One native call stores a step, its frames and its stacks: any observation comes back, also where a stretch begins."""

from __future__ import annotations

import numpy as np
import pytest

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED, Core
from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.eviction.retention import RandomRetention
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.replay.steps.block_steps import BlockSteps
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from framestow.storage.frame_storage import FrameStorage

FRAME = FrameSpec((3, 4))
ACTION = ActionSpec.from_space(4)
CONTINUES, ZEROS, LEAD_INS, USUAL = range(4)  # paddings
MAKERS = {"fifo": RingSteps, "random": lambda steps: BlockSteps(steps, RandomRetention(0))}
SEGMENT = 8
STEP_STORES = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


class AnyStacks:
    """Steps of environments whose observations are any stacks, with what was given in a list."""

    def __init__(self, make, stack: int, padding: str, n_step: int = 1, num_envs: int = 3, seed: int = 0) -> None:
        self.steps = make(StepSettings(2000, num_envs, stack, ACTION, 0.9, SEGMENT, n_step=n_step))
        self.storage = FrameStorage(FRAME, num_envs, frames_per_segment=SEGMENT, depths=[stack])
        self.core = Core(self.steps, self.storage, ObservationLayout.of_frames(FRAME, stack), padding)
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
        assert self.core.plan_begin((stacks,), env_ids, True) is False
        assert self.core.apply() is None
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
            rewards = np.arange(first, first + count, dtype=np.float64)
            step = env_ids, [0] * count, rewards, ended, np.zeros(count, bool), (stacks,), None
            is_unusual = self.core.plan_append(*step, True)
            assert is_unusual == (is_border.any() and self.stack > 1)
            assert len(self.core.apply()) == count
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
        np.testing.assert_array_equal(self.current, self.core.stacks()[0])


@pytest.mark.each_pair
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
def test_parts_that_do_not_fit_each_other_are_refused(make):
    steps = make(StepSettings(2000, 2, 3, ACTION, 0.9, SEGMENT))
    layout = ObservationLayout.of_frames(FRAME, 3)
    for storage in (
        FrameStorage(FRAME, 3, frames_per_segment=SEGMENT, depths=[3]),
        FrameStorage(FRAME, 2, frames_per_segment=SEGMENT + 1, depths=[3]),
        FrameStorage(FRAME, 2, frames_per_segment=SEGMENT, depths=[2]),
        FrameStorage(FrameSpec((3, 5)), 2, frames_per_segment=SEGMENT, depths=[3]),
    ):
        with pytest.raises(ValueError, match="layout does not fit"):
            Core(steps, storage, layout, "zeros")


@STEP_STORES
def test_a_plan_that_is_not_applied_changes_nothing(make):
    steps = AnyStacks(make, 3, "zeros", num_envs=1)
    stacks = np.ones((1, 3, *FRAME.shape), np.uint8)
    for _ in range(2):
        assert steps.core.plan_add([0], [0], [0.0], [False], [False], (stacks,), None, (stacks,)) is True
        assert steps.core.plan_begin((stacks,), None, True) is False

    steps.play(20)
    steps.check()


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
def test_a_segment_that_is_taken_over_shows_the_lead_ins_of_its_stretches(stack):
    played, taken = (AnyStacks(RingSteps, stack, "zeros", num_envs=1) for _ in range(2))
    played.play(150, 0.3)
    taken.steps = RingSteps(StepSettings(2000, 1, stack, ACTION, 0.9, SEGMENT))
    taken.storage = FrameStorage(FRAME, 1, frames_per_segment=SEGMENT, depths=[stack])
    taken.core = Core(taken.steps, taken.storage, ObservationLayout.of_frames(FRAME, stack), "zeros")
    taken.given = played.given

    for *chunk, newest in chunks_of(played):
        assert taken.core.append_segment(0, *chunk, None)

        if newest >= 0:
            np.testing.assert_array_equal(played.given[newest][1][None], taken.core.stacks()[0])
            taken.current[0] = played.given[newest][1]
    assert newest >= 0
    taken.check()


def test_a_segment_with_a_stretch_that_its_steps_do_not_begin_is_refused():
    played = AnyStacks(RingSteps, 3, "zeros", num_envs=1)
    played.play(60, 0.5)
    segment, bits, *fields, _ = chunks_of(played)[2]
    steps = RingSteps(StepSettings(2000, 1, 3, ACTION, 0.9, SEGMENT))
    storage = FrameStorage(FRAME, 1, frames_per_segment=SEGMENT, depths=[3])
    fresh = Core(steps, storage, ObservationLayout.of_frames(FRAME, 3), "zeros")

    with pytest.raises(DamagedDataError, match="its steps have none there; send it again"):
        fresh.append_segment(0, segment, bits & ~np.uint8(BORDER), *fields, None)
    assert (0, 0) == (len(steps), storage.next_position(0))
