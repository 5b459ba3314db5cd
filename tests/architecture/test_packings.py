"""A packing has its page, its inputs for the fuzz harnesses, and its name in the table of encodings."""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

REPO = Path(__file__).parents[2]
HEADER = (REPO / "src/framestow/_core/packings/encodings.hpp").read_text(encoding="utf-8")
ENCODING_BYTE = 6  # of a segment's header
MARK = 0xF5  # its byte 4


def encodings() -> dict[int, str]:
    """The numbers and names of the enumeration ``Encoding``."""
    (members,) = re.findall(r"enum class Encoding[^{]*{([^}]*)}", HEADER)
    return {int(number): name for name, number in re.findall(r"(k\w+) = (\d+)", members)}


def test_every_encoding_has_a_row_of_the_table():
    (rows,) = re.findall(r"kEncodings = {{(.*?)}};", HEADER, re.DOTALL)

    assert list(encodings()) == list(range(rows.count("{unpack")))


def test_every_encoding_stands_on_the_page_of_the_format():
    page = (REPO / "docs/packing.md").read_text(encoding="utf-8")

    (cell,) = re.findall(r"\| encoding: (.*) \|", page)
    assert list(encodings()) == [int(number) for number in re.findall(r"(\d+) ", cell)]


def test_every_encoding_has_segments_in_the_fuzz_corpus():
    with tarfile.open(REPO / "native_tests/fuzz/corpus.tar.xz") as corpus:
        files = [file for file in corpus if file.isfile() and file.name.startswith("any_segment/")]
        contents = [opened.read() for file in files if (opened := corpus.extractfile(file))]

    found = {content[ENCODING_BYTE] for content in contents if len(content) > ENCODING_BYTE and content[4] == MARK}
    assert set() == encodings().keys() - found, "run make corpus"
