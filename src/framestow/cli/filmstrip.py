"""A picture of one transition: the frames that it was chosen by, and those that it led to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, Leaf
from framestow.replay.batch import Batch
from framestow.replay.inspection import DrawnTransition

MAX_SHOWN = 6  # frames of an observation, the newest ones; more would be too small to see anything
FRAME_SIDE = 192  # pixels of the strip that a frame is enlarged to, at most
STRIP_WIDTH = 1_560  # pixels that all frames may take together; larger ones are shrunk
BAR_HEIGHT, BARS_WIDTH = 96, 128  # pixels of a vector's bars, all together
MARGIN, GAP, GROUP_GAP, LINE = 16, 4, 28, 26
FONT_SIZE, SMALL_FONT_SIZE = 18, 14
BACKGROUND, INK, PALE, ALARM, BORDER = (24, 26, 30), (236, 236, 236), (150, 154, 162), (255, 120, 100), (90, 94, 102)


def write_filmstrip(path: Path, drawn: DrawnTransition, spec: AnySpec, label: str, key: str = "") -> None:
    """Draw a transition into the PNG file ``path``, whose folder is made where it is missing.

    ``key``: which of several arrays is drawn, the largest picture by default; ``InvalidSettingsError`` where there is
    none of that name.
    """
    leaf, batch = chosen_leaf(spec, key), drawn.batch
    observation, next_observation = leaf.of(batch.observation), leaf.of(batch.next_observation)
    stack = observation.shape[1]
    shown = min(stack, MAX_SHOWN)
    groups = observation[0, -shown:], next_observation[0, -shown:]
    pictures, scale_told = frame_pictures(np.concatenate(groups), leaf.frame)
    label = f"{label}, {leaf.key}" if leaf.key else label
    tiles = [_tile(picture, 2 * shown) for picture in pictures]
    captions = _captions(stack, shown, drawn.num_padded, drawn.num_steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    _drawn(tiles, captions, _headlines(batch, label, drawn.env_id, stack, shown, scale_told)).save(path, "PNG")


def chosen_leaf(spec: AnySpec, key: str) -> Leaf:
    """The leaf that is called ``key``; where that is empty the largest picture, or the largest vector without one."""
    leaves = [Leaf((), spec)] if isinstance(spec, FrameSpec) else list(spec.leaves)
    named = [leaf for leaf in leaves if leaf.key == key] if key else leaves
    if not named:
        keys = ", ".join(leaf.key for leaf in leaves if leaf.key) or "one array without a key"
        raise InvalidSettingsError(f"key is {key!r}: the observations have {keys}; give one of those, or none")
    return max(named, key=lambda leaf: (len(leaf.frame.shape) > 1, leaf.frame.nbytes))


def frame_pictures(frames: npt.NDArray[Any], spec: FrameSpec) -> tuple[npt.NDArray[np.uint8], str]:
    """Turn ``frames``, ``(n, *spec.shape)``, into pictures, and say how values became brightness ("" if as they are).

    Pictures are ``(n, height, width)`` or ``(n, height, width, 3)``:

    ==============================  ==========================================================
    frame                           picture
    ==============================  ==========================================================
    (H, W), (H, W, 1), (1, H, W)    grey
    (H, W, 3), (3, H, W)            colour
    (H, W, 2 or 4)                  channels side by side, grey: they may be frames or colours
    (n,)                            a bar for each number
    any other                       its last axis from left to right, all others downwards
    ==============================  ==========================================================
    """
    bright, told = _as_bytes(frames, spec)
    if len(spec.shape) == 1:
        return _bars(bright), told.replace("(dark)", "(no bar)").replace("(bright)", "(a full bar)")
    if len(spec.shape) == 3:
        if spec.shape[-1] == 3:
            return bright, told
        if spec.shape[0] == 3:
            return bright.transpose(0, 2, 3, 1), told
        if spec.shape[-1] in (2, 4):
            bright = bright.transpose(0, 1, 3, 2)
            return bright.reshape(len(frames), spec.shape[0], -1), told
        if spec.shape[-1] == 1:
            return bright[..., 0], told
    return bright.reshape(len(frames), -1, spec.shape[-1]), told


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
    if bar_width > 2:  # room for a line between two bars
        bars = bars.repeat(bar_width, axis=2)
        bars[:, :, ::bar_width] = 0
    return bars


def _tile(picture: npt.NDArray[np.uint8], num_tiles: int) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture))
    height, width = picture.shape[:2]
    room = (STRIP_WIDTH - num_tiles * GAP) // num_tiles
    factor = min(FRAME_SIDE // height, min(room, FRAME_SIDE) // width)
    if factor >= 1:
        return image.resize((width * factor, height * factor), Image.Resampling.NEAREST)
    fitting = min(room / width, 2 * FRAME_SIDE / height, 1.0)
    size = max(1, round(width * fitting)), max(1, round(height * fitting))
    return image.resize(size, Image.Resampling.BOX)


def _captions(stack: int, shown: int, num_padded: int, num_steps: int) -> list[str]:
    """What stands below each frame: its time, or that it is padding."""
    observation = [f"t{place - stack + 1:+d}" for place in range(stack)]
    following = [f"t{place - stack + 1 + num_steps:+d}" for place in range(stack)]
    observation[:num_padded] = ["padding"] * min(num_padded, stack)
    following[: max(0, num_padded - num_steps)] = ["padding"] * max(0, num_padded - num_steps)
    return ["t" if caption == "t+0" else caption for caption in observation[-shown:] + following[-shown:]]


def _headlines(
    batch: Batch, label: str, stream: int, stack: int, shown: int, scale_told: str
) -> list[tuple[str, tuple[int, int, int]]]:
    """Lines above the frames, each in its colour."""
    action, reward = batch.action[0], float(batch.reward[0])
    told_action = np.array2string(action, precision=3, threshold=8) if np.ndim(action) else str(int(action))
    ending = {(True, False): "terminated", (False, True): "truncated", (True, True): "terminated and truncated"}.get(
        (bool(batch.terminated[0]), bool(batch.truncated[0])), "neither terminated nor truncated"
    )
    notes = [f"the last {shown} of {stack} frames"] if shown < stack else []
    notes += [scale_told] if scale_told else []
    lines = [
        (f"{label}, environment {stream}, transition {int(batch.index[0]):,}", INK),
        (f"action {told_action}    reward {reward:g}    discount {float(batch.discount[0]):.4g}", INK),
        (ending, ALARM if batch.terminated[0] or batch.truncated[0] else PALE),
    ]
    return lines + [("; ".join(notes), PALE)] * bool(notes)


def _drawn(
    tiles: list[Image.Image], captions: list[str], headlines: list[tuple[str, tuple[int, int, int]]]
) -> Image.Image:
    font, small = ImageFont.load_default(FONT_SIZE), ImageFont.load_default(SMALL_FONT_SIZE)
    tile_width, tile_height = tiles[0].size
    place = max(tile_width, int(small.getlength("padding")) + 2)
    shown = len(tiles) // 2
    top = MARGIN + LINE * (len(headlines) + 1) + GAP
    text_width = max(int(font.getlength(text)) for text, _ in headlines)
    width = 2 * MARGIN + max(text_width, len(tiles) * (place + GAP) - 2 * GAP + GROUP_GAP)
    strip = Image.new("RGB", (width, top + tile_height + LINE + MARGIN), BACKGROUND)
    draw = ImageDraw.Draw(strip)
    for number, (text, colour) in enumerate(headlines):
        draw.text((MARGIN, MARGIN + number * LINE), text, colour, font)
    for number, (tile, caption) in enumerate(zip(tiles, captions, strict=True)):
        group = number // shown
        left = MARGIN + number * (place + GAP) + group * (GROUP_GAP - GAP)
        if number % shown == 0:
            draw.text((left, top - LINE), ("observation", "next observation")[group], INK, font)
        draw.rectangle((left - 1, top - 1, left + tile_width, top + tile_height), outline=BORDER)
        strip.paste(tile, (left, top))
        draw.text((left, top + tile_height + GAP), caption, PALE, small)
    return strip
