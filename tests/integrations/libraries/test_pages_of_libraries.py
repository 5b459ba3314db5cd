"""The code of docs/libraries runs as its reader has it after the change, if the library is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from framestow.errors import MissingExtraError

PAGES = sorted((Path(__file__).parents[3] / "docs" / "libraries").glob("*.md"))
BLOCK = re.compile(r"```(python|diff)\n(.*?)```", re.DOTALL)


def code_of(page):
    """Return the blocks of Python and the new lines of the differences, one after the other."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    return "".join(code if kind == "python" else re.sub(r"^-.*\n|^[+ ]", "", code, flags=re.M) for kind, code in blocks)


WITH_CODE = [page for page in PAGES if page.stem != "logged-data" and code_of(page)]  # its code needs the data set


def test_every_page_but_the_index_and_that_of_data_has_code():
    assert {page.stem for page in PAGES} - {page.stem for page in WITH_CODE} == {"index", "logged-data"}


@pytest.mark.filterwarnings("ignore")  # other libraries warn at import
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    try:
        exec(compile(code_of(page), page.name, "exec"), {"__name__": "__main__"})
    except (ModuleNotFoundError, MissingExtraError) as missing:
        if str(getattr(missing, "name", "")).startswith("framestow"):
            raise
        pytest.skip(str(missing))
