"""Measured figures in README, docs and docstrings are those of the results, and a new one is not forgotten."""

from __future__ import annotations

import hashlib
import re

import pytest

from figures import RESULTS, ROOT, measured_spans, pages, renewed

PAGES = pages()
SEARCHED_PAGES = [
    *("README.md", "CITATION.cff", "CHANGELOG.md", "examples/million_transitions.ipynb"),
    *(f"docs/{name}.md" for name in ("index", "get-started", "how-it-works", "libraries", "compare", "look-inside")),
    *(f"docs/{name}.md" for name in ("train-in-4-gb", "archive-50-million", "your-own-agent", "examples", "scope")),
    *(f"docs/{name}.md" for name in ("troubleshooting", "threads", "observations", "environments")),
    *(f"docs/{name}.md" for name in ("sampling", "saving", "distributed", "packing", "benchmarks", "training")),
]
MEASUREMENT = re.compile(r"\d[\d.,]* ?(?:µs|ms|s|seconds|minutes|hours|KB|MB|GB|MiB|GiB|bytes|times|%)(?![\w%])")
FACTS = """
sizes of arrays: 56 GB, 56.4 GB, 5.6 GB and 0.56 GB of stacked pairs of 7,056 bytes a frame; 28 KB of a stack
and 226 GB of such pairs as float32
formats: 12 bytes a step, 9 bytes of scalars, 8 bytes a number, 4 bytes an index, 24 bytes of a header, or 0.15 %
of an index: 32 bytes a block in its file, 24 bytes in RAM
worked out: 4.8 bytes of a priority with its share of the sums
settings: 1 GiB and 2 GiB of a memory, 50 MB of a page, 32 MiB between two writes, 60 s and 5 s to wait for workers
30 s and 120 s to wait for a shard and an actor
5 ms between two of Python's threads and of a learner that waits
8 GiB for a benchmark's buffer, 96 MiB for a test's memory
of a training: 10 s between two lines, 5 minutes of a game, 2.5 % of a layer's mean, 3 MB of a clip, 7 GB raw
95 % of an interval from runs drawn 10,000 times
trials whose conditions stand with them: a cache of 16 MB
limits: 64 MiB and 1 MiB of /dev/shm, 8 MiB that wait for readers, 64 bytes behind a segment
a free machine has 12 GB; the operations of an example keep 500 bytes
packing: 0 to 3 bytes a pixel, loads of 16 bytes, 32 KB prefetched, stores of 64 MB in the benchmark
"""  # what is not measured
SECTIONS_WITHOUT_RESULTS = {
    "docs/packing.md": [
        *("A patch", "Patches of pixels"),  # the format's own lengths
        "What was tried",  # earlier builds, each table with its conditions
    ],
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_the_results_say(page):
    """If this fails, run `python benchmarks/figures.py --write`."""
    _, wrong = renewed((ROOT / page).read_text(encoding="utf-8"), PAGES[page])

    assert [] == wrong


@pytest.mark.parametrize("page", SEARCHED_PAGES)
def test_every_measured_number_of_a_page_comes_from_a_result(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for first, last in measured_spans(text, PAGES.get(page, [])):
        text = text[:first] + re.sub(r"\d", "#", text[first:last]) + text[last:]
    for section in SECTIONS_WITHOUT_RESULTS.get(page, []):
        text = re.sub(rf"^## {section}\n.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE)
    without_outputs = re.sub(r'^   "outputs": \[$.*?^   \],$', "", text, flags=re.DOTALL | re.MULTILINE)
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", without_outputs, flags=re.DOTALL)

    found = {" ".join(number.split()) for number in MEASUREMENT.findall(without_code)}
    assert set() == {number for number in found if not re.search(rf"(?<!\d){re.escape(number)}", FACTS)}


def test_the_readmes_picture_shows_the_result_that_it_lies_beside():
    """If this fails, run `python benchmarks/readme_picture.py`."""
    folder = RESULTS / "bench-breakout"
    digest = hashlib.sha256((folder / "Breakout.json").read_bytes()).hexdigest().encode()

    assert [True, True] == [digest in (folder / name).read_bytes() for name in ("bench.png", "bench-dark.png")]
