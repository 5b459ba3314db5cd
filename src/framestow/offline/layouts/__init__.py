"""The layouts of logged data: ``LAYOUTS`` has one module for each. A new one is a module here, and its row below."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, get_args

from framestow.checks import one_of
from framestow.errors import InvalidSettingsError
from framestow.interface import listed
from framestow.offline.array_files import open_arrays
from framestow.offline.layouts.d3rlpy import D3RLPY
from framestow.offline.layouts.episode_arrays import Layout
from framestow.offline.layouts.episodes import EPISODES
from framestow.offline.layouts.robomimic import ROBOMIMIC
from framestow.offline.layouts.rows import ROWS
from framestow.offline.transfer import MOST_NAMED

LayoutName: TypeAlias = Literal["d4rl", "d3rlpy", "npz", "episodes", "robomimic"]

LAYOUTS: dict[LayoutName, Layout] = {
    "d4rl": ROWS,
    "d3rlpy": D3RLPY,
    "npz": ROWS,
    "episodes": EPISODES,
    "robomimic": ROBOMIMIC,
}

CONVENTIONS = (
    "row t may have the action and reward that led to observation t, and row 0 zeros (DrQ-v2, DreamerV1 and V2, "
    "v-d4rl); or the action taken at observation t (DreamerV3), which no layout here has"
)
OTHER_FILES = {
    ".npy": "one array of NumPy",
    ".pkl": "a pickle, which can run code",
    ".pickle": "a pickle, which can run code",
    ".pt": "a pickle of PyTorch, which can run code",
    ".mp4": "a video, which has no actions and rewards",
    ".zip": "an archive",
    ".tfrecord": "a file of TensorFlow",
    ".parquet": "a table",
}


def find_layout(path: Path, name: LayoutName | None) -> Layout:
    """Return the layout of this name; for ``None`` the one that the names of the file's arrays say.

    Raises:
        InvalidSettingsError: there is none of this name; or the names say none, and the message tells the layouts.
    """
    if name is not None:
        one_of("layout", name, get_args(LayoutName))
        return LAYOUTS[name]
    if path.is_dir():
        kinds = sorted({each.suffix or "no ending" for each in path.iterdir() if each.is_file()})[:MOST_NAMED]
        raise InvalidSettingsError(
            f"{path}: it is a folder of files with {listed(kinds) or 'nothing in it'}, and nothing "
            f"says how to read them; {_ways_out()}"
        )
    if path.suffix in OTHER_FILES:
        raise InvalidSettingsError(f"{path}: it is {OTHER_FILES[path.suffix]}; {_ways_out()}")
    with open_arrays(path) as file:
        names = file.names
    for layout in (D3RLPY, ROWS):
        if layout.fits(names):
            return layout
    found = listed(sorted(names)[:MOST_NAMED]) or "none"
    if {"total_size", "columns"} <= names:
        raise InvalidSettingsError(
            f"{path}: d3rlpy 2.0 wrote it; load it there, and dump it with a newer version of d3rlpy"
        )
    lacking = ROWS.missing(names)
    raise InvalidSettingsError(
        f"{path}: it has no {' and no '.join(lacking)}, but the arrays {found}; rename them as D4RL or d3rlpy, or "
        f"{_ways_out()}"
    )


def _ways_out() -> str:
    kinds = "; ".join(f"{name}: {layout.summary}" for name, layout in LAYOUTS.items() if name in CHOSEN)
    return f"say what it is by layout=, --layout ({kinds}); {CONVENTIONS}"


CHOSEN = ("episodes", "robomimic")  # layouts that are never found by the names of arrays
