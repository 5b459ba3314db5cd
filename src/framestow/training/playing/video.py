"""Writes a game as a video."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from framestow.envs import FinishedGame
from framestow.errors import InvalidSettingsError
from framestow.training.playing.player import Player

ENDINGS = (".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".wmv")  # that ffmpeg writes by itself


def check_video_path(path: Path) -> None:
    """Raise ``InvalidSettingsError`` where ``path`` has no video's ending, no folder, or is one."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidSettingsError(
            f"output is {path}: a video's name must end in one of {' '.join(ENDINGS)}; "
            f"give --output {path.with_suffix('.mp4')}"
        )
    if not path.parent.is_dir():
        raise InvalidSettingsError(
            f"output is {path}: there is no folder {path.parent}; make it, or give another --output"
        )
    if path.is_dir():
        raise InvalidSettingsError(f"output is {path}: that is a folder; give the name of a file in it with --output")


def record_game(
    player: Player, path: Path, scale: int, max_steps: int | None, notice: Callable[[int], None]
) -> tuple[int, FinishedGame | None]:
    """Write the first game that ``player``, of one environment with ``render_mode="rgb_array"``, plays to ``path``.

    One picture an agent step at the speed of the console, each pixel a square of ``scale``. Stops at ``max_steps``.
    ``notice`` is called with the number of agent steps after each. The file appears when it is whole. Returns the
    agent steps shown, and the game if it ended.
    """
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    game: FinishedGame | None = None
    num_steps = 0
    writer: Any = None
    try:
        partial.touch()  # where the system refuses, it says why; ffmpeg's pipe only breaks
        for num_steps, games in enumerate(player.steps(), start=1):
            picture = _upscaled(_picture(player), scale)
            if writer is None:
                writer = _opened(partial, picture, float(player.env.metadata.get("render_fps", 15)))
            writer.send(np.ascontiguousarray(picture))
            notice(num_steps)
            game = games[0] if games else None
            if game or num_steps == max_steps:
                break
        writer.close()
        writer = None
        partial.replace(path)
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)
    return num_steps, game


def _opened(path: Path, picture: NDArray[np.uint8], frames_per_second: float) -> Any:
    height, width, _ = picture.shape
    writer = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=frames_per_second, macro_block_size=2, quality=7, ffmpeg_log_level="error"
    )
    writer.send(None)
    return writer


def _picture(player: Player) -> NDArray[np.uint8]:
    pictures = player.env.render()
    if not pictures:
        raise ValueError("the environment renders nothing: make it with render_mode='rgb_array'")
    return np.asarray(pictures[0], np.uint8)


def _upscaled(picture: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    return picture.repeat(times, axis=0).repeat(times, axis=1)
