"""Draw one transition as a PNG picture: the frames of the observation and of the next observation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import ArraySpec, FrameSpec
from framestow.frames.observation_spec import AnySpec
from framestow.lazy_names import missing_extra
from framestow.replay.batch import Batch
from framestow.replay.inspection import DrawnTransition

try:
    from PIL import Image, ImageDraw, ImageFont
except ModuleNotFoundError as missing:
    raise missing_extra("the picture of a transition", missing.name, "pictures") from missing

MAX_SHOWN = 6  # newest frames of an observation; more would be too small to recognise
FRAME_SIDE = 192  # pixels; largest side of an enlarged frame
STRIP_WIDTH = 1_560  # pixels; total width of all frames, larger frames are shrunk
BAR_HEIGHT, BARS_WIDTH = 96, 128  # pixels; height and total width of the bars of a vector
# Pixels; around everything, between frames, between observations, of a line of text.
MARGIN, GAP, GROUP_GAP, LINE = 16, 4, 28, 26
FONT_SIZE, SMALL_FONT_SIZE = 18, 14  # pixels
BACKGROUND, INK, PALE, ALARM, BORDER = (24, 26, 30), (236, 236, 236), (150, 154, 162), (255, 120, 100), (90, 94, 102)


def write_filmstrip(path: Path, drawn: DrawnTransition, spec: AnySpec, label: str, key: str = "") -> None:
    """Draw a transition into the PNG file ``path`` and create its folder if needed.

    ``key`` selects the array of an observation with several; empty takes the largest picture. Raises
    ``InvalidSettingsError`` for an unknown key.
    """
    array, batch = choose_array(spec, key), drawn.batch
    observation, next_observation = array.of(batch.observation), array.of(batch.next_observation)
    stack = observation.shape[1]
    shown = min(stack, MAX_SHOWN)
    groups = observation[0, -shown:], next_observation[0, -shown:]
    pictures, scale_note = frame_pictures(np.concatenate(groups), array.frame)
    label = f"{label}, {array.key}" if array.key else label
    tiles = [_tile(picture, 2 * shown) for picture in pictures]
    captions = _captions(stack, shown, drawn.num_padded, drawn.num_steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    _draw_strip(tiles, captions, _headlines(batch, label, drawn.env_id, stack, shown, scale_note)).save(path, "PNG")


def choose_array(spec: AnySpec, key: str) -> ArraySpec:
    """Return the array named ``key``; for an empty key the largest picture, or the largest vector if there is none."""
    arrays = spec.arrays
    named = [array for array in arrays if array.key == key] if key else arrays
    if not named:
        keys = ", ".join(array.key for array in arrays if array.key) or "one array without a key"
        raise InvalidSettingsError(f"key is {key!r}: the observations have {keys}; give another --key, or none")
    return max(named, key=lambda array: (len(array.frame.shape) > 1, array.frame.nbytes))


def frame_pictures(frames: npt.NDArray[Any], spec: FrameSpec) -> tuple[npt.NDArray[np.uint8], str]:
    """Return ``frames``, ``(n, *spec.shape)``, as pictures, and a note about their scale ("" for unscaled pixels).

    Pictures are ``(n, height, width)`` or ``(n, height, width, 3)``:

    ==============================  ==========================================================
    frame                           picture
    ==============================  ==========================================================
    (H, W), (H, W, 1), (1, H, W)    grey
    (H, W, 3), (3, H, W)            colour
    (H, W, 2 or 4)                  channels side by side, in grey
    (n,)                            a bar for each number
    any other                       last axis from left to right, all other axes downwards
    ==============================  ==========================================================
    """
    bright, note = _as_bytes(frames, spec)
    if len(spec.shape) == 1:
        return _bars(bright), note.replace("(dark)", "(no bar)").replace("(bright)", "(a full bar)")
    if len(spec.shape) == 3:
        if spec.shape[-1] == 3:
            return bright, note
        if spec.shape[0] == 3:
            return bright.transpose(0, 2, 3, 1), note
        if spec.shape[-1] in (2, 4):
            bright = bright.transpose(0, 1, 3, 2)
            return bright.reshape(len(frames), spec.shape[0], -1), note
        if spec.shape[-1] == 1:
            return bright[..., 0], note
    return bright.reshape(len(frames), -1, spec.shape[-1]), note


def _as_bytes(frames: npt.NDArray[Any], spec: FrameSpec) -> tuple[npt.NDArray[np.uint8], str]:
    if spec.dtype == np.uint8:
        return frames, ""
    values = np.nan_to_num(frames.astype(np.float64), posinf=0.0, neginf=0.0)
    if spec.is_scaled or spec.dtype == np.bool_:
        return (values.clip(0.0, 1.0) * 255).round().astype(np.uint8), ""
    least, greatest = float(values.min()), float(values.max())
    bright = (values - least) / max(greatest - least, np.finfo(np.float64).tiny) * 255
    return bright.round().astype(np.uint8), f"shown from {least:g} (dark) to {greatest:g} (bright)"


def _bars(heights: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    levels = np.linspace(255, 0, BAR_HEIGHT)[:, None]
    bars: npt.NDArray[np.uint8] = np.where(heights[:, None, :] >= levels, 255, 0).astype(np.uint8)
    bar_width = BARS_WIDTH // heights.shape[1]
    if bar_width > 2:  # wide enough for a line between two bars
        bars = bars.repeat(bar_width, axis=2)
        bars[:, :, ::bar_width] = 0
    return bars


def _tile(picture: npt.NDArray[np.uint8], num_tiles: int) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture))
    height, width = picture.shape[:2]
    max_width = (STRIP_WIDTH - num_tiles * GAP) // num_tiles
    factor = min(FRAME_SIDE // height, min(max_width, FRAME_SIDE) // width)
    if factor >= 1:
        return image.resize((width * factor, height * factor), Image.Resampling.NEAREST)
    shrink = min(max_width / width, 2 * FRAME_SIDE / height, 1.0)
    size = max(1, round(width * shrink)), max(1, round(height * shrink))
    return image.resize(size, Image.Resampling.BOX)


def _captions(stack: int, shown: int, num_padded: int, num_steps: int) -> list[str]:
    """Return the caption of each frame: its time, such as t-1, or "padding"."""
    observation = [f"t{position - stack + 1:+d}" for position in range(stack)]
    following = [f"t{position - stack + 1 + num_steps:+d}" for position in range(stack)]
    observation[:num_padded] = ["padding"] * min(num_padded, stack)
    following[: max(0, num_padded - num_steps)] = ["padding"] * max(0, num_padded - num_steps)
    return ["t" if caption == "t+0" else caption for caption in observation[-shown:] + following[-shown:]]


def _headlines(
    batch: Batch, label: str, env_id: int, stack: int, shown: int, scale_note: str
) -> list[tuple[str, tuple[int, int, int]]]:
    """Return the lines above the frames, each with its colour."""
    action, reward = batch.action[0], float(batch.reward[0])
    action_text = np.array2string(action, precision=3, threshold=8) if np.ndim(action) else str(int(action))
    ending = {(True, False): "terminated", (False, True): "truncated", (True, True): "terminated and truncated"}.get(
        (bool(batch.terminated[0]), bool(batch.truncated[0])), "neither terminated nor truncated"
    )
    notes = [f"the last {shown} of {stack} frames"] if shown < stack else []
    notes += [scale_note] if scale_note else []
    lines = [
        (f"{label}, environment {env_id}, transition {int(batch.index[0]):,}", INK),
        (f"action {action_text}    reward {reward:g}    discount {float(batch.discount[0]):.4g}", INK),
        (ending, ALARM if batch.terminated[0] or batch.truncated[0] else PALE),
    ]
    return lines + [("; ".join(notes), PALE)] * bool(notes)


def _draw_strip(
    tiles: list[Image.Image], captions: list[str], headlines: list[tuple[str, tuple[int, int, int]]]
) -> Image.Image:
    font, small = ImageFont.load_default(FONT_SIZE), ImageFont.load_default(SMALL_FONT_SIZE)
    tile_width, tile_height = tiles[0].size
    cell_width = max(tile_width, int(small.getlength("padding")) + 2)
    shown = len(tiles) // 2
    top = MARGIN + LINE * (len(headlines) + 1) + GAP
    text_width = max(int(font.getlength(text)) for text, _ in headlines)
    width = 2 * MARGIN + max(text_width, len(tiles) * (cell_width + GAP) - 2 * GAP + GROUP_GAP)
    strip = Image.new("RGB", (width, top + tile_height + LINE + MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(strip)
    for number, (text, colour) in enumerate(headlines):
        draw.text((MARGIN, MARGIN + number * LINE), text, colour, font)
    for number, (tile, caption) in enumerate(zip(tiles, captions, strict=True)):
        group = number // shown
        left = MARGIN + number * (cell_width + GAP) + group * (GROUP_GAP - GAP)
        if number % shown == 0:
            draw.text((left, top - LINE), ("observation", "next observation")[group], INK, font)
        draw.rectangle((left - 1, top - 1, left + tile_width, top + tile_height), outline=BORDER)
        strip.paste(tile, (left, top))
        draw.text((left, top + tile_height + GAP), caption, PALE, small)
    return strip
