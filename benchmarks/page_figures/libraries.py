"""docs/libraries.md."""

from __future__ import annotations

from collections.abc import Iterator

from drop_ins import page_table
from figures import Pages, figure, result, table
from page_figures.front import ADD, BUILD_OF_TORCH

MIB, GIB = 2**20, 2**30

training = result("drop_in_training")["buffers"]
lazy_frames = result("lazy_frames")["bytes_per_observation"]
logged = result("offline")["games"]["Breakout"]
mario = result("super_mario")["kinds"]


def training_rows() -> Iterator[list[str]]:
    first = training["framestow"]["weights"]
    for name, key in (
        ("framestow's", "framestow"),
        ("Stable-Baselines3's", "Stable-Baselines3"),
        ("the same, `optimize_memory_usage` (gives up truncation)", "optimize_memory_usage"),
    ):
        row = training[key]
        weights = (
            f"`{first}`" if key == "framestow" else "the same" if row["weights"] == first else f"`{row['weights']}`"
        )
        process = row["resident_bytes_of_a_million"] / GIB
        yield [name, f"{row['steps_a_second']:.0f}", f"{process:.{2 if process < 1 else 1}f} GiB", weights]


def lazy_rows() -> Iterator[list[str]]:
    for name, key in (
        ("arrays of `FrameStackObservation`", "arrays of Gymnasium's FrameStackObservation"),
        ("`LazyFrames` of Baselines", "LazyFrames as Baselines'"),
        ("`LazyFrames` of framestow", "LazyFrames of framestow"),
        ("a `ReplayMemory` with the same frames", "a ReplayMemory"),
    ):
        yield [name, *(f"{lazy_frames[key][when]:,.0f}" for when in ("kept", "looked_at"))]


_store, _minari = (logged[kind]["file_bytes"] / logged["transitions"] for kind in ("store", "minari"))
_grey, _colour, _screen = (
    [figure(mario[kind][key]) for key in ("bytes a frame", "bytes a frame, plain")]
    for kind in ("84x84 grey", "84x84 colour", "240x256 colour")
)

_own, _numpy = (figure(each["peak_resident_bytes"] / MIB) for each in result("same_training")["trainings"])

PAGES: Pages = {
    "docs/libraries.md": [
        f"a store of {figure(_store)} bytes a step instead of {figure(_minari)}",
        ADD,
        BUILD_OF_TORCH,
        page_table(result("drop_ins")["libraries"]),
        table(
            ["buffer", "steps a second", "process with a million transitions", "weights in the end"], training_rows()
        ),
        table(["kept as", "at first", "after each was converted to an array"], lazy_rows()),
        f"process takes {_own} MiB instead of {_numpy}",
        f"A frame of 84x84 takes {_grey[0]} bytes in grey and {_colour[0]} in colour, instead of {_grey[1]} and "
        f"{_colour[1]}. The whole screen, unscaled, takes {_screen[0]} bytes instead of {_screen[1]}",
    ],
}
