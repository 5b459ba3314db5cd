"""Manifests: intact or reported as damaged, one for each generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.storage.files.manifest import (
    generations,
    manifest_path,
    next_generation,
    read_checked,
    read_manifest,
    write_checked,
    write_manifest,
)
from oracles.power_loss import SURVIVALS, JournalledDisk, PlayedDisk

KIND, VERSION = "framestow test", 2


def newest_manifest(folder: Path, kind: str, version: int) -> dict[str, Any]:
    """Read the manifest of the newest generation, or the one without a number."""
    return read_manifest(folder, kind, version, generation=max(generations(folder), default=None))


def test_the_newest_generation_is_current(tmp_path: Path) -> None:
    for generation in (9, 10, 1_000_001, 999_999):
        write_manifest(tmp_path, KIND, VERSION, {"value": generation * 2}, generation=generation)

    newest = newest_manifest(tmp_path, KIND, VERSION)

    assert (1_000_001, 2_000_002) == (newest["generation"], newest["value"])
    assert [9, 10, 999_999, 1_000_001] == generations(tmp_path)
    assert read_manifest(tmp_path, KIND, VERSION, generation=10)["value"] == 20


def test_the_number_of_an_interrupted_generation_is_not_reused(tmp_path: Path) -> None:
    write_manifest(tmp_path, KIND, VERSION, {}, generation=3)
    (tmp_path / "MANIFEST.000004.new").touch()

    assert next_generation(tmp_path) == 5
    assert next_generation(tmp_path / "nowhere") == 1


def test_a_damaged_newest_manifest_raises_even_if_an_older_one_is_intact(tmp_path: Path) -> None:
    for generation in (1, 2):
        write_manifest(tmp_path, KIND, VERSION, {}, generation=generation)
    path = manifest_path(tmp_path, 2)
    whole = path.read_bytes()

    for offset in range(len(whole)):
        path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 4]) + whole[offset + 1 :])
        with pytest.raises(DamagedDataError, match=r"MANIFEST\.000002"):
            newest_manifest(tmp_path, KIND, VERSION)
        path.write_bytes(whole[:offset])
        with pytest.raises(DamagedDataError, match=r"MANIFEST\.000002"):
            newest_manifest(tmp_path, KIND, VERSION)


def test_a_manifest_under_the_name_of_another_generation_is_damaged(tmp_path: Path) -> None:
    write_manifest(tmp_path, KIND, VERSION, {}, generation=1)
    manifest_path(tmp_path, 1).rename(manifest_path(tmp_path, 2))

    with pytest.raises(DamagedDataError, match="generation 1 under another name"):
        newest_manifest(tmp_path, KIND, VERSION)


def test_another_version_is_not_reported_as_damage(tmp_path: Path) -> None:
    write_manifest(tmp_path, KIND, VERSION - 1, {})

    with pytest.raises(IncompatibleError, match="version 1 of a 'framestow test' and this framestow reads version 2"):
        newest_manifest(tmp_path, KIND, VERSION)


def test_a_manifest_that_survives_a_loss_of_power_names_whole_files_only(tmp_path: Path) -> None:
    folder, disk, random = tmp_path / "folder", JournalledDisk(), np.random.default_rng(0)
    folder.mkdir()
    played = PlayedDisk(folder)
    entry = write_checked(folder / "state", b"content" * 200, disk)
    write_manifest(folder, KIND, VERSION, {"state": entry}, generation=1, files=disk)

    for number, operation in enumerate(disk.journal):
        played.play(operation)
        kept = []
        for loss, survival in enumerate(SURVIVALS * 8):
            after = tmp_path / f"after {number} {loss}"
            after.mkdir()
            played.lay_out(after, survival, random)
            kept.append(generations(after))
            for generation in kept[-1]:
                manifest = read_manifest(after, KIND, VERSION, generation=generation)
                assert read_checked(after, manifest["state"]) == b"content" * 200
    assert kept == [[1]] * len(SURVIVALS * 8)  # after the last operation it is durable


def test_a_folder_without_a_manifest_is_refused_by_name(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="no framestow test was saved in this folder"):
            newest_manifest(folder, KIND, VERSION)


def test_a_checked_file_is_read_or_refused_by_name(tmp_path: Path) -> None:
    entry = write_checked(tmp_path / "state", b"content")

    assert read_checked(tmp_path, entry) == b"content"
    for damaged in (b"contents", b"conten", b"cOntent", b""):
        (tmp_path / "state").write_bytes(damaged)
        with pytest.raises(DamagedDataError, match="state: its checksum"):
            read_checked(tmp_path, entry)
    (tmp_path / "state").unlink()
    with pytest.raises(DamagedDataError, match="state: the file cannot be read"):
        read_checked(tmp_path, entry)
