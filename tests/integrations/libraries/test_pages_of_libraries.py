"""Each block of docs/libraries runs alone, if the library is installed."""

from __future__ import annotations

import pytest

from framestow.errors import MissingExtraError
from pages.code_blocks import LIBRARY_PAGES, blocks_of

BLOCKS = blocks_of(LIBRARY_PAGES, left_out=r"DqnReplay")  # needs the data set


def test_every_page_but_the_index_has_code():
    assert {page.stem for page in LIBRARY_PAGES} - {block.page.stem for block in BLOCKS} == {"index"}


@pytest.mark.filterwarnings("ignore")  # other libraries warn at import
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_each_block_runs_alone(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    try:
        block.run()
    except (ModuleNotFoundError, MissingExtraError) as missing:
        if str(getattr(missing, "name", "")).startswith("framestow"):
            raise
        pytest.skip(str(missing))
