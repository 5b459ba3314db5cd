"""A library that is too old has another error than one that is absent, with both versions and the command."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from framestow.errors import MissingExtraError
from framestow.extras import check_library, installed_version, least_versions

ROOT = Path(__file__).parents[1]
DOORS = {  # what a user writes that needs the library, and how the message calls that
    "gymnasium": ("from framestow.envs import Recorder", "framestow.envs"),
    "ale-py": ("from framestow.envs import make_atari", "framestow.envs"),
    "torch": ("import framestow.torch", "framestow.torch"),
    "jax": ("import framestow.jax", "framestow.jax"),
    "minari": ("from framestow.offline import MinariData; MinariData.open('nowhere')", "a Minari dataset"),
    "h5py": ("from framestow.offline.array_files import load_h5py; load_h5py()", "an HDF5 file"),
    "tianshou": ("import framestow.integrations.tianshou", "its drop-in"),
    "torchrl": ("import framestow.integrations.torchrl", "its drop-in"),
    "stable-baselines3": ("import framestow.integrations.stable_baselines3", "its drop-in"),
    "ray": ("from framestow.distributed import start_cluster; start_cluster()", "framestow.distributed"),
    "tensorboard": ("from framestow.training import Settings", "framestow.training"),
    "tyro": ("from framestow.cli import main; main(['inspect', 'nowhere'])", None),
}
TRY_EACH = """
import sys
for line in sys.stdin.read().splitlines():
    folder, code = line.split(maxsplit=1)
    sys.path.insert(0, folder)
    try:
        exec(code, {})
    except ImportError as error:
        print(type(error).__name__, error)
    sys.path.remove(folder)
"""


def installed(library: str, version: str, folder: Path) -> Path:
    """Return a folder that, on the path, lets ``library`` be installed in ``version``."""
    metadata = folder / f"of-{library}" / f"{library.replace('-', '_')}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: {library}\nVersion: {version}\n")
    return metadata.parent.parent


@pytest.mark.slow
def test_each_way_into_framestow_names_a_library_that_is_too_old_with_both_versions_and_the_command(tmp_path):
    lines = [f"{installed(library, '0.0.1', tmp_path)} {code}" for library, (code, _) in DOORS.items()]

    finished = subprocess.run(
        [sys.executable, "-c", TRY_EACH], input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True
    )

    messages = (finished.stdout + finished.stderr.replace("error: ", "MissingExtraError ")).splitlines()
    expected = []
    for library, (_, what) in DOORS.items():
        least = least_versions()[library]
        expected.append(
            f"MissingExtraError {library} is 0.0.1: {what or 'framestow inspect'} needs version {least} or newer; "
            f'run: pip install "{library}>={least}"'
        )
    assert expected == messages


@pytest.mark.parametrize(("version", "is_refused"), [("1.0.9", True), ("1.1", False), ("1.1.0a1", False), ("2", False)])
def test_the_least_version_itself_is_taken(version, is_refused, tmp_path, monkeypatch):
    assert "1.1" == least_versions()["gymnasium"]
    monkeypatch.syspath_prepend(installed("gymnasium", version, tmp_path))
    assert version == installed_version("gymnasium")

    if is_refused:
        with pytest.raises(MissingExtraError, match=f"gymnasium is {re.escape(version)}: a test needs version 1.1"):
            check_library("a test", "gymnasium")
    else:
        check_library("a test", "gymnasium")


def test_a_library_that_is_not_installed_is_not_too_old():
    assert installed_version("no-such-library") is None
    check_library("a test", "no-such-library")


def test_pyproject_has_one_least_version_for_each_library_and_the_installed_metadata_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_users = {extra: needs for extra, needs in project["optional-dependencies"].items() if extra != "test"}
    found: dict[str, set[str]] = {}
    for requirement in (each for needs in of_users.values() for each in needs):
        name, least = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(?:>=([\d.]+))?", requirement).groups()
        if name != "framestow":
            found.setdefault(name, set()).add(least)

    assert [] == [name for name, versions in found.items() if len(versions) != 1 or None in versions]
    assert {name: versions.pop() for name, versions in found.items()}.items() <= least_versions().items(), (
        "the installed metadata is older than pyproject.toml; run: make prepared"
    )
    assert least_versions("atari") == {"gymnasium": "1.1", "ale-py": "0.12", "opencv-python-headless": "4.8"}
