"""What a slot holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.replay.action_spec import ActionSpec


def slot_record(num_streams: int, action: ActionSpec) -> np.dtype[Any]:
    """Fields of one slot, one behind the other, as the native ring reads and writes them.

    ========  =========  =====================================================================
    field     bytes      meaning
    ========  =========  =====================================================================
    position  4          low 32 bits of the position that the step started at
    reward    4          ``float32``
    flags     1          bit 0: the episode terminated; bit 1: it was truncated
    history   1          frames of the observation before its newest one, padding not counted
    stream    1, 2 or 4  whose step it is
    action    as given   counted actions in the narrowest integer that holds their range
    ========  =========  =====================================================================

    >>> slot_record(8, ActionSpec.from_space(18)).itemsize
    12
    """
    stream = np.uint8 if num_streams <= 2**8 else np.uint16 if num_streams <= 2**16 else np.uint32
    return np.dtype(
        [
            ("position", np.uint32),
            ("reward", np.float32),
            ("flags", np.uint8),
            ("history", np.uint8),
            ("stream", stream),
            ("action", action.stored_dtype, action.shape),
        ]
    )
