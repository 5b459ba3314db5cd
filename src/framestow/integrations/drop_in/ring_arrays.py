"""The arrays that other libraries' ring buffers have, made of a memory where somebody asks for them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.integrations.drop_in.held_observations import HeldObservations
from framestow.integrations.drop_in.paired_steps import PairedSteps

Array = npt.NDArray[Any]


class RingArrays:
    """What ``steps`` hold, as arrays ``(num_rows, num_envs, ...)`` of a ring: its row R % num_rows is row R of them.

    None can be written to. Where there is nothing yet they are zeros.
    """

    def __init__(self, steps: PairedSteps, num_rows: int) -> None:
        self.steps, self.num_rows = steps, num_rows

    @property
    def num_held(self) -> int:
        """How many rows of the ring hold something."""
        return min(self.steps.num_rows, self.num_rows)

    def indices(self, rows: npt.ArrayLike, streams: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Give the memory's indices of steps in these rows of the ring and streams, which broadcast."""
        newest = self.steps.num_rows - 1
        return self.steps.indices(newest - (newest - np.asarray(rows)) % self.num_rows, streams)

    def observations(self, name: str, frames: Any) -> Any:
        """Give ``HeldObservations`` of ``"observation"`` or ``"next_observation"``, or a dict of them.

        ``frames``: a ``FrameSpec`` of whole observations, or a dict of such.
        """

        def unpacked(rows: Array, streams: Array, key: str | None = None) -> Array:
            observations = getattr(self.steps.transitions(self.indices(rows, streams)), name)
            return np.asarray(observations if key is None else observations[key])

        axes = self.num_rows, self.steps.memory.num_envs
        if isinstance(frames, dict):
            return {
                key: HeldObservations(partial(unpacked, key=key), self.num_held, (*axes, *frame.shape), frame.dtype)
                for key, frame in frames.items()
            }
        return HeldObservations(unpacked, self.num_held, (*axes, *frames.shape), frames.dtype)

    def column(self, name: str, dtype: npt.DTypeLike = np.float32, shape: tuple[int, ...] = ()) -> Array:
        """Give a new array of what steps carry, by its name in ``HeldSteps``; ``shape``: of one step's."""
        num_envs, rows = self.steps.memory.num_envs, np.arange(self.num_held)
        array = np.zeros((self.num_rows, num_envs, *shape), dtype)
        indices = self.indices(rows[:, None], np.arange(num_envs))
        if rows.size:
            column = getattr(self.steps.memory.steps_from(indices.ravel()), name)
            array[rows] = column.reshape(*indices.shape, *shape)
        array.flags.writeable = False
        return array

    def dones(self) -> Dones:
        """Give a new array of ``float32``, 1 where an episode ended, which can be told that the newest step was cut."""
        array = np.maximum(self.column("terminated"), self.column("truncated")).view(Dones)
        array.steps, array.newest_row = self.steps, (self.steps.num_rows - 1) % self.num_rows
        return array


class Dones(npt.NDArray[np.float32]):
    """Where episodes ended. ``dones[newest row] = True`` lets the next step of each stream begin an episode.

    So libraries say that they reset environments in the midst of episodes. No flag changes by it: the step's next
    observation is held, and it bootstraps from that. Raises ``InvalidSettingsError`` for anything else that is set.
    """

    steps: PairedSteps | None = None
    newest_row: int = -1

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.steps is None or np.ndim(key) or key != self.newest_row or not np.all(value):
            raise InvalidSettingsError(
                f"dones[{key!r}] is set to {value!r}: steps stay as they came; only of the newest row, "
                f"{self.newest_row}, can be said that its episodes were cut"
            )
        self.steps.begin_anew()
