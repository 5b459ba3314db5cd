"""A Minari dataset that a stranger made leads nowhere, runs nothing, and takes no more memory than its bytes hold."""

from __future__ import annotations

import io
import json
import re
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from framestow import ReplayMemory
from framestow.errors import DamagedDataError, FramestowError, InvalidSettingsError, InvalidStepError
from framestow.offline.minari import MinariData
from oracles.hostile_folders import NO_FILES, Outside

minari = pytest.importorskip("minari", reason='Minari is not installed; run: pip install "framestow[offline]"')
h5py = pytest.importorskip("h5py")
from minari.data_collector.episode_buffer import EpisodeBuffer  # noqa: E402
from minari.dataset.minari_storage import MinariStorage  # noqa: E402
from PIL import Image  # noqa: E402

SHAPE = (40, 40)  # large enough for Minari to write JPEG


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two episodes of three steps, with infos."""
    made = tmp_path / "made"
    storage = MinariStorage.new(made, Box(0, 255, SHAPE, np.uint8), Discrete(6))
    storage.update_metadata({"dataset_id": "made/here-v0", "minari_version": minari.__version__})
    steps = {"actions": np.zeros(3, int), "rewards": np.zeros(3), "infos": {"lives": [3] * 4}}
    ends = {"terminations": np.array([False, False, True]), "truncations": np.zeros(3, bool)}
    storage.update_episodes(
        EpisodeBuffer(observations=np.full((4, *SHAPE), value, np.uint8), **steps, **ends) for value in (10, 20)
    )
    return made


def import_it(folder: Path, **options) -> ReplayMemory:
    data = MinariData.open(folder, **options)
    memory = ReplayMemory(100, data.frame, data.action, stack=1, seed=0)
    data.import_into(memory)
    return memory


Put = Callable[[h5py.Group, str, Path], object]
"""Puts something under a name of an episode; the folder is outside, with the file secret.h5."""


def external_link(group: h5py.Group, name: str, outside: Path) -> None:
    group[name] = h5py.ExternalLink(str(outside / "secret.h5"), "rewards")


def soft_link(group: h5py.Group, name: str, _: Path) -> None:
    group[name] = h5py.SoftLink("/episode_0/rewards")


def cycle(group: h5py.Group, name: str, _: Path) -> None:
    group[name] = group


def external_storage(group: h5py.Group, name: str, outside: Path) -> None:
    group.create_dataset(name, (3,), "f8", external=[(str(outside / "secret.h5"), 0, 24)])


def virtual(group: h5py.Group, name: str, outside: Path) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(outside / "secret.h5"), "rewards", (3,))
    group.create_virtual_dataset(name, layout)


def bytes_from_nothing(group: h5py.Group, name: str, _: Path) -> None:
    group.create_dataset(name, (10**10,), "f8", chunks=(100,))


def filtered(group: h5py.Group, name: str, _: Path) -> None:
    group.create_dataset(name, data=np.zeros(3), fletcher32=True)


def large_chunks(group: h5py.Group, name: str, _: Path) -> None:
    group.create_dataset(name, data=np.zeros(3), maxshape=(None,), chunks=(2**24,), compression="gzip")


def values(data: object) -> Put:
    return lambda group, name, _: group.create_dataset(name, data=data)


def pictures(size: tuple[int, int], picture_format: str) -> Put:
    written = io.BytesIO()
    Image.new("L", size, 10).save(written, picture_format)
    return values(np.stack([np.frombuffer(written.getvalue(), np.uint8)] * 4))


HOSTILE_EPISODES = {
    "external link": ("rewards", external_link),
    "external link in infos": ("infos/lives", external_link),
    "soft link": ("rewards", soft_link),
    "cycle": ("infos/lives", cycle),
    "external storage": ("rewards", external_storage),
    "virtual dataset": ("rewards", virtual),
    "bytes from nothing": ("rewards", bytes_from_nothing),
    "bytes from nothing in infos": ("infos/lives", bytes_from_nothing),
    "another filter": ("rewards", filtered),
    "chunks of 128 MiB": ("rewards", large_chunks),
    "larger pictures": ("observations", pictures((8000, 8000), "JPEG")),
    "PostScript": ("observations", pictures(SHAPE, "EPS")),
    "no pictures": ("observations", values(np.zeros((4, 30), np.uint8))),
    "text as rewards": ("rewards", values(["a", "b", "c"])),
    "one flag": ("truncations", values(True)),
    "no flags": ("truncations", lambda *_: None),
}


@pytest.mark.parametrize("hostile", HOSTILE_EPISODES)
def test_a_hostile_episode_is_refused_and_named_or_left_out(hostile: str, folder: Path, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    with h5py.File(outside / "secret.h5", "w") as file:
        file["rewards"] = np.ones(3)
    with h5py.File(folder / "main_data.hdf5", "a") as file:
        name, put = HOSTILE_EPISODES[hostile]
        del file["episode_1"][name]
        put(file["episode_1"], name, outside)
    tracemalloc.start()
    try:
        with pytest.raises(
            (DamagedDataError, InvalidStepError),
            match=r"made/here-v0: episode 1: .*; or leave such episodes out",
        ):
            import_it(folder)

        assert len(import_it(folder, skip_bad=True)) == 3
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def box(**state) -> str:
    return json.dumps({"type": "Box", "dtype": "uint8", "shape": [5, 3], "low": 0, "high": 255} | state)


RUNS_CODE = json.dumps(
    {"id": "Mine-v0", "entry_point": "pathlib:Path.touch", "additional_wrappers": [], "kwargs": {"self": "touched"}}
)
HOSTILE_METADATA = {
    "code": {"observation_space": None, "env_spec": RUNS_CODE},
    "a control character in an id": {"dataset_id": "made/\x1b]0;here\x07-v0"},
    "a control character in a key": {
        "observation_space": json.dumps({"type": "Dict", "subspaces": {"\x1b[2J": json.loads(box())}})
    },
    "a control character in an environment": {"env_spec": json.dumps({"id": "\x1b[2J-v0"})},
    "a long id": {"dataset_id": "a/" * 50_000 + "-"},
    "episodes from nothing": {"total_episodes": 10**12},
    "episodes as text": {"total_episodes": "\x1b[2J"},
    "steps below 0": {"total_steps": -1},
    "a large shape": {"observation_space": box(shape=[10**6, 10**6])},
    "a large dtype": {"observation_space": box(dtype="V1000000000")},
    "objects": {"observation_space": box(dtype="O")},
    "nested": {"observation_space": '{"type": "Tuple", "subspaces": [' * 20_000},
    "another type": {"observation_space": '{"type": "Nonsense"}'},
    "a number": {"observation_space": "1"},
    "another format": {"data_format": "\x1b[2J"},
}


@pytest.mark.parametrize("hostile", HOSTILE_METADATA)
def test_hostile_metadata_are_refused_and_run_nothing(hostile: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder.parent)
    metadata = json.loads((folder / "metadata.json").read_text()) | HOSTILE_METADATA[hostile]
    (folder / "metadata.json").write_text(json.dumps({key: part for key, part in metadata.items() if part is not None}))

    with pytest.raises(DamagedDataError, match=re.escape(str(folder))) as refused:
        MinariData.open(folder)

    assert str(refused.value).isprintable()
    assert ["made"] == [path.name for path in folder.parent.iterdir()]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff" * 9, b"null"])
def test_metadata_that_are_none_are_refused(content: bytes, folder: Path):
    (folder / "metadata.json").write_bytes(content)

    with pytest.raises(DamagedDataError, match="Minari cannot read it"):
        MinariData.open(folder)


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("name", ["metadata.json", "main_data.hdf5", "more/below"])
def test_what_is_no_file_is_not_opened(name: str, kind: str, folder: Path, tmp_path: Path):
    outside = Outside(tmp_path / "outside")
    (folder / name).parent.mkdir(exist_ok=True)
    outside.plant(kind, folder / name)

    if (name, kind) == ("more/below", "folder"):
        assert len(import_it(folder)) == 6
    else:
        with pytest.raises((DamagedDataError, InvalidSettingsError)):
            import_it(folder)
    outside.check()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_below_the_given_folder_is_not_followed(folder: Path, tmp_path: Path):
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "data").symlink_to(folder)
    (tmp_path / "link").symlink_to(folder)

    with pytest.raises(DamagedDataError, match="data: it is a link"):
        MinariData.open(tmp_path / "given")
    assert len(import_it(tmp_path / "link")) == 6


def test_a_flipped_byte_of_an_hdf5_file_never_ends_in_another_error(folder: Path):
    path = folder / "main_data.hdf5"
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    for place in generator.choice(len(whole), 60, replace=False).tolist():
        flipped = bytearray(whole)
        flipped[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(flipped)

        with suppress(FramestowError):
            import_it(folder)
