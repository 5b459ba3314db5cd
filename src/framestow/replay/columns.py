"""What a transition carries besides frames: action, reward, how it ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from framestow.replay.action_spec import ActionSpec

TERMINATED, TRUNCATED = np.uint8(1), np.uint8(2)  # bits of the flag column

Slots = slice | npt.NDArray[np.int64]


class Columns:
    """One ring a quantity, a place a slot: action, reward (``float32``) and both flags in one byte."""

    def __init__(self, capacity: int, action_spec: ActionSpec) -> None:
        self.action = np.zeros((capacity, *action_spec.shape), action_spec.stored_dtype)
        self.reward = np.zeros(capacity, np.float32)
        self.flags = np.zeros(capacity, np.uint8)

    @property
    def bytes_per_slot(self) -> int:
        """Bytes that a slot takes in all columns."""
        return sum(column.nbytes // len(column) for column in (self.action, self.reward, self.flags))

    def write(
        self,
        slots: Slots,
        actions: npt.NDArray[np.generic],
        rewards: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
    ) -> None:
        """Write one step for each of ``slots``."""
        self.action[slots] = actions
        self.reward[slots] = rewards
        self.flags[slots] = terminated * TERMINATED + truncated * TRUNCATED

    def state(self, slots: Slots) -> dict[str, npt.NDArray[np.generic]]:
        """The columns of ``slots``, in their order."""
        return {"action": self.action[slots], "reward": self.reward[slots], "flags": self.flags[slots]}

    def restore(self, slots: Slots, state: dict[str, npt.NDArray[np.generic]]) -> None:
        """Write back what ``state`` gave."""
        self.action[slots], self.reward[slots], self.flags[slots] = state["action"], state["reward"], state["flags"]
