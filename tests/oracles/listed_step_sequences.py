"""Sequences of steps, computed from plain lists of all played steps."""

from __future__ import annotations

import itertools
import math

from oracles.listed_steps import PlayedSteps


class ListedStepSequences:
    """The steps of a ``PlayedSteps`` by environment and position, and the numbers of the readable ones."""

    def __init__(self, played: PlayedSteps, readable: set[int]) -> None:
        self.played, self.readable = played, readable
        self.number_at = {(step.env_id, step.last - 1): number for number, step in enumerate(played.steps)}

    def position_of(self, number: int) -> tuple[int, int]:
        step = self.played.steps[number]
        return step.env_id, step.last - 1

    def start_of(self, number: int) -> int:
        env_id, position = self.position_of(number)
        return max(start for start in self.played.begun[env_id] if start <= position)

    def following(self, number: int, length: int, crosses: bool) -> list[int]:
        """The numbers of the steps from ``number`` on, up to the first unreadable one."""
        found = [number]
        while len(found) < length:
            env_id, position = self.position_of(found[-1])
            next_number = self.number_at.get((env_id, position + 1))
            if next_number is None and crosses:
                later = (start for start in self.played.begun[env_id] if start > position)
                stepped = (self.number_at[env_id, start] for start in later if (env_id, start) in self.number_at)
                next_number = next(stepped, None)
            if next_number not in self.readable:
                break
            found.append(next_number)
        return found

    def aligned(self, number: int, stride: int) -> int:
        """The last multiple of ``stride`` steps after the episode's start, or the first step of the readable span."""
        env_id, position = self.position_of(number)
        start = self.start_of(number)
        for wanted in range(position, start + (position - start) // stride * stride - 1, -1):
            if self.number_at[env_id, wanted] not in self.readable:
                break
            number = self.number_at[env_id, wanted]
        return number

    def episodes(self) -> list[tuple[bool, list[int]]]:
        """For each episode with steps: whether it has ended, and the numbers of its steps."""
        found = []
        for env_id, begun in enumerate(self.played.begun):
            for start, following in itertools.zip_longest(begun, begun[1:]):
                stop = self.played.newest[env_id] if following is None else following - 1
                numbers = [self.number_at[env_id, position] for position in range(start, stop)]
                has_ended = following is not None or not self.played.step_store.is_open[env_id]
                if numbers:
                    found.append((has_ended, numbers))
        return found

    def spans(self) -> list[tuple[int, int, int, bool, bool, int]]:
        """Environment, position, length, is whole, is open, and episode start of each span of readable steps."""
        found = []
        for has_ended, numbers in self.episodes():
            for is_readable, group in itertools.groupby(numbers, lambda number: number in self.readable):
                part = list(group)
                if is_readable:
                    is_whole = has_ended and len(part) == len(numbers)
                    is_open = not has_ended and part[-1] == numbers[-1]
                    found.append((*self.position_of(part[0]), len(part), is_whole, is_open, self.start_of(part[0])))
        return sorted(found)

    def return_to_go(self, number: int, discount: float) -> float:
        """Discounted sum in double precision, from the last step; NaN unless all steps to the end are readable."""
        numbers = next(numbers for _, numbers in self.episodes() if number in numbers)
        rest = numbers[numbers.index(number) :]
        if any(later not in self.readable for later in rest):
            return math.nan
        total = 0.0
        for later in reversed(rest):
            total = self.played.steps[later].reward + discount * total
        return total
