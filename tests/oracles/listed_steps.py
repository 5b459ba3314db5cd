"""Play on a step store, and list for each transition which frames it references."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, Core
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.storage.frame_storage import FrameStorage

ACTION = ActionSpec.from_space(200)
FRAME = FrameSpec((1, 1))
DISCOUNT = 0.9
POWERS = [DISCOUNT**power for power in range(100)]  # n-step returns have fewer steps


@dataclass(eq=False)
class ListedStep:
    """A transition: its first frame and the steps of its return; reward and action identify it.

    ``stretch`` is where its stretch begins; if ``is_border``, the next stretch begins with its next observation.
    """

    env_id: int
    first: int
    start: int
    stretch: int
    reward: float
    terminated: bool
    is_border: bool
    sequence: list[ListedStep]  # all steps of its episode, including this one
    n_step: int

    def __post_init__(self) -> None:
        self.offset = len(self.sequence)
        self.sequence.append(self)

    @property
    def steps(self) -> list[ListedStep]:
        return self.sequence[self.offset : self.offset + self.n_step]

    @property
    def last(self) -> int:
        return self.start + len(self.steps)

    @property
    def total(self) -> np.float32:
        return np.float32(sum(map(operator.mul, POWERS, [step.reward for step in self.steps])))

    @property
    def discount(self) -> np.float32:
        return np.float32(0.0 if self.steps[-1].terminated else DISCOUNT ** len(self.steps))

    @property
    def flags(self) -> int:
        begins_episode = BEGINS_EPISODE if self.offset == 0 else 0
        return TERMINATED * self.terminated | BORDER * self.is_border | begins_episode

    def references(self, env_id: int, first: int, before: int) -> bool:
        return self.env_id == env_id and self.first < before and self.last >= first


class FramedSteps:
    """Steps that a ``Core`` stores with frames of one byte: each is one more than the last of its environment."""

    def __init__(self, step_store, segment_frames: int) -> None:
        self.stack, self.segment_frames = step_store.stack, segment_frames
        num_envs = step_store.num_envs
        self.storage = FrameStorage(FRAME, num_envs, "raw", frames_per_segment=segment_frames, depths=[self.stack])
        self.observations = np.zeros((num_envs, self.stack, 1, 1), np.uint8)
        self.step_store = step_store

    @property
    def step_store(self):
        return self._step_store

    @step_store.setter
    def step_store(self, step_store) -> None:
        """Go on with a step store that has the steps of this one."""
        self._step_store = step_store
        self.core = Core(step_store, self.storage, ObservationLayout.of_frames(FRAME, self.stack), "first_frame")
        for env_id, observation in enumerate(self.observations):
            self.core.restore_stack(env_id, observation[None])

    def begin(self, env_ids: list[int]) -> None:
        self.observations[env_ids] = self.observations[env_ids, -1:] + 1
        assert self.core.plan_begin((self.observations[env_ids],), env_ids, True) is False
        self.core.apply()

    def append(self, env_ids: list[int], actions, rewards, terminated, borders=False) -> None:
        """Append a step of each environment; the next observation of a border is a new frame alone.

        With stacks of one frame there are no borders.
        """
        newest = self.observations[env_ids, -1:] + 1
        following = np.concatenate([self.observations[env_ids, 1:], newest], axis=1)
        has_borders = np.any(borders)
        if has_borders:
            following = np.where(np.broadcast_to(borders, len(env_ids))[:, None, None, None], newest, following)
        truncated = np.zeros(len(env_ids), bool)
        is_unusual = self.core.plan_append(env_ids, actions, rewards, terminated, truncated, (following,), None, True)
        assert is_unusual == has_borders
        indices = self.core.apply()
        self.observations[env_ids] = following
        stored = self.step_store.places(indices)[0]
        assert {-1, *env_ids} >= set(stored.tolist())  # -1: it references a lost frame

    def append_and_evict(self, *step) -> list[tuple[int, int, int]]:
        """As ``append``; return the segments that were evicted for it: environment, first frame and the one behind."""
        before = self._sealed_segments()
        self.append(*step)
        length, evicted = self.segment_frames, []
        for env_id, (were, are) in enumerate(zip(before, self._sealed_segments(), strict=True)):
            if not np.array_equal(were, are[: len(were)]):  # new ones follow
                gone = sorted({*were.tolist()} - {*are.tolist()})
                evicted += [(env_id, number * length, number * length + length) for number in gone]
        return evicted

    def _sealed_segments(self) -> list[np.ndarray]:
        """Each environment's, in ascending order."""
        return [self.storage.sealed_segments(env_id) for env_id in range(self.step_store.num_envs)]


