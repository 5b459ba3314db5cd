"""The blocks of Python that README and docs/ show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIBRARY_PAGES = sorted((ROOT / "docs" / "libraries").glob("*.md"))
OTHER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


class CodeBlock(NamedTuple):
    """One block of a page, numbered from the page's first one."""

    page: Path
    number: int
    code: str

    @property
    def name(self) -> str:
        """``sampling-2``: the page, and the number of the block."""
        return f"{self.page.stem}-{self.number}"

    def run(self) -> None:
        """Run the block alone, as a script."""
        exec(compile(self.code, f"{self.page.name}, block {self.number}", "exec"), {"__name__": "__main__"})

    def shown(self) -> list[str]:
        """Return the lines that the comments behind the block's ``print``, or below it, say it prints."""
        pattern = r"^ *print\(.*\)(?:  |\n *)# (.*?)(?: ?\.\.\.)?$"
        return re.findall(pattern, self.code, re.MULTILINE)


def blocks_of(pages: list[Path], left_out: str) -> list[CodeBlock]:
    """Return all blocks of Python of ``pages`` in which the pattern ``left_out`` does not occur."""
    blocks = [
        CodeBlock(page, number, code)
        for page in pages
        for number, code in enumerate(PYTHON.findall(page.read_text(encoding="utf-8")), start=1)
    ]
    return [block for block in blocks if not re.search(left_out, block.code)]
