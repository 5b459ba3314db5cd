"""The frames of several environments, and the paddings of their stretches, in plain lists."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONTINUES, ZEROS, LEAD_INS, USUAL = range(4)  # the paddings of FrameStorage.append


class ListedStretches:
    """Every appended frame; a window is built from the frames that a person would write down."""

    def __init__(self, num_envs: int) -> None:
        self.frames: list[list[NDArray[Any]]] = [[] for _ in range(num_envs)]
        self.older: list[dict[int, list[NDArray[Any]]]] = [{} for _ in range(num_envs)]  # by a stretch's first position
        self.stored: list[set[int]] = [set() for _ in range(num_envs)]

    def append(self, env_id: int, frame: NDArray[Any], padding: int, lead_ins: NDArray[Any]) -> None:
        position = len(self.frames[env_id])
        if padding == LEAD_INS and len(lead_ins):
            self.older[env_id][position] = list(lead_ins)
        elif padding == ZEROS and len(lead_ins):
            self.older[env_id][position] = [np.zeros_like(frame)]
        self.frames[env_id].append(frame)
        self.stored[env_id].add(position)

    def window(self, env_id: int, last: int, count: int, length: int, padding: str) -> NDArray[Any]:
        first = last - count + 1
        shown = self.frames[env_id][first : last + 1]
        usual = [np.zeros_like(shown[0]) if padding == "zeros" else shown[0]]
        older = self.older[env_id].get(first, usual)
        padded = [older[0]] * length + older
        return np.stack(padded[len(padded) - (length - count) :] + shown)

    def has(self, env_id: int, last: int, count: int) -> bool:
        return set(range(last - count + 1, last + 1)) <= self.stored[env_id]

    def copy(self) -> ListedStretches:
        return copy.deepcopy(self)