class PlayedSteps(FramedSteps):
    """Random episodes; ``steps`` lists every transition, by its number from 0."""

    def __init__(self, step_store, segment_frames: int, seed: int) -> None:
        super().__init__(step_store, segment_frames)
        self.random = np.random.default_rng(seed)
        count = step_store.num_envs
        self.newest, self.stretches = [-1] * count, [0] * count
        self.sequences: list[list[ListedStep]] = [[] for _ in range(count)]
        self.begun: list[list[int]] = [[] for _ in range(count)]  # by environment: positions of the episode starts
        self.steps: list[ListedStep] = []
        self.evicted: list[tuple[int, int, int]] = []  # all segments that were
        self.begin(list(range(count)))

    def begin(self, env_ids: list[int]) -> None:
        if not env_ids:
            return
        super().begin(env_ids)
        for env_id in env_ids:
            self.newest[env_id] += 1
            self.stretches[env_id] = self.newest[env_id]
            self.sequences[env_id] = []
            self.begun[env_id].append(self.newest[env_id])

    def play(self, num_steps: int, end_chance: float = 0.1, border_chance: float = 0.1) -> None:
        for _ in range(num_steps):
            env_ids = [env_id for env_id in range(len(self.newest)) if self.random.random() < 0.7]
            numbers = np.arange(len(self.steps), len(self.steps) + len(env_ids))
            terminated = self.random.random(len(env_ids)) < end_chance
            borders = (self.random.random(len(env_ids)) < border_chance) & (self.stack > 1)
            step = env_ids, numbers % 200, numbers.astype(np.float64), terminated, borders
            self.evicted += self.append_and_evict(*step)
            for row, (env_id, number) in enumerate(zip(env_ids, numbers.tolist(), strict=True)):
                start, stretch, sequence = self.newest[env_id], self.stretches[env_id], self.sequences[env_id]
                of_step = float(number), bool(terminated[row]), bool(borders[row]), sequence, self.step_store.n_step
                self.steps.append(ListedStep(env_id, max(stretch, start - self.stack + 1), start, stretch, *of_step))
                self.newest[env_id] += 1
                if borders[row]:
                    self.stretches[env_id] = start + 1
            self.begin([env_id for env_id, has_ended in zip(env_ids, terminated, strict=True) if has_ended])

    def numbers_of(self, indices: np.ndarray) -> list[int]:
        """Check all fields of these transitions, and return their numbers."""
        (env_ids, lasts, counts), (actions, rewards, *_) = self.step_store.resolve_steps(indices)
        numbers = rewards.astype(int).tolist()
        for row, number in enumerate(numbers):
            step = self.steps[number]
            expected = (step.env_id, step.start + 1, step.start + 1 - step.first + 1, number % 200)
            assert expected == (env_ids[row], lasts[row], counts[row], actions[row]), f"transition {number}"
        steps = [self.steps[number] for number in numbers]
        assert [step.flags for step in steps] == self.step_store.flags_of(indices).tolist()
        self.check_transitions(steps, self.step_store.resolve(indices))
        self.check_merged(steps, self.step_store.resolve(indices, merges_windows=True))
        return numbers

    def check_transitions(self, steps: list[ListedStep], resolved) -> None:
        (env_ids, lasts, counts), (_, rewards, discounts, terminated, *_) = resolved
        expected = [(step.env_id, step.start, step.start - step.first + 1) for step in steps]
        expected += [(step.env_id, step.last, self.num_frames(step.steps[-1])) for step in steps]
        assert expected == list(zip(env_ids.tolist(), lasts.tolist(), counts.tolist(), strict=True))
        assert [step.total for step in steps] == rewards.tolist()
        assert [step.discount for step in steps] == discounts.tolist()
        assert [step.steps[-1].terminated for step in steps] == terminated.tolist()

    def check_merged(self, steps: list[ListedStep], resolved) -> None:
        """One window for each transition, unless a border or an end of an episode is in any of them."""
        n_step = self.step_store.n_step
        are_shifted = all(
            len(step.steps) == n_step and not any(later.is_border for later in step.steps) for step in steps
        )
        if not are_shifted or 1 < n_step >= self.stack:
            self.check_transitions(steps, resolved)
            return
        expected = [(step.env_id, step.last, step.last - step.first + 1) for step in steps]
        assert expected == list(zip(*(column.tolist() for column in resolved[0]), strict=True))
        assert [step.total for step in steps] == resolved[1][1].tolist()

    def num_frames(self, step: ListedStep) -> int:
        """Number of frames of the next observation."""
        return 1 if step.is_border else min(step.start - step.stretch + 2, self.stack)

    def held_numbers(self) -> list[int]:
        """The numbers of all sampleable transitions, ordered by index."""
        self.step_store.check()
        return self.numbers_of(self.step_store.sampleable_indices())

    def whole_numbers(self) -> list[int]:
        """The numbers of all transitions ever that are not pending."""
        still_open = [
            id(sequence) for sequence, is_open in zip(self.sequences, self.step_store.is_open, strict=True) if is_open
        ]
        return [
            number
            for number, step in enumerate(self.steps)
            if len(step.steps) == self.step_store.n_step or id(step.sequence) not in still_open
        ]
