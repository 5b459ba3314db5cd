"""Draw the pictures of how-it-works.md, observations.md and saving.md into docs/drawings: ``python docs/drawings.py``.

The sizes in them are measured: the frame sequence below is packed by framestow's own codec.
"""

from __future__ import annotations

import math
import struct
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from framestow._core import pack_segment

FOLDER = Path(__file__).parent / "drawings"
WIDTH = 520  # of every drawing, so that its text can be read on a phone
HEADER_BYTES, OFFSET_BYTES = 24, 4
GROUP_FRAMES = 4

# A picture shows the colours that the reader's system prefers, and brings its own background.
STYLE = """
  .page{fill:#fff;stroke:#d5dbe1} text{font:15px system-ui,sans-serif;fill:#1c2733} .small{font-size:13px}
  .bold{font-weight:600} .middle{text-anchor:middle} .end{text-anchor:end}
  .a{fill:#0f8b8d;stroke:#0f8b8d} .b{fill:#9ad1d4;stroke:#0f8b8d} .c{fill:#f2a541;stroke:#b87312}
  .d{fill:#e6ebf0;stroke:#8796a5} .none{fill:none;stroke:#8796a5} .mark{fill:none;stroke:#c2452d;stroke-width:2.5}
  .on{fill:#fff} .dark{fill:#10151a} .line{stroke:#44525f;stroke-width:1.6;fill:none} .tip{fill:#44525f}
  @media (prefers-color-scheme:dark){
    .page{fill:#1d232b;stroke:#39434f} text{fill:#e4e9ee} .d{fill:#36414d;stroke:#8796a5}
    .b{fill:#1f5d63;stroke:#4cc3c7} .a{fill:#2aa5a8;stroke:#4cc3c7} .c{fill:#c9812a;stroke:#f2b45f}
    .mark{stroke:#ff8a70} .on{fill:#10151a} .line{stroke:#b7c2cd} .tip{fill:#b7c2cd} .none{stroke:#8796a5}
  }
"""


