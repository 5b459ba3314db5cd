"""What a look-up of stored steps returns, by name. Native code imports and fills both classes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Windows(NamedTuple):
    """Positions of the frames of some steps, as ``FrameStorage.windows`` takes them."""

    env_ids: npt.NDArray[np.int32]
    last_positions: npt.NDArray[np.int64]  # of the newest frame of each window
    counts: npt.NDArray[np.int32]  # of frames, without padding


class StepFields(NamedTuple):
    """The other fields of some steps, named as those of a ``Batch``; ``extras`` is empty unless it is asked for."""

    action: npt.NDArray[Any]  # int64 if actions are counted
    reward: npt.NDArray[np.float32]
    discount: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    extras: dict[str, npt.NDArray[Any]]
