"""Streams that step together, their observations in one memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import ObservationSpec, map_arrays
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import ObservationLayout, layouts_of_depth, layouts_to_try
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.replay.memory import ReplayMemory

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Pair = tuple[Any, Any]
"""Observations and next observations: an array ``(n, ...)``, or dicts of them made like the observation."""


class Step(NamedTuple):
    """One step of some streams: observations ``(num_envs, *shape)``, the next ones perhaps not known."""

    observation: Any
    next_observation: Any | None
    terminated: Flags
    truncated: Flags

    def of(self, streams: Any) -> Step:
        """The same step of some of its streams, copied."""

        def taken(part: Any) -> Any:
            return None if part is None else map_arrays(lambda array: array[streams].copy(), part)

        return Step(taken(self[0]), taken(self[1]), taken(self[2]), taken(self[3]))


@dataclass(frozen=True)
class LaneSettings:
    """What a lane is made by: see ``ObservationStore``."""

    space: Any
    size: int
    stack: int
    frame_stack: int | None
    threads: int
    storage: str
    num_envs: int

    def __call__(self, space: Any, depth: int, padding: StackPadding) -> ReplayMemory:
        """Make a memory of ``size`` steps of each stream; they have observations and flags alone."""
        return ReplayMemory(
            self.size * self.num_envs,
            space,
            1,
            stack=max(depth, self.stack),
            stack_padding=padding,
            num_envs=self.num_envs,
            seed=0,  # nothing is ever drawn: the library draws
            threads=self.threads,
            storage=self.storage,
        )


class Lane:
    """Observations of streams that step together: in every step all of them, or none.

    A step of all of them is a *row*; rows are numbered from ``first_row``. Where ``settings.stack`` is more than 1 the
    streams give single frames, and observations are stacks of so many of them. Otherwise they are what came.

    A row whose next observations did not come waits until those of the next row tell them. While it waits, and where
    its episode ended, nobody knows them: the observation stands for them, as in Tianshou, its newest frame repeated.
    """

    def __init__(
        self, settings: LaneSettings, first_row: int = 0, first_layout: ObservationLayout | None = None
    ) -> None:
        self._settings, self._first_row = settings, first_row
        self._steps = PairedSteps(settings, settings.space, layouts=_layouts(settings, first_layout))
        self._waiting: Step | None = None

    @property
    def memory(self) -> ReplayMemory:
        """What holds the rows."""
        return self._steps.memory

    @property
    def num_rows(self) -> int:
        """Number of the row that comes next."""
        return self._first_row + self._steps.num_rows + (self._waiting is not None)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return self._first_row + self._steps.oldest_row

    def add(self, step: Step) -> None:
        """Store a row; raises ``InvalidStepError`` before it is stored."""
        if self._waiting is not None:
            self._feed(self._waiting._replace(next_observation=self._following(self._waiting, step.observation)))
            self._waiting = None
        if step.next_observation is None:
            self._waiting = step.of(np.s_[:])
        else:
            self._feed(step)

    def pairs(self, rows: Indices, streams: Indices) -> Pair:
        """Give the observations and next observations of these rows and streams, ``(n,)`` each, all of them held."""
        if self._waiting is None or not (waits := rows == self.num_rows - 1).any():
            return self._held_pairs(rows, streams)
        shown = map_arrays(lambda part: part[streams[waits]], self._shown())
        if waits.all():
            return shown, shown
        held = self._held_pairs(rows[~waits], streams[~waits])
        merged = [map_arrays(lambda now, part: _merged(waits, now, part), shown, each) for each in held]
        return merged[0], merged[1]

    def alone(self, stream: int) -> Lane:
        """Give a lane of its own to one of the streams, with all that it has here under the same numbers."""
        oldest = self._steps.oldest_row
        rows = np.arange(oldest, self._steps.num_rows)
        lane = Lane(replace(self._settings, num_envs=1), self._first_row + oldest, self._steps.layout)
        for first in range(0, len(rows), 64):
            indices = self._steps.indices(rows[first : first + 64], stream)
            batch = self.memory.get(indices)
            lane._take(batch.observation, batch.next_observation, batch.terminated, batch.truncated, self)
        lane._waiting = None if self._waiting is None else self._waiting.of([stream])
        return lane

    def _take(self, observation: Any, next_observation: Any, terminated: Flags, truncated: Flags, old: Lane) -> None:
        """Store what another lane's memory gave of one stream, ``(n, stack, *frame)`` each."""
        if not self._steps.num_rows:
            self._take_history(observation, old)
        came, came_next = map(old._steps.layout.as_came, (observation, next_observation))
        for at in range(len(terminated)):
            one = np.s_[at : at + 1]
            self._feed(Step(came, came_next, terminated, truncated).of(one))

    def _take_history(self, observation: Any, old: Lane) -> None:
        """Store the frames before the first step that is taken over, as steps that nobody has a number of."""
        depth = old.memory.stack
        for shown in range(1, depth):
            windows = [
                map_arrays(lambda part, n=n: _padded(part[:1], n, old._steps.layout.padding), observation)
                for n in (shown, shown + 1)
            ]
            ongoing = np.zeros(1, bool)
            before, after = map(old._steps.layout.as_came, windows)
            self._feed(Step(before, after, ongoing, ongoing))
        self._first_row -= depth - 1

    def _feed(self, step: Step) -> None:
        nothing = np.zeros(self._settings.num_envs)
        self._steps.add(
            step.observation, nothing.astype(int), nothing, step.terminated, step.truncated, step.next_observation
        )

    def _held_pairs(self, rows: Indices, streams: Indices) -> Pair:
        batch = self.memory.get(self._steps.indices(rows - self._first_row, streams))
        if self._settings.stack > 1:
            return batch.observation, batch.next_observation
        layout = self._steps.layout
        return layout.as_came(batch.observation), layout.as_came(batch.next_observation)

    def _following(self, waiting: Step, observation: Any) -> Any:
        """The next observation of each stream of a row that waited: the one that has come, unless its episode ended."""
        ended = waiting.terminated | waiting.truncated
        return map_arrays(
            lambda own, next_: _merged(ended, own[ended], next_[~ended]), self._moved_on(waiting), observation
        )

    def _moved_on(self, waiting: Step) -> Any:
        """The observation moved on by its newest frame, which any layout can have for a next one."""
        layout = self._steps.layout
        stacks = layout.stacks_of(layout.arrays_of(waiting.observation, self._settings.num_envs))
        moved = [np.concatenate([part[:, 1:], part[:, -1:]], 1) for part in stacks]
        return layout.as_came(layout.spec.arranged(moved) if isinstance(layout.spec, ObservationSpec) else moved[0])

    def _shown(self) -> Any:
        """The observation of the row that waits, of every stream."""
        assert self._waiting is not None
        came = self._waiting.observation
        if self._settings.stack == 1:
            return came
        goes_on = self.memory.open_episodes
        begun = map_arrays(lambda part: np.repeat(part[:, None], self._settings.stack, 1), came)
        return map_arrays(
            lambda new, now: _merged(goes_on, now[goes_on], new[~goes_on]), begun, self.memory.observations()
        )


def _layouts(settings: LaneSettings, first: ObservationLayout | None) -> list[ObservationLayout]:
    """How observations may be stacks, in the order in which that is tried."""
    depth = 1 if settings.stack > 1 else settings.frame_stack
    layouts = list(layouts_to_try(settings.space) if depth is None else layouts_of_depth(settings.space, depth))
    return sorted(layouts, key=lambda layout: layout != first)


def _merged(at: Flags, these: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give one array with ``these`` where ``at`` holds, and ``others`` elsewhere."""
    merged = np.empty((len(at), *these.shape[1:]), these.dtype)
    merged[at], merged[~at] = these, others
    return merged


def _padded(stack: npt.NDArray[Any], num_frames: int, padding: StackPadding) -> npt.NDArray[Any]:
    """Give stacks ``(n, depth, *frame)`` as they were when only the first ``num_frames`` of their frames were there."""
    depth = stack.shape[1]
    padded = np.empty_like(stack)
    padded[:, depth - num_frames :] = stack[:, :num_frames]
    padded[:, : depth - num_frames] = stack[:, :1] if padding == "first_frame" else 0
    return padded
