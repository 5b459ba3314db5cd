"""Minari as a library: loaded when it is needed, its datasets found by name or folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from framestow.errors import DamagedDataError, InvalidSettingsError, MissingExtraError
from framestow.offline.unfinished_folder import bytes_of_folder


def load_minari() -> Any:
    """Import Minari; raise ``MissingExtraError`` where it is not installed."""
    try:
        import minari  # noqa: PLC0415 -- it needs an extra, and takes a second
        import minari.dataset.minari_storage  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            f"Minari datasets need {missing.name}: it is part of the extra 'offline', which is not installed; "
            'run: pip install "framestow[offline]"'
        ) from missing
    return minari


def open_dataset(dataset: str | Path) -> Any:
    """Open a ``minari.MinariDataset``: one by its folder, or by its id one that lies on this machine.

    Raises ``InvalidSettingsError`` where there is none, ``MissingExtraError`` where what reads its files is not
    installed, ``DamagedDataError`` where Minari cannot read it.
    """
    minari = load_minari()
    folder = _folder_of(Path(dataset))
    try:
        return minari.load_dataset(str(dataset)) if folder is None else minari.MinariDataset(folder)
    except FileNotFoundError as error:
        raise InvalidSettingsError(
            f"{dataset}: there is no folder of that name with a Minari dataset, and no dataset of that id on this "
            f"machine; fetch it with: minari download {dataset}"
        ) from error
    except ImportError as missing:
        raise MissingExtraError(f"{dataset}: {missing}") from missing
    except (ValueError, KeyError, AssertionError) as error:
        raise DamagedDataError(f"{dataset}: Minari cannot read it: {error}; fetch it again") from error


def has_lossy_pictures(dataset: Any) -> bool:
    """Whether Minari keeps pictures among the observations of an open dataset as JPEG, as it does by default."""
    is_image_space = load_minari().dataset.minari_storage.is_image_space
    spaces = _arrays_in(dataset.observation_space)
    return bool(dataset.storage.metadata.get("jpeg_encoding", True) and any(map(is_image_space, spaces)))


def bytes_of_dataset(dataset: Any) -> int:
    """Bytes of the files of an open dataset."""
    return bytes_of_folder(Path(dataset.storage.data_path))


def _arrays_in(space: Any) -> Iterator[Any]:
    """The spaces of the arrays in ``space``, which may be a dict or tuple of others."""
    parts = getattr(space, "spaces", None)
    if parts is None:
        yield space
    else:
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from _arrays_in(part)


def _folder_of(path: Path) -> Path | None:
    for folder in (path, path / "data"):
        if (folder / "metadata.json").is_file():
            return folder
    return None
