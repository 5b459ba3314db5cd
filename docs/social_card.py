"""Draw the card that a shared link to the site shows: ``python docs/social_card.py`` writes docs/social-card.png.

Needs Pillow. Its figures are those of ``benchmarks/results/drop_in_training.json``.
"""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

DOCS = Path(__file__).parent
FILE = DOCS / "social-card.png"
SIZE = (1200, 630)  # what Open Graph asks for
WALL = ("#c84848", "#c66c3a", "#b47a30", "#a2a22a", "#48a048", "#4248c8")  # the rows of bricks of Breakout
PAPER, WHITE, GREY = "#17181c", "#ffffff", "#b9bcc6"
BRICK, ROW = 66, 20


def draw() -> Image.Image:
    """Return the card."""
    results = json.loads((DOCS.parent / "benchmarks/results/drop_in_training.json").read_text())
    theirs, ours = (
        results["buffers"][f"{name}'s buffer"]["resident_bytes_of_a_million"] / 2**30
        for name in ("Stable-Baselines3", "framestow")
    )
    card = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(card)
    for row, colour in enumerate(WALL):
        for left in range(0, SIZE[0], BRICK):
            pen.rectangle((left, 40 + row * ROW, left + BRICK - 4, 40 + row * ROW + ROW - 4), fill=colour)
    lines = [
        (210, 96, WHITE, "framestow"),
        (330, 40, GREY, "Replay memory for deep reinforcement learning from pixels"),
        (430, 64, WHITE, f"{ours:.1f} GiB instead of {theirs:.0f} GiB"),
        (520, 32, GREY, "DQN on Breakout with a million transitions, lossless"),
    ]
    for top, size, colour, text in lines:
        pen.text((70, top), text, fill=colour, font=ImageFont.load_default(size))
    return card.quantize(64)


if __name__ == "__main__":
    draw().save(FILE, optimize=True)