class Drawing:
    """An SVG of ``WIDTH`` by ``height`` with a title for readers that do not see it."""

    def __init__(self, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
            f'<rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="8"/>',
        ]

    def box(self, x: float, y: float, width: float, height: float, kind: str, rounding: float = 2) -> None:
        """Draw a rectangle of the style ``kind``."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{rounding:g}"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """Write ``words`` on the line ``y``."""
        self._parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>')

    def shape(self, kind: str, points: list[tuple[float, float]]) -> None:
        """Draw the polygon of ``points`` in the style ``kind``."""
        self._parts.append(f'<path class="{kind}" d="M{" ".join(f"{x:.1f} {y:.1f}" for x, y in points)}z"/>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through ``points`` with a tip at its end."""
        path = " ".join(f"{x:g} {y:g}" for x, y in points)
        self._parts.append(f'<path class="line" marker-end="url(#tip)" d="M{path}"/>')

    def line(self, *points: tuple[float, float]) -> None:
        """Draw a line through ``points``."""
        self._parts.append(f'<path class="line" d="M{" ".join(f"{x:g} {y:g}" for x, y in points)}"/>')

    def pixels(self, x: float, y: float, frame: npt.NDArray[np.uint8], side: float) -> None:
        """Draw ``frame`` as grey squares of ``side``, equal neighbours of a row as one rectangle."""
        for row, values in enumerate(frame):
            borders = [0, *(np.flatnonzero(np.diff(values.astype(int))) + 1).tolist(), len(values)]
            for start, end in pairwise(borders):
                grey = f"#{int(values[start]):02x}" + f"{int(values[start]):02x}" * 2
                self._parts.append(
                    f'<rect x="{x + start * side:g}" y="{y + row * side:g}" width="{(end - start) * side:g}" '
                    f'height="{side:g}" style="fill:{grey}" shape-rendering="crispEdges"/>'
                )

    def svg(self) -> str:
        """Return the whole drawing as text."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"


def frame_sequence(num_frames: int, side: int) -> npt.NDArray[np.uint8]:
    """Return ``num_frames`` of a small ball game: a wall of bricks, a ball that bounces, a paddle that follows it."""
    frames = np.full((num_frames, side, side), 20, np.uint8)
    size, paddle = max(2, side // 28), side // 5
    bricks = np.zeros((side, side), np.uint8)
    for row in range(side // 7, side // 7 + 6 * size, size):
        bricks[row : row + size] = 120 + 20 * (row % 5)
    bricks[:, :: side // 7] = 0
    x, y, dx, dy = side // 3, side // 2, 1, 1
    for number in range(num_frames):
        frames[number] = np.where(bricks > 0, bricks, 20)
        frames[number, y : y + size, x : x + size] = 236
        left = min(max(x - paddle // 2, 0), side - paddle)
        frames[number, side - 2 * size : side - size, left : left + paddle] = 200
        dx = -dx if not 0 <= x + dx <= side - size else dx
        bounces = not 0 <= y + dy <= side - 3 * size
        if bricks[y + dy : y + dy + size, x : x + size].any():
            bricks[y + dy : y + dy + size, max(x - 4, 0) : x + size + 4] = 0
            bounces = True
        dy = -dy if bounces else dy
        x, y = x + dx, y + dy
    return frames


def patch_drawing() -> str:
    """A frame, the next one, and the pixels that differ."""
    before, after = frame_sequence(12, 28)[-2:]
    drawing, side = Drawing(234, "A patch has the pixels that differ from the frame before"), 5.6
    panel = 28 * side
    for number, (frame, words) in enumerate([(before, "frame 10"), (after, "frame 11")]):
        drawing.pixels(12 + number * (panel + 12), 36, frame, side)
        drawing.text(12 + number * (panel + 12), 26, words, "bold")
    start = 12 + 2 * (panel + 12)
    drawing.text(start, 26, "patch of frame 10", "bold")
    drawing.box(start, 36, panel, panel, "none", 0)
    changed = np.argwhere(before != after)
    for row, column in changed.tolist():
        drawing.box(start + column * side, 36 + row * side, side, side, "c", 0)
    drawing.text(12, 218, f"{len(changed)} of {before.size} pixels change. All others are kept.")
    return drawing.svg()


def segment_drawing() -> str:
    """A packed segment to scale, with one group enlarged."""
    frames = frame_sequence(320, 84)
    segment = pack_segment(frames.reshape(len(frames), -1), 84, 84, 1)
    num_groups = math.ceil(len(frames) / GROUP_FRAMES)
    starts = struct.unpack_from(f"<{num_groups}I", segment, HEADER_BYTES)
    head = HEADER_BYTES + OFFSET_BYTES * num_groups
    body = len(segment) - head
    sizes = np.diff([*starts, body])
    drawing = Drawing(
        292, "A segment: header, base frame, shared operations, and groups of an anchor and three patches"
    )
    drawing.text(16, 28, f"320 frames, {frames.nbytes:,} bytes, packed into {len(segment):,}", "bold")
    scale = (WIDTH - 32) / len(segment)
    drawing.box(16, 62, head * scale, 38, "d", 0)
    drawing.box(16 + head * scale, 62, starts[0] * scale, 38, "a", 0)
    at = 16 + (head + starts[0]) * scale
    enlarged, place = 44, 0.0
    for number, size in enumerate(sizes.tolist()):
        drawing.box(at, 62, size * scale, 38, "b", 0)
        place = at + size * scale / 2 if number == enlarged else place
        at += size * scale
    drawing.text(16, 54, "header, table", "small")
    drawing.text(16 + head * scale + 6, 118, "base frame, shared operations", "small")
    drawing.text(
        WIDTH - 16, 54, f"{num_groups} groups of {GROUP_FRAMES} frames, {sizes.mean():.0f} bytes each", "small end"
    )
    drawing.line((place, 100), (16, 168))
    drawing.line((place, 100), (WIDTH - 16, 168))
    cell = (WIDTH - 32) / GROUP_FRAMES
    for number, words in enumerate(["anchor", "patch", "patch", "patch"]):
        drawing.box(16 + number * cell, 170, cell, 44, "a" if number == 0 else "b", 0)
        drawing.text(16 + (number + 0.5) * cell, 197, words, "middle bold on" if number == 0 else "middle bold")
        drawing.text(16 + (number + 0.5) * cell, 236, "of the base" if number == 0 else "of the one", "small middle")
        drawing.text(16 + (number + 0.5) * cell, 252, "frame" if number == 0 else "before", "small middle")
    drawing.text(16, 276, "One group, enlarged: any frame costs the base and at most five patches.", "small")
    return drawing.svg()


def window_drawing() -> str:
    """How a window of five frames is unpacked."""
    drawing = Drawing(300, "A window of five frames is rebuilt from the base, two anchors and six patches")
    cell, first, last = 46, 3, 7
    drawing.text(16, 28, "A window: the stack, and the next frame", "bold")
    for number in range(2 * GROUP_FRAMES):
        x = 24 + number * cell + (14 if number >= GROUP_FRAMES else 0)
        drawing.box(x, 104, cell - 6, 40, "a" if number % GROUP_FRAMES == 0 else "b", 3)
        drawing.text(x + (cell - 6) / 2, 130, f"f{number}", "middle on" if number % GROUP_FRAMES == 0 else "middle")
        if number % GROUP_FRAMES and number <= last:
            drawing.arrow((x - cell + 22, 100), (x - cell + 22, 88), (x + 14, 88), (x + 14, 101))
        if first <= number <= last:
            drawing.arrow((x + 20, 148), (x + 20, 212))
            drawing.box(x, 216, cell - 6, 34, "c", 3)
            drawing.text(x + 20, 238, f"f{number}", "middle dark")
    drawing.box(24, 44, 96, 26, "a", 3)
    drawing.text(72, 62, "base frame", "middle on small")
    drawing.arrow((36, 72), (36, 101))
    drawing.arrow((122, 57), (24 + 4 * cell + 22, 57), (24 + 4 * cell + 22, 101))
    drawing.text(226, 50, "patched a second time", "small")
    drawing.text(24, 178, "rebuilt in the", "small")
    drawing.text(24, 194, "processor's cache", "small")
    drawing.text(24, 228, "copied into", "small")
    drawing.text(24, 244, "the batch", "small")
    drawing.text(16, 280, "observation: f3 f4 f5 f6; next observation: f4 f5 f6 f7", "small")
    return drawing.svg()


def ring_drawing() -> str:
    """The ring of steps, with its cursor, and the segments that its frames are in."""
    capacity, newest, episode = 24, 41, 9
    drawing = Drawing(372, "The ring of steps: the newest step replaces the oldest one")
    drawing.text(16, 28, f"A ring of {capacity} steps, after step {newest}", "bold")
    centre, outer, inner = (176.0, 200.0), 148.0, 96.0
    for slot in range(capacity):
        index = newest - (newest - slot) % capacity
        angles = [2 * math.pi * (slot + edge) / capacity - math.pi / 2 for edge in (0.04, 0.96)]
        points = [
            (centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle))
            for radius, angle in zip((inner, outer, outer, inner), (angles[0], *angles, angles[1]), strict=True)
        ]
        kind = "c" if index > newest - 2 else ("a", "b")[index // episode % 2]
        drawing.shape(kind, points)
        middle = sum(angles) / 2
        x, y = centre[0] + 122 * math.cos(middle), centre[1] + 122 * math.sin(middle)
        drawing.text(x, y + 5, str(index), "small middle" + {"a": " on", "b": "", "c": " dark"}[kind])
    angle = 2 * math.pi * ((newest + 1) % capacity) / capacity - math.pi / 2
    tip = (centre[0] + 92 * math.cos(angle), centre[1] + 92 * math.sin(angle))
    drawing.arrow((centre[0] + 36 * math.cos(angle), centre[1] + 36 * math.sin(angle)), tip)
    drawing.text(centre[0], centre[1] - 4, "step 42", "middle bold")
    drawing.text(centre[0], centre[1] + 14, "replaces 18", "small middle")
    for y, kind, words in [
        (70, "a", "one episode"),
        (100, "b", "another episode"),
        (130, "c", "pending: n_step=3,"),
    ]:
        drawing.box(352, y - 13, 16, 16, kind)
        drawing.text(376, y, words, "small")
    drawing.text(376, 148, "return not complete", "small")
    for y, words in [
        (196, "The number is the index."),
        (214, "It never comes again;"),
        (232, "its slot does."),
        (268, "A slot has action, reward,"),
        (286, "flags, and the position of"),
        (304, "its frames in segments."),
    ]:
        drawing.text(344, y, words, "small")
    return drawing.svg()


def waiting_drawing() -> str:
    """Which thread holds the memory's lock when, and what it does without it."""
    drawing = Drawing(318, "Threads hold the memory's lock briefly, and unpack, pack to disk and learn without it")
    lanes = {
        "writer": [(0, 34, "c"), (150, 34, "c"), (300, 34, "c")],
        "learner": [(34, 26, "c"), (60, 120, "b"), (200, 26, "c"), (226, 120, "b")],
        "loader": [(76, 18, "c"), (94, 150, "b"), (270, 18, "c"), (288, 90, "b")],
        "flush": [(110, 14, "c"), (124, 116, "b"), (240, 14, "c"), (254, 130, "b")],
    }
    drawing.text(16, 28, "Who holds the memory's lock", "bold")
    for number, (name, bars) in enumerate(lanes.items()):
        y = 52 + number * 50
        drawing.text(16, y + 22, name)
        drawing.line((92, y + 34), (WIDTH - 16, y + 34))
        for start, length, kind in bars:
            drawing.box(96 + start, y + 4, length, 28, kind)
        words = {"writer": "", "learner": "unpacks", "loader": "unpacks, copies", "flush": "writes, syncs"}[name]
        start = bars[1][0] if words else 0
        drawing.text(96 + start + 8, y + 23, words, "small")
    drawing.arrow((130, 70), (130, 112))
    drawing.text(136, 100, "waits for the lock", "small")
    drawing.box(16, 264, 16, 16, "c")
    drawing.text(38, 277, "holds the lock: stores a step, draws a batch, copies a block", "small")
    drawing.box(16, 288, 16, 16, "b")
    drawing.text(38, 301, "holds no lock: nobody waits for it", "small")
    return drawing.svg()


