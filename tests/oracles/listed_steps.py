"""Plays a timeline without frames, and keeps in a list what each of its transitions looks at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.action_spec import ActionSpec

FRAME = FrameSpec((1, 1))
ACTION = ActionSpec.from_space(200)


@dataclass
class ListedStep:
    """A transition by its first and last frame; reward and action say which it is."""

    stream: int
    first: int
    last: int
    reward: float

    def looks_at(self, stream: int, first: int, before: int) -> bool:
        return self.stream == stream and self.first < before and self.last >= first


class PlayedTimeline:
    """A timeline that random episodes are played on; ``steps`` has every transition, by its number from 0."""

    def __init__(self, timeline, stack: int, seed: int) -> None:
        self.timeline, self.stack = timeline, stack
        self.random = np.random.default_rng(seed)
        count = timeline.num_streams
        self.newest, self.starts = [-1] * count, [0] * count
        self.steps: list[ListedStep] = []
        self.left: list[tuple[int, int, int]] = []  # triples of make_room, all of them
        self.begin(list(range(count)))

    def begin(self, streams: list[int]) -> None:
        if not streams:
            return
        assert self.timeline.begin(np.array(streams))
        for stream in streams:
            self.newest[stream] += 1
            self.starts[stream] = self.newest[stream]

    def play(self, num_steps: int, end_chance: float = 0.1) -> None:
        for _ in range(num_steps):
            streams = [stream for stream in range(len(self.newest)) if self.random.random() < 0.7]
            numbers = np.arange(len(self.steps), len(self.steps) + len(streams))
            terminated = self.random.random(len(streams)) < end_chance
            frames = np.zeros((len(streams), *FRAME.shape), FRAME.dtype)
            step = (numbers % 200, numbers.astype(np.float64), terminated, np.zeros(len(streams), bool), frames)
            assert self.timeline.stage(streams, *step)
            self.left += self.timeline.make_room()
            self.timeline.append_staged()
            for stream, number in zip(streams, numbers.tolist(), strict=True):
                first = max(self.starts[stream], self.newest[stream] - self.stack + 1)
                self.newest[stream] += 1
                self.steps.append(ListedStep(stream, first, self.newest[stream], float(number)))
            self.begin([stream for stream, has_ended in zip(streams, terminated, strict=True) if has_ended])

    def numbers_of(self, indices: np.ndarray) -> list[int]:
        """Which transitions these are, after a look at whether everything about them is right."""
        (streams, lasts, counts), (actions, rewards, *_) = self.timeline.resolve(indices)
        numbers = rewards.astype(int).tolist()
        for row, number in enumerate(numbers):
            step = self.steps[number]
            expected = (step.stream, step.last, step.last - step.first + 1, number % 200)
            assert expected == (streams[row], lasts[row], counts[row], actions[row]), f"transition {number}"
        return numbers

    def held_numbers(self) -> list[int]:
        """The numbers of all transitions that may be drawn, by their index."""
        self.timeline.check()
        return self.numbers_of(self.timeline.held_indices())
