"""Play on a timeline without frames, and list for each transition which frames it references."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec

FRAME = FrameSpec((1, 1))
ACTION = ActionSpec.from_space(200)


DISCOUNT = 0.9


@dataclass(eq=False)
class ListedStep:
    """A transition: its first frame and the steps of its return; reward and action identify it."""

    stream: int
    first: int
    start: int
    reward: float
    terminated: bool
    course: list[ListedStep]  # all steps of its episode, including this one
    n_step: int

    def __post_init__(self) -> None:
        self.place = len(self.course)
        self.course.append(self)

    @property
    def steps(self) -> list[ListedStep]:
        return self.course[self.place : self.place + self.n_step]

    @property
    def last(self) -> int:
        return self.start + len(self.steps)

    @property
    def total(self) -> np.float32:
        return np.float32(sum(DISCOUNT**power * step.reward for power, step in enumerate(self.steps)))

    @property
    def discount(self) -> np.float32:
        return np.float32(0.0 if self.steps[-1].terminated else DISCOUNT ** len(self.steps))

    def references(self, stream: int, first: int, before: int) -> bool:
        return self.stream == stream and self.first < before and self.last >= first


def evicted(timeline, evict: Callable[[], list[tuple[int, int, int]]]) -> list[tuple[int, int, int]]:
    """Call ``evict``, clear the unreferenced frames as after their eviction, and return them."""
    unreferenced_frames = evict()
    timeline.clear_unreferenced_frames()
    return unreferenced_frames


class PlayedTimeline:
    """A timeline with random episodes; ``steps`` lists every transition, by its number from 0."""

    def __init__(self, timeline, stack: int, seed: int) -> None:
        self.timeline, self.stack = timeline, stack
        self.random = np.random.default_rng(seed)
        count = timeline.num_streams
        self.newest, self.starts = [-1] * count, [0] * count
        self.courses: list[list[ListedStep]] = [[] for _ in range(count)]
        self.begun: list[list[int]] = [[] for _ in range(count)]  # by stream: positions of the episode starts
        self.steps: list[ListedStep] = []
        self.evicted: list[tuple[int, int, int]] = []  # all results of evict_for_staged
        self.begin(list(range(count)))

    def begin(self, streams: list[int]) -> None:
        if not streams:
            return
        assert self.timeline.begin(np.array(streams))
        for stream in streams:
            self.newest[stream] += 1
            self.starts[stream] = self.newest[stream]
            self.courses[stream] = []
            self.begun[stream].append(self.newest[stream])

    def play(self, num_steps: int, end_chance: float = 0.1) -> None:
        for _ in range(num_steps):
            streams = [stream for stream in range(len(self.newest)) if self.random.random() < 0.7]
            numbers = np.arange(len(self.steps), len(self.steps) + len(streams))
            terminated = self.random.random(len(streams)) < end_chance
            frames = np.zeros((len(streams), *FRAME.shape), FRAME.dtype)
            step = (numbers % 200, numbers.astype(np.float64), terminated, np.zeros(len(streams), bool), frames)
            assert self.timeline.stage(streams, *step)
            self.evicted += evicted(self.timeline, self.timeline.evict_for_staged)
            self.timeline.append_staged()
            for stream, number, has_ended in zip(streams, numbers.tolist(), terminated.tolist(), strict=True):
                start, course = self.newest[stream], self.courses[stream]
                first = max(self.starts[stream], start - self.stack + 1)
                step = ListedStep(stream, first, start, float(number), has_ended, course, self.timeline.n_step)
                self.newest[stream] += 1
                self.steps.append(step)
            self.begin([stream for stream, has_ended in zip(streams, terminated, strict=True) if has_ended])

    def numbers_of(self, indices: np.ndarray) -> list[int]:
        """Check all fields of these transitions, and return their numbers."""
        (streams, lasts, counts), (actions, rewards, *_) = self.timeline.resolve_steps(indices)
        numbers = rewards.astype(int).tolist()
        for row, number in enumerate(numbers):
            step = self.steps[number]
            expected = (step.stream, step.start + 1, step.start + 1 - step.first + 1, number % 200)
            assert expected == (streams[row], lasts[row], counts[row], actions[row]), f"transition {number}"
        self.check_transitions([self.steps[number] for number in numbers], self.timeline.resolve(indices))
        return numbers

    def check_transitions(self, steps: list[ListedStep], resolved) -> None:
        (streams, lasts, counts), (_, rewards, discounts, terminated, *_) = resolved
        expected = [(step.stream, step.last, step.last - step.first + 1) for step in steps]
        if self.timeline.n_step > 1:
            expected = [(step.stream, step.start, step.start - step.first + 1) for step in steps]
            expected += [(step.stream, step.last, self.num_frames(step.steps[-1])) for step in steps]
        assert expected == list(zip(streams.tolist(), lasts.tolist(), counts.tolist(), strict=True))
        assert [step.total for step in steps] == rewards.tolist()
        assert [step.discount for step in steps] == discounts.tolist()
        assert [step.steps[-1].terminated for step in steps] == terminated.tolist()

    def num_frames(self, step: ListedStep) -> int:
        """Number of frames of the next observation."""
        return min(step.place + 2, self.stack)

    def held_numbers(self) -> list[int]:
        """The numbers of all sampleable transitions, ordered by index."""
        self.timeline.check()
        return self.numbers_of(self.timeline.sampleable_indices())

    def whole_numbers(self) -> list[int]:
        """The numbers of all transitions ever that are not pending."""
        still_open = [
            id(course) for course, is_open in zip(self.courses, self.timeline.is_open, strict=True) if is_open
        ]
        return [
            number
            for number, step in enumerate(self.steps)
            if len(step.steps) == self.timeline.n_step or id(step.course) not in still_open
        ]