def stacks_drawing() -> str:
    """Observations of an episode as stacks of its frames, which they share."""
    drawing = Drawing(268, "Observations are stacks of four frames, and the memory stores each frame once")
    cell, top = 62, 172
    drawing.text(16, 28, "Three observations of an episode, and what is stored", "bold")
    for row, (name, frames, kind) in enumerate(
        [("first", (0, 0, 0, 0), "b"), ("step 3", (0, 1, 2, 3), "a"), ("step 4", (1, 2, 3, 4), "c")]
    ):
        y = 44 + 34 * row
        drawing.text(16, y + 19, name)
        for place, frame in enumerate(frames):
            x = 96 + place * cell
            drawing.box(x, y, cell - 8, 26, kind, 3)
            drawing.text(x + (cell - 8) / 2, y + 18, f"f{frame}", "middle" + {"a": " on", "b": "", "c": " dark"}[kind])
    drawing.text(360, 63, "f0 repeats, as padding", "small")
    drawing.text(360, 114, "the next observation", "small")
    drawing.text(360, 130, "of step 3", "small")
    drawing.arrow((220, 146), (220, top - 6))
    drawing.text(16, top + 24, "stored")
    for frame in range(6):
        drawing.box(96 + frame * cell, top, cell - 8, 38, "d", 3)
        drawing.text(96 + frame * cell + (cell - 8) / 2, top + 24, f"f{frame}", "middle")
    drawing.text(16, 244, "A transition shows eight frames. It adds one to the memory, packed.", "small")
    return drawing.svg()


