"""True last frames of episodes, as vector environments hand them over with SAME_STEP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.envs.recording.frame_rows import take_row
from framestow.errors import InvalidStepError


def final_frames(infos: Mapping[str, Any], rows: npt.NDArray[np.intp]) -> dict[int, Any]:
    """Take the true last frame of each of ``rows``; no other row of ``final_obs`` is looked at.

    Gymnasium's array of objects with its mask will do, and so will ALE's dense array without one.

    Raises:
        InvalidStepError: one of them is not there.
    """
    final, is_told = infos.get("final_obs"), infos.get("_final_obs")
    told = np.full(rows.shape, final is not None) if is_told is None else np.asarray(is_told, np.bool_)[rows]
    untold = rows[~told]
    if untold.size:
        raise InvalidStepError(
            f"environments {untold.tolist()} have ended without final_obs: SAME_STEP must hand the last frame over in "
            "infos; give the environment's real autoreset_mode"
        )
    return {int(row): take_row(final, row) for row in rows}
