"""docs/packing.md, the tables of docs/decisions/core.md, and the bytes of scripted players in docs/saving.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import geometric_mean

from figures import Pages, figure, result, spread, table

packing = result("packing")
segments = result("segment_lengths")["frames_per_segment"]
compressed = result("entropy_coding")["rows"]
frames, sets = packing["frames"], packing["sets"]


def to_320(key: str) -> float:
    """Return how many times as much segments of 640 frames take as those of 320."""
    return float(segments["640"][key] / segments["320"][key])


def title(name: str) -> str:
    return " ".join(word.capitalize() for word in name.replace("-", "_").split("_"))


def largest_of_atari_100k(count: int) -> list[str]:
    """Return the games whose frames take the most bytes."""
    names = sorted(sets["Atari-100k"]["names"], key=lambda name: -float(frames[name]["bytes_per_frame"]))
    return [title(name).replace(" ", "") for name in names[:count]]


def cells(row: Mapping[str, float], is_mean: bool = False) -> list[str]:
    kept_raw = "" if is_mean else f"{100 * row['raw_segments']:.0f} %"
    return [
        f"{row['bytes_per_frame']:,.0f}",
        f"{100 * row['of_raw']:.1f} %",
        kept_raw,
        f"{row['read_us']:,.0f}",
        f"{row['ratio_to_bare_copy']:.2f}",
        f"{row['pack_us']:.1f}",
        f"{row['pack_mean_us']:.1f}",
    ]


def set_rows(names: list[str], mean_of: str = "", mean: str = "geometric mean") -> Iterator[list[str]]:
    for name in names:
        yield [title(name), *cells(frames[name])]
    if mean_of:
        yield [f"*{mean}*", *cells(sets[mean_of]["geometric_mean"], is_mean=True)]


def segment_rows() -> Iterator[list[str]]:
    for length, row in segments.items():
        times = [f"{row['mean_window_us']:.1f} µs", f"{row['mean_window_from_file_us']:.1f} µs"]
        yield [f"{int(length):,}", f"{row['mean_bytes']:.0f}", *times, f"{row['seal_us'] / 1000:.1f} ms"]


def compressed_rows() -> Iterator[list[str]]:
    def mean(key: str, length: int) -> float:
        return geometric_mean(row[key] for name, row in compressed.items() if name.endswith(f", {length}"))

    for name, key in (
        ("packed", "packed"),
        ("whole segments", "whole"),
        ("blocks of 1.5 KB, each with the segment's own front as prefix", "alone"),
        ("the same with a dictionary for the game", "dictionary"),
    ):
        cells = []
        for length in (320, 1_280):
            read = "1" if key == "packed" else f"{mean(f'{key}_read', length):.1f}"
            cells += [f"{mean(key, length):.0f}", read]
        yield [name, *cells]


HEADS = [
    "frames",
    "bytes a frame",
    "of raw",
    "kept raw",
    "µs a batch",
    "to the bare copy",
    "µs to pack one, median",
    "mean",
]
_ten = sets["the ten"]["names"]
_rest = [name for name in sorted(sets["Atari-100k"]["names"]) if name not in _ten]
_restless = [
    row
    for name, row in frames.items()
    if name.startswith(("doom", "mini_world", "walker")) and not name.endswith("grey")
]
_scenes = [*set_rows(sets["scenes"]["names"], "scenes"), *set_rows(sets["colour"]["names"])]
_krull, _up_n_down = (figure(frames[name]["bytes_per_frame"]) for name in ("krull", "up_n_down"))
_more = {
    name: 100 * (frames[f"{name}-scripted"]["bytes_per_frame"] / frames[name]["bytes_per_frame"] - 1)
    for name in (scripted.removesuffix("-scripted") for scripted in sets["scripted"]["names"])
}

PAGES: Pages = {
    "docs/decisions/core.md": [
        table(
            ["frames in a segment", "bytes a frame", "window from RAM", "from a file", "append that ends a segment"],
            segment_rows(),
        ),
        table(["", "320 frames a segment", "", "1,280 frames", ""], compressed_rows()),
    ],
    "docs/packing.md": [
        table(HEADS, set_rows(_ten, "the ten")),
        table(HEADS, set_rows(_rest, "Atari-100k", "geometric mean of all 26")),
        table(HEADS, set_rows(sets["scripted"]["names"], "scripted")),
        f"a batch of colour takes {spread((row['read_us'] / 1e3 for row in _restless), '.1f')} ms, up to "
        f"{figure(max(row['ratio_to_bare_copy'] for row in _restless))} times the bare copy",
        table(HEADS, _scenes),
        table(HEADS, set_rows(sets["synthetic"]["names"])),
        f"Krull and UpNDown, whose whole screens move, take {_krull} and {_up_n_down} bytes",
        f"Over ten games they take {figure(100 * (1 - to_320('mean_bytes')))} % fewer bytes than 320 frames. A window "
        f"is read in {figure(to_320('mean_window_us'), '.2f')} times the time from RAM, and in "
        f"{figure(to_320('mean_window_from_file_us'), '.2f')} times from a file",
    ],
    "docs/saving.md": [
        table(
            ["game", "more bytes"], ([title(name).replace(" ", ""), f"{more:+.0f} %"] for name, more in _more.items())
        ),
    ],
}
