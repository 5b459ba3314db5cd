"""Draw the README's picture from the committed result of ``framestow bench``, for a light and for a dark page.

python benchmarks/readme_picture.py

Reads ``results/bench-breakout/Breakout.json``; writes ``bench.png`` and ``bench-dark.png`` beside it. Measures nothing.
Each picture has the SHA-256 of that file as its description, by which a test finds an outdated picture.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from framestow.benchmarking.measurement import BenchFigures, LeftOut, SystemFigures
from framestow.benchmarking.report import DARK, LIGHT, write_plot

FOLDER = Path(__file__).parent / "results" / "bench-breakout"


def main() -> None:
    result = FOLDER / "Breakout.json"
    figures, digest = read_figures(result), hashlib.sha256(result.read_bytes()).hexdigest()
    for colours, name in ((LIGHT, "bench.png"), (DARK, "bench-dark.png")):
        print(write_plot([figures], FOLDER / name, colours, digest))


def read_figures(path: Path) -> BenchFigures:
    """Read the figures that ``framestow bench`` wrote to ``path``."""
    result = json.loads(path.read_text(encoding="utf-8"))
    result["bare_copy"] = _of(SystemFigures, result["bare_copy"])
    result["systems"] = tuple(_of(SystemFigures, row) for row in result["systems"])
    result["left_out"] = tuple(_of(LeftOut, row) for row in result["left_out"])
    result["frame_shape"] = tuple(result["frame_shape"])
    return _of(BenchFigures, result)


def _of(kind: Any, row: dict[str, Any]) -> Any:
    """Make a ``kind`` of those entries of ``row`` that are its fields; the others are machine, command and ratios."""
    return kind(**{field.name: row[field.name] for field in fields(kind)})


if __name__ == "__main__":
    main()
