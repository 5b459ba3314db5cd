"""Pairs of an observation and the next one, as other libraries feed their buffers, become the steps of a memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import (
    ObservationLayout,
    layouts_of_depth,
    layouts_to_try,
)
from framestow.integrations.drop_in.stacked_feed import PairedStep, StackedFeed
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory

MakeMemory: TypeAlias = Callable[[Any, int, StackPadding], ReplayMemory]
"""Makes a buffer's memory, given its observation space, stack and padding, with all else as the buffer has it. It must
hold whole rows: retention ``"fifo"``, no budget, ``n_step`` 1, a capacity that is a multiple of the streams."""

ROWS_AT_ONCE = 64  # are read together where a memory is made anew

_log = logging.getLogger(__name__)


class PairedSteps:
    """Feeds a memory with (observation, next observation), keeping every frame once.

    Other libraries give their buffers both observations of a step, each a whole stack. Here a step's observation is
    compared, bit for bit, with the next observation of the step before it. Where they differ an episode begins, whether
    or not the library told that the one before had ended (CleanRL does not tell a truncation: its issue 460). Of each
    next observation only the newest frame is stored.

    How observations are stacked, and what pads the first ones, shows in the steps. The layout that takes the fewest
    bytes is tried first. Where a step contradicts it, the memory is made anew under the next one, with all that it
    holds (``layouts_to_try``); the last one keeps whole observations, which fits any step. So what is given back is bit
    for bit what came. This happens at the first step, or at a beginning of an episode soon after it.

    A *row* is one call of ``add``, a step of each stream; rows are numbered from 0, and the newest are held.
    """

    def __init__(
        self,
        make_memory: MakeMemory,
        space: Any,
        frame_stack: int | None = None,
        layouts: Sequence[ObservationLayout] = (),
    ) -> None:
        """``frame_stack``: frames of an observation, ``None`` finds out; ``InvalidSettingsError`` if it cannot be.

        ``layouts`` are tried in its place, where a library settles how observations are stacked.
        """
        self._make_memory, self._frame_stack = make_memory, frame_stack
        self._layouts = list(layouts) or (
            layouts_to_try(space) if frame_stack is None else layouts_of_depth(space, frame_stack)
        )
        self._feed = self._fed(self._layouts[0], 0)

    @property
    def memory(self) -> ReplayMemory:
        """What holds the steps; another one after a step that contradicted the layout."""
        return self._feed.memory

    @property
    def layout(self) -> ObservationLayout:
        """How observations are stacks of the memory's frames."""
        return self._feed.layout

    @property
    def num_rows(self) -> int:
        """How many rows came, and so the number of the next one."""
        return self._feed.num_rows

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return self._feed.oldest_row

    @property
    def episode_rows(self) -> npt.NDArray[np.int64]:
        """The row with which each stream's newest episode began, ``(num_envs,)``, where it is held."""
        return self._feed.episode_rows

    def add(
        self,
        observations: Any,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        next_observations: Any,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of every stream.

        ``observations``, ``next_observations``: ``(num_envs, *shape)``, of the space's dtype; copied. The others are
        those of ``ReplayMemory.append``. Raises ``InvalidStepError`` before the step is stored.
        """
        step = PairedStep(observations, actions, rewards, terminated, truncated, next_observations, extras)
        if not self._feed.add(step):
            self._lay_out_anew(step)

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of the steps in these rows and streams, which broadcast."""
        return self._feed.indices(rows, streams)

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Give the transitions with these indices, ``(n,)``, observations as they came, ``(n, *shape)``.

        Raises ``NothingToSampleError`` for one that is not held.
        """
        return self._feed.transitions(indices)

    def as_came(self, batch: Batch) -> Batch:
        """Give a batch that the memory made with observations as they came."""
        return self._feed.as_came(batch)

    def begin_anew(self) -> None:
        """Let the next step of every stream begin an episode, whatever its observation is."""
        self._feed.begin_anew()

    def _fed(self, layout: ObservationLayout, first_row: int) -> StackedFeed:
        return StackedFeed(layout, self._make_memory(layout.frame_space, layout.depth, layout.padding), first_row)

    def _lay_out_anew(self, step: PairedStep) -> None:
        """Take the first layout that explains this step and all that is held."""
        old = self._feed
        for layout in self._layouts[self._layouts.index(old.layout) + 1 :]:
            feed = self._fed(layout, old.oldest_row)
            if _take_over(old, feed) and feed.add(step):
                if old.num_rows:
                    _tell(old, layout)
                self._feed = feed
                return
        raise InvalidStepError(
            f"row {old.num_rows}: the observations are not stacks of {self._frame_stack} frames, each the one before "
            "it moved on by a frame, or the padded beginning of an episode; leave frame_stack out: then whole "
            "observations are kept if need be"
        )


def _tell(old: StackedFeed, layout: ObservationLayout) -> None:
    """Log that memory is made anew: as a warning where it takes more bytes from now on."""
    level = logging.WARNING if layout.depth < old.layout.depth else logging.INFO
    message = "row %d is no stack of %d frames as those before it: memory made anew for stacks of %d, padding %s"
    _log.log(level, message, old.num_rows, old.layout.depth, layout.depth, layout.padding)


def _take_over(old: StackedFeed, new: StackedFeed) -> bool:
    """Feed ``new`` with all rows of ``old``; give ``False`` where its layout does not explain them."""
    num_envs = old.memory.num_envs
    for first in range(old.oldest_row, old.num_rows, ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, old.num_rows))
        batch = old.transitions(old.indices(rows[:, None], np.arange(num_envs)).ravel())
        for row in range(len(rows)):
            if not new.add(_row_of(batch, slice(row * num_envs, (row + 1) * num_envs))):
                return False
    new.begin_anew_as(old)
    return True


def _row_of(batch: Batch, at: slice) -> PairedStep:
    observation, next_observation = (
        map_arrays(lambda part: part[at], part) for part in (batch.observation, batch.next_observation)
    )
    extras = {name: column[at] for name, column in batch.extras.items()} if batch.extras else None
    return PairedStep(
        observation,
        batch.action[at],
        batch.reward[at],
        batch.terminated[at],
        batch.truncated[at],
        next_observation,
        extras,
    )
