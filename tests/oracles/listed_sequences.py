"""Sequences out of plain lists: what follows on a step of a ``ListMemory``, as a batch must show it."""

from __future__ import annotations

import numpy as np

from oracles.list_memory import ListMemory


class ListedSequences:
    """The steps of an oracle in their environments' order, and which of them (by number) may be read."""

    def __init__(self, oracle: ListMemory, readable: set[int]) -> None:
        self.oracle, self.readable = oracle, readable
        self.sequences: dict[int, list[int]] = {}
        for number, step in enumerate(oracle.steps):
            self.sequences.setdefault(step.env_id, []).append(number)
        self.offset = {number: offset for sequence in self.sequences.values() for offset, number in enumerate(sequence)}

    def is_of_one_episode(self, number: int, later: int) -> bool:
        return self.oracle.steps[number].sequence is self.oracle.steps[later].sequence

    def following(self, number: int, length: int, borders: str) -> list[int]:
        sequence = self.sequences[self.oracle.steps[number].env_id]
        found = [number]
        for later in sequence[self.offset[number] + 1 :][: length - 1]:
            if later not in self.readable:
                break
            if borders != "cross" and not self.is_of_one_episode(number, later):
                break
            found.append(later)
        return found

    def episode_of(self, number: int) -> list[int]:
        """All steps of its episode, readable or not."""
        sequence = self.sequences[self.oracle.steps[number].env_id]
        return [other for other in sequence if self.is_of_one_episode(number, other)]

    def aligned(self, number: int, stride: int) -> int:
        """The last start at a multiple of ``stride`` of its episode; nearer where steps in between have left."""
        steps = self.episode_of(number)
        offset = steps.index(number)
        start = offset // stride * stride
        while any(other not in self.readable for other in steps[start:offset]):
            start += 1
        return steps[start]

    def whole_episodes(self) -> list[list[int]]:
        """Steps of each episode that has ended and of which every step may be read."""
        found = []
        for env_id, sequence in self.sequences.items():
            firsts = [number for number in sequence if self.oracle.steps[number].offset == 0]
            for first in firsts:
                steps = self.episode_of(first)
                newest = self.oracle.sequences[env_id]
                goes_on = self.oracle.is_open[env_id] and newest is self.oracle.steps[first].sequence
                if not goes_on and all(number in self.readable for number in steps):
                    found.append(steps)
        return found

    def fitting(self, length: int, stride: int = 1) -> list[int]:
        """Every start from which ``length`` steps of one episode may be read, at multiples of ``stride``."""
        return [
            number
            for number in sorted(self.readable)
            if len(self.following(number, length, "mask")) == length
            and self.aligned(number, stride) == number
            and self.oracle.steps[number].offset % stride == 0
        ]

    def assert_shows(self, batch, row: int, numbers: list[int]) -> None:
        """Row ``row`` of ``batch`` has exactly these steps, and nothing behind them."""
        oracle, count = self.oracle, len(numbers)
        steps = [oracle.steps[number] for number in numbers]
        length = batch.mask.shape[1]
        assert [True] * count + [False] * (length - count) == batch.mask[row].tolist()
        assert [step.offset == 0 for step in steps] == batch.is_first[row, :count].tolist()
        np.testing.assert_array_equal([step.action for step in steps], batch.action[row, :count])
        np.testing.assert_array_equal(np.float32([step.reward for step in steps]), batch.reward[row, :count])
        np.testing.assert_array_equal([step.terminated for step in steps], batch.terminated[row, :count])
        np.testing.assert_array_equal([step.truncated for step in steps], batch.truncated[row, :count])
        discounts = np.float32([0.0 if step.terminated else oracle.discount for step in steps])
        np.testing.assert_array_equal(discounts, batch.discount[row, :count])
        for offset, step in enumerate(steps):
            np.testing.assert_array_equal(oracle.stacked(step.run, step.start), batch.observation[row, offset])
            np.testing.assert_array_equal(oracle.stacked(step.next_run, step.end), batch.next_observation[row, offset])
        behind = slice(count, None)
        for column in (batch.action, batch.reward, batch.discount, batch.terminated, batch.truncated, batch.is_first):
            assert not column[row, behind].any()
        assert (batch.index[row, behind] == -1).all()
        newest_frames = batch.next_observation[row, behind, -1]
        assert not newest_frames.any()
