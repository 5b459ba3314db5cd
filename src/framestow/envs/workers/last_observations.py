"""The last received observation of each environment of a ``WorkerVectorEnv``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.envs.workers.shared_arrays import SharedArrays


class LastObservations:
    """The last received observation of each environment.

    It is copied from the shared arrays when an answer arrives. So a worker that dies while it writes leaves it intact.
    """

    def __init__(self, shared: SharedArrays, num_envs: int) -> None:
        self._shared = shared
        # The copies, one array for each part of an observation, ``(num_envs, *shape)``; a worker never writes to them.
        self._arrays = [array.copy() for array in shared.observations]
        self._views = [_read_only(array) for array in self._arrays]  # the same arrays, for callers that take no copies
        self._others: list[list[Any]] = [[]] * num_envs  # parts without an array
        self._is_known = [False] * num_envs  # by environment: it was reset, or its observation restored

    def receive(self, env_ids: Sequence[int], each_others: Sequence[list[Any]] | None) -> None:
        """Copy the observations of ``env_ids``; ``each_others`` has their parts without an array."""
        for to, source in zip(self._arrays, self._shared.observations, strict=True):
            for env_id in env_ids:
                to[env_id] = source[env_id]
        for row, env_id in enumerate(env_ids):
            self._is_known[env_id] = True
            if each_others is not None:
                self._others[env_id] = each_others[row]

    def receive_all(self) -> None:
        """Copy the observations of all environments, which consist of arrays and are known already."""
        for to, source in zip(self._arrays, self._shared.observations, strict=True):
            np.copyto(to, source)

    def restore(self, env_id: int, observation: Any) -> None:
        """Set an observation from a saved state; ``None`` changes nothing."""
        if observation is not None:
            self.receive([env_id], [self._shared.write(env_id, observation)])

    def of(self, env_id: int) -> Any:
        """Return a copy of the observation of an environment; ``None`` before the first reset."""
        if not self._is_known[env_id]:
            return None
        return self._shared.parts.join([np.copy(rows[env_id])[()] for rows in self._arrays], self._others[env_id])

    def of_all(self, copies: bool) -> Any:
        """Return the observations of all environments: copies, or views that the next step overwrites."""
        arrays = [array.copy() for array in self._arrays] if copies else self._views
        return self._shared.parts.join(arrays, self._shared.parts.batch_others(self._others))


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
