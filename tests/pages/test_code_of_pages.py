"""Each block of Python of README and docs/ runs alone, and prints what its comments say."""

from __future__ import annotations

import multiprocessing

import pytest

from pages.code_blocks import LIBRARY_PAGES, OTHER_PAGES, blocks_of

# `make jax` runs those for JAX, `make distributed` that for a Ray cluster with a GPU.
BLOCKS = blocks_of(OTHER_PAGES, left_out=r"framestow\.(jax|distributed)")
WIDTH = 76  # columns that the site shows at 1,280 pixels


@pytest.fixture
def forked_workers():
    """A block's classes are in no module that a spawned process could import; other tests may change the default."""
    before = multiprocessing.get_start_method(allow_none=True)
    if "fork" in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
@pytest.mark.usefixtures("forked_workers")
def test_each_block_runs_alone_and_prints_what_its_comments_say(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    block.run()

    printed = capsys.readouterr().out.splitlines()
    assert [line for line in block.shown() if not any(each.startswith(line) for each in printed)] == [], printed


@pytest.mark.parametrize("page", [*OTHER_PAGES, *LIBRARY_PAGES], ids=lambda page: page.stem)
def test_the_site_shows_every_line_of_code_whole(page):
    inside, wide = False, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        inside ^= line.startswith("```")
        if inside and len(line) > (80 if page.stem == "commands" else WIDTH):
            wide.append(f"line {number}: {line}")

    assert wide == []