def store_drawing() -> str:
    """The files of a store: two logs that grow, and what each generation names of them."""
    drawing = Drawing(296, "A store: two logs that only grow, and generations that name a part of each")
    drawing.text(16, 28, "The files of a store, after a kill during a save", "bold")
    for y, name, widths in ((48, "frames", (90, 70, 84, 64, 34)), (168, "steps", (120, 124, 64, 34))):
        drawing.text(16, y + 25, name)
        x = 84.0
        for number, width in enumerate(widths):
            is_old = x < 240
            is_torn = number == len(widths) - 1
            drawing.box(x, y, width, 40, "none" if is_torn else "a" if is_old else "b", 2)
            x += width + 4
    for x, number, kind, of_frames, of_steps in ((190, 6, "a", 246, 334), (350, 7, "b", 404, 402)):
        drawing.box(x, 111, 148, 34, kind, 4)
        drawing.text(x + 74, 133, f"generation {number}", f"middle bold{' on' if kind == 'a' else ''}")
        drawing.arrow((of_frames, 111), (of_frames, 91))
        drawing.arrow((of_steps, 145), (of_steps, 165))
    drawing.text(16, 238, "A log grows at its end. A generation has the small rest: what changes in", "small")
    drawing.text(16, 256, "place, and how far each log belongs to it. White: written, but named by", "small")
    drawing.text(16, 274, "no generation. The memory is as it was saved last.", "small")
    return drawing.svg()


DRAWINGS = {
    "patch": patch_drawing,
    "segment": segment_drawing,
    "window": window_drawing,
    "ring": ring_drawing,
    "waiting": waiting_drawing,
    "stacks": stacks_drawing,
    "store": store_drawing,
}


def main() -> None:
    """Write every drawing into its file."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
