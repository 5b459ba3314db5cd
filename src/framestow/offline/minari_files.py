"""Opens Minari datasets, which anyone may have made: reads only files of their folder and runs no code.

Minari builds the environment that a dataset names if the dataset lacks a space, h5py follows links to other files, and
Pillow starts Ghostscript for a picture that is PostScript. ``open_files`` and ``MinariFiles.read`` refuse these, and
sizes that their bytes cannot hold, before Minari reads anything.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framestow.checks import any_path
from framestow.errors import DamagedDataError, InvalidSettingsError, MissingExtraError
from framestow.extras import check_extra, missing_extra
from framestow.frames.frame_spec import MAX_FRAME_BYTES, MAX_ITEM_BYTES
from framestow.offline.array_files import check_dataset, linked, load_h5py
from framestow.offline.transfer import MOST_INFLATION, reason
from framestow.storage.files.file_system import DISK

METADATA = "metadata.json"
HAS_BEGINNING, HAS_END = "framestow_has_beginning", "framestow_has_end"  # metadata of an exported episode
MAX_EPISODE_BYTES = 2**32  # of arrays in RAM; one episode is read at a time
MAX_NAME = 200  # characters of an id
MAX_DEPTH, MAX_PARTS = 16, 10_000  # of the groups in an episode


def load_minari() -> Any:
    """Import Minari; raise ``MissingExtraError`` if it or a library with it is not installed, or too old."""
    check_extra("a Minari dataset", "offline")
    try:
        import minari  # noqa: PLC0415 -- needs an extra, and takes a second
        import minari.dataset.minari_storage  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise missing_extra("a Minari dataset", missing.name, "offline") from missing
    return minari


@dataclass(frozen=True)
class MinariFiles:
    """The files of a dataset. ``environment`` is the id of the environment that was recorded, if it is known."""

    storage: Any
    folder: Path
    id: str
    environment: str | None
    total_episodes: int
    total_steps: int
    file_bytes: int

    def has_lossy_pictures(self) -> bool:
        """Return whether the dataset stores image observations as JPEG, Minari's default."""
        return any(True for _ in self._jpeg_paths(self.storage.observation_space, ""))

    def read(self, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return an episode's arrays and its metadata.

        Raises:
            DamagedDataError: the episode cannot be read, or leads out of its file, or takes more than 4 GiB.
        """
        try:
            if self.storage.FORMAT == "hdf5":
                self._check_episode(f"episode_{number}")
            data = next(iter(self.storage.get_episodes([number])))
            [metadata] = self.storage.get_episode_metadata([number])
        except Exception as error:  # of many kinds, by what is damaged
            raise DamagedDataError(
                f"{self.id}: episode {number}: Minari cannot read it: {reason(error)}; download the dataset again"
            ) from error
        return data, metadata

    def _check_episode(self, name: str) -> None:
        """Raise ``ValueError`` unless all of an episode is in its file, with arrays that the file can hold."""
        with load_h5py().File(self.folder / "main_data.hdf5", "r") as file:
            num_bytes = 0
            for parts, dataset in enumerate(_datasets(file, name, 0)):
                check_dataset(dataset)
                num_bytes += math.prod(dataset.shape or ()) * dataset.dtype.itemsize
                if num_bytes > MAX_EPISODE_BYTES:
                    raise ValueError(f"{dataset.name!r} has {dataset.nbytes:,} bytes")
                if parts >= MAX_PARTS:
                    raise ValueError(f"it has more than {MAX_PARTS:,} parts")
            for part, space in (
                ("observations", self.storage.observation_space),
                ("actions", self.storage.action_space),
            ):
                for path, picture in self._jpeg_paths(space, f"{name}/{part}"):
                    _check_pictures(file[path], picture.shape[:2])
                    num_bytes += len(file[path]) * math.prod(picture.shape)
            if num_bytes > MAX_EPISODE_BYTES:
                raise ValueError(f"it takes {num_bytes:,} bytes, more than {MAX_EPISODE_BYTES:,}")

    def _jpeg_paths(self, space: Any, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the paths and spaces of the pictures in ``space`` that are stored as JPEG."""
        is_image_space = load_minari().dataset.minari_storage.is_image_space
        parts = getattr(space, "spaces", None)
        if parts is None:
            if self.storage.jpeg_encoding and is_image_space(space):
                yield path, space
        else:
            of_tuple = ((f"_index_{index}", part) for index, part in enumerate(parts))
            for key, part in parts.items() if isinstance(parts, dict) else of_tuple:
                yield from self._jpeg_paths(part, f"{path}/{key}")


def open_files(dataset: str | Path) -> MinariFiles:
    """Open the dataset in a folder, or the local dataset with this id.

    Raises:
        InvalidSettingsError: there is none.
        MissingExtraError: a package for its file format is missing.
        DamagedDataError: it cannot be read, or its folder has links or other things that are no files.
    """
    minari = load_minari()
    folder = _folder_of(any_path("dataset", dataset))
    if folder is None:
        from minari.storage.datasets_root_dir import get_dataset_path  # noqa: PLC0415 -- needs the extra

        folder = _folder_of(get_dataset_path(str(dataset)))
    if folder is None:
        raise InvalidSettingsError(
            f"{dataset}: there is no folder with a Minari dataset of this name, and no local dataset with this id; "
            f"download it with: minari download {dataset}"
        )
    file_bytes = _checked_bytes(folder)
    try:
        metadata = json.loads(DISK.read(folder / METADATA))
        for name in ("observation_space", "action_space"):
            if name not in metadata:
                raise ValueError(f"it has no {name}, and the code of its environment is not run")
            _check_space(json.loads(metadata[name]))
        environment = json.loads(metadata["env_spec"])["id"] if metadata.get("env_spec") else None
        return MinariFiles(
            minari.dataset.minari_storage.MinariStorage.read(folder),
            folder,
            _checked_name(metadata["dataset_id"]),
            None if environment is None else _checked_name(environment),
            _checked_count(metadata["total_episodes"], file_bytes),
            _checked_count(metadata["total_steps"], MOST_INFLATION * file_bytes),
            file_bytes,
        )
    except ImportError as missing:
        raise MissingExtraError(f"{dataset}: Minari lacks a package ({missing}); install that package") from missing
    except Exception as error:  # of many kinds, by what is damaged
        raise DamagedDataError(f"{dataset}: Minari cannot read it: {reason(error)}; download it again") from error


def _folder_of(path: Path) -> Path | None:
    for folder in (path, path / "data"):
        if (folder / METADATA).is_file() and DISK.is_folder(folder, follow_links=folder == path):
            return folder
    return None


def _checked_bytes(folder: Path) -> int:
    """Return the bytes of all files in ``folder``; raise ``DamagedDataError`` for anything that is no file."""
    num_bytes = 0
    for parent, folders, files in os.walk(folder):
        for name in folders:
            DISK.is_folder(Path(parent, name))  # raises for a link
        num_bytes += sum(DISK.size(Path(parent, name)) for name in files)
    return num_bytes


def _datasets(group: Any, name: str, depth: int) -> Iterator[Any]:
    """Yield all datasets below ``group[name]``; raise ``ValueError`` for a link."""
    h5py = load_h5py()
    found = linked(group, name)
    if isinstance(found, h5py.Dataset):
        yield found
    elif depth < MAX_DEPTH and isinstance(found, h5py.Group):
        for each in found:
            yield from _datasets(found, each, depth + 1)
    else:
        raise ValueError(f"{name!r} is {MAX_DEPTH} groups deep, or neither a group nor a dataset")


def _check_pictures(dataset: Any, shape: tuple[int, ...]) -> None:
    """Raise unless all pictures of a dataset are JPEG files of this height and width."""
    from PIL import Image  # noqa: PLC0415 -- Minari needs it for pictures

    for content in dataset:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if picture.size[::-1] != shape:
                raise ValueError(f"a picture of {dataset.name!r} has {picture.size[::-1]} pixels, not {shape}")


def _check_space(state: Any) -> None:
    """Raise unless the arrays of a space, as Minari writes it, have small dtypes and shapes, and keys are printable."""
    if "shape" in state and math.prod(state["shape"]) > MAX_FRAME_BYTES:
        raise ValueError(f"a space has the shape {state['shape']}")
    if "dtype" in state:
        dtype = np.dtype(state["dtype"])
        if dtype.kind not in "biuf" or dtype.itemsize > MAX_ITEM_BYTES:
            raise ValueError(f"a space has the dtype {dtype}")
    parts = state.get("subspaces", [])
    for key in parts if isinstance(parts, dict) else ():
        _checked_name(key)
    for part in parts.values() if isinstance(parts, dict) else parts:
        _check_space(part)


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name.isprintable() or len(name) > MAX_NAME:
        raise ValueError(f"a name is {ascii(name)[:MAX_NAME]}: names are at most {MAX_NAME} printable characters")
    return name


def _checked_count(count: Any, most: int) -> int:
    """Return a number of episodes or steps that files of this size can have."""
    if type(count) is not int or not 0 <= count <= most:
        raise ValueError(f"it has {count!r} episodes or steps, where its files can hold up to {most:,}")
    return count
