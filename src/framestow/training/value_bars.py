"""Draw the agent's value of every action as bars, for the video of ``framestow watch``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

WIDTH = 340  # pixels
MIN_ROW, MAX_ROW = 18, 34  # pixels; height of an action's row
MARGIN, GAP = 12, 8  # pixels
NUMBER_WIDTH, LEAST_BAR = 64, 2  # pixels; of the number beside a bar, and of the shortest bar
BACKGROUND, INK, PALE, BAR, CHOSEN = (24, 26, 30), (236, 236, 236), (150, 154, 162), (84, 112, 156), (255, 160, 60)


def draw_values(
    values: NDArray[np.float32], action_names: Sequence[str], chosen: int | None, height: int
) -> NDArray[np.uint8]:
    """Return a picture ``(height or more, 340, 3)`` with a row for each action: its name, a bar, and its value.

    The values of one observation often differ by little. So the shortest bar is the lowest value, and the longest bar
    is the highest one.

    Arguments:
        values: The value of each action.
        action_names: The name of each action.
        chosen: The action to mark; ``None`` marks none.
        height: Height in pixels; the picture is higher if the rows need it.
    """
    rows = len(values) + 2  # the heading takes two
    row = min(MAX_ROW, max(MIN_ROW, (height - 2 * MARGIN) // rows))
    picture = Image.new("RGB", (WIDTH, max(height, rows * row + 2 * MARGIN)), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    font = _font(min(18, row - 4))
    draw.text((MARGIN, MARGIN + row // 2), "value of each action", INK, font, anchor="lm")
    note = f"bars: {min(values):.3g} to {max(values):.3g}"
    draw.text((MARGIN, MARGIN + row * 3 // 2), note, PALE, font, anchor="lm")
    left = MARGIN + max(int(font.getlength(name)) for name in action_names) + GAP
    longest = WIDTH - MARGIN - NUMBER_WIDTH - left
    shares = (values - min(values)) / max(float(max(values) - min(values)), 1e-9)
    for number, (value, share) in enumerate(zip(values, shares, strict=True)):
        top = MARGIN + (number + 2) * row
        middle, is_chosen = top + row // 2, number == chosen
        draw.text((MARGIN, middle), action_names[number], CHOSEN if is_chosen else INK, font, anchor="lm")
        length = LEAST_BAR + round(float(share) * (longest - LEAST_BAR))
        draw.rectangle((left, top + 3, left + length, top + row - 4), CHOSEN if is_chosen else BAR)
        draw.text((WIDTH - MARGIN, middle), f"{value:.3f}", CHOSEN if is_chosen else INK, font, anchor="rm")
    return np.asarray(picture, np.uint8)


def beside(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return two pictures beside each other; black fills the space below the lower one."""
    height = max(len(left), len(right))
    return np.concatenate([np.pad(each, ((0, height - len(each)), (0, 0), (0, 0))) for each in (left, right)], axis=1)


@lru_cache(maxsize=4)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
