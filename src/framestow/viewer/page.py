"""``write_page``: one HTML file with the style, the scripts and some episodes of a memory."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.interface import plural, printable
from framestow.replay.eviction.byte_amounts import format_bytes
from framestow.storage.files.file_system import write_atomically
from framestow.training.report.charts import read_style
from framestow.viewer.memory_view import ROWS_A_SPARK_BLOCK, MemoryView

PAGES = Path(__file__).with_name("pages")
# Each script uses earlier ones only.
SCRIPTS = (
    "elements",
    "resources",
    "pictures",
    "episodes",
    "video",
    "step_charts",
    "learner",
    "distribution",
    "main",
)
TAG_BYTES = 80  # of the HTML around a resource, at most
ROW_BYTES = 300  # of an episode's row and sparkline in the page, at most
MOST_MISFITS = 12  # episodes that have no room, one after another, before the page is full

Progress = Callable[[int, int], None]  # called with the bytes written so far, and the most that are allowed


def page_html(view: MemoryView, *, source: str = "", resources: str = "") -> str:
    """Return the page about a memory.

    Arguments:
        view: The memory.
        source: Address of the resources that the page reads from its server; empty if it has all of them.
        resources: Their elements, for a page that has them.
    """
    values = {
        "title": escape(printable(f"Memory of {view.name}")),
        "about": escape(f"generation {view.generation} · shown by framestow view"),
        "style": read_style() + (PAGES / "view.css").read_text(encoding="utf-8"),
        "script": _script(),
        "source": escape(source),
        "resources": resources,
    }
    template = (PAGES / "view.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _script() -> str:
    """Return all scripts as one module, which a page that is opened as a file cannot import."""
    texts = ((PAGES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    whole = "\n".join(texts)
    return re.sub(r"^(import [^;]*;\n|export )", "", whole, flags=re.MULTILINE)


def write_page(view: MemoryView, output: Path, max_bytes: int, progress: Progress = lambda _, __: None) -> int:
    """Write the page with as many whole episodes as fit into ``max_bytes``; return how many it has.

    It takes the newest episodes, those with the best and the worst returns, and some in between, in turn. The file
    appears when it is complete.

    Raises:
        InvalidSettingsError: there is no room for any episode.
    """
    room = max_bytes - len(page_html(view).encode()) - 2 * ROW_BYTES
    room -= sum(_size_of(view.resource(name)) for name in ("memory", "distribution"))
    chosen: dict[int, str] = {}  # why, by number
    pieces: list[str] = []
    misfits = 0
    for number, why in _candidates(view):
        if number in chosen:
            continue
        element = _episode_elements(view, number, room - ROW_BYTES)
        if element is None:
            misfits += 1
            if misfits == MOST_MISFITS:
                break
            continue
        misfits = 0
        room -= len(element) + ROW_BYTES
        pieces.append(element)
        chosen[number] = why
        progress(max_bytes - room, max_bytes)
    if len(view.table) and not chosen:
        raise InvalidSettingsError(
            f"max_size is {format_bytes(max_bytes)}: no episode fits into such a page; give more, or use --serve, "
            "which has no limit"
        )
    while len((text := _whole_page(view, chosen, pieces, max_bytes)).encode()) > max_bytes and chosen:
        chosen.popitem()  # what describes the memory grew with the choice
        pieces.pop()
    write_atomically(output, text.encode(), is_durable=False)
    return len(chosen)


def _whole_page(view: MemoryView, chosen: dict[int, str], pieces: list[str], max_bytes: int) -> str:
    """Return the page with the ``chosen`` episodes, whose elements are ``pieces``."""
    view.show_only(chosen, _describe(view, chosen, max_bytes))
    blocks = range(-(-len(chosen) // ROWS_A_SPARK_BLOCK))
    names = ["memory", "distribution", "episodes", *(f"sparklines/{block}" for block in blocks)]
    return page_html(view, resources="".join([*pieces, *(_element(name, view.resource(name)) for name in names)]))


def _candidates(view: MemoryView) -> Iterator[tuple[int, str]]:
    """Yield the episodes in the order in which a page takes them, and why; some of them several times."""
    table = view.table
    by_age = np.argsort(table.ages, kind="stable")
    by_return = np.lexsort((by_age, table.spans["total_reward"]))
    between = by_return[_spread_out(len(by_return))]
    for numbers in zip(by_age, by_return[::-1], by_return, between, strict=True):
        yield from zip(map(int, numbers), ("newest", "best", "worst", "between"), strict=True)
    if len(table):
        yield int(np.argmin(table.spans["length"])), "shortest"


def _spread_out(count: int) -> npt.NDArray[np.intp]:
    """Return the numbers below ``count``, so that the first ones are spread over all of them.

    >>> _spread_out(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    order = np.zeros(1, np.intp)
    while len(order) < count:
        order = np.concatenate([2 * order, 2 * order + 1])
    spread: npt.NDArray[np.intp] = order[order < count]
    return spread


def _episode_elements(view: MemoryView, number: int, room: int) -> str | None:
    """Return the elements of an episode's resources; ``None`` if they are longer than ``room``."""
    elements = []
    kinds = ("frames", "values") if view.agent else ("frames",)
    pieces = (f"{kind}/{number}/{piece}" for kind in kinds for piece in range(view.num_pieces(number)))
    for name in (f"episode/{number}", *pieces):
        elements.append(_element(name, view.resource(name)))
        room -= len(elements[-1])
        if room < 0:
            return None
    return "".join(elements)


def _element(name: str, content: bytes) -> str:
    encoded = base64.b64encode(content).decode()
    return f'<script type="text/plain" id="resource:{name}">{encoded}</script>\n'


def _size_of(content: bytes) -> int:
    return len(content) * 4 // 3 + TAG_BYTES


def _describe(view: MemoryView, chosen: dict[int, str], max_bytes: int) -> str:
    """Return which episodes the page has; empty if it has all."""
    total = len(view.table)
    if len(chosen) == total:
        return ""
    words = {"newest": "newest", "best": "with the best returns", "worst": "with the worst returns"}
    counts = {why: sum(one == why for one in chosen.values()) for why in words}
    parts = [f"the {count:,} {words[why]}" for why, count in counts.items() if count]
    rest = len(chosen) - sum(counts.values())
    parts += [f"{rest:,} in between"] if rest else []
    return (
        f"This page has {len(chosen):,} of {plural(total, 'episode')}, to stay within {format_bytes(max_bytes)}: "
        f"{', '.join(parts)}. A larger --max-size takes more of them, and --serve shows all."
    )
