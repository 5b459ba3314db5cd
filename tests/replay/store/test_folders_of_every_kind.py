"""Folders with each file missing, damaged, empty, foreign or older: what four calls do there."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from framestow.errors import DamagedDataError, DamagedSegmentError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.repair import repair_store
from oracles.killed_child import killed_child
from oracles.watched_disk import Operation, WatchedDisk, as_the_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*was not closed:RuntimeWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

# What a call did.
NEW, RESUMED, SAVED, OPENED, LOADED = "new memory", "resumes", "saves", "opens", "loads"
NOTHING = "no memory"
REPAIR = "repair"
WHEN_READ = "repair, when read"

OLDER_STEPS, NEWEST_STEPS, OTHER_STEPS = 1_100, 2_200, 1_500
FOREIGN = b"This file is not of framestow.\n" * 20

MANIFEST, OLDER_MANIFEST, STATE = "MANIFEST.000002", "MANIFEST.000001", "state.000002.npz"
FRAMES, STEPS = "frames.000001.log", "steps.000001.log"
INDICES = ("frames.000001.index", "steps.000001.index")


def new_memory(number: int, **settings) -> ReplayMemory:
    return ReplayMemory(5_000, FrameSpec((8, 8)), 4, stack=2, seed=number, flush_every=None, **settings)


def record(memory: ReplayMemory, number: int, steps: range) -> None:
    """Record random frames; a reward says which memory and step it belongs to."""
    random = np.random.default_rng([number, steps.start])
    if not steps.start:
        memory.begin(random.integers(0, 256, (1, 8, 8), np.uint8))
    for step in steps:
        memory.append([1], [10_000 * number + step], [False], [False], random.integers(0, 256, (1, 8, 8), np.uint8))


def rewards(memory: ReplayMemory) -> list[int]:
    return memory.get(memory.sampleable_indices()).reward.astype(int).tolist() if len(memory) else []


class Stores(NamedTuple):
    """Saved memories: two generations of one, the newer with and without the older one, and those of another memory."""

    newest: Path
    older: Path
    both: Path
    other: Path
    other_before: Path
    first_save_killed: Path
    save_killed: Path


class DyingDisk(WatchedDisk):
    """Kills its process before a manifest gets its name, when all other files of the generation are written."""

    def perform(self, operation: Operation, act: Callable) -> object:
        if operation.name == "replace":
            os.kill(os.getpid(), signal.SIGKILL)
        return act(operation)


def save_killed(memory: ReplayMemory, folder: Path) -> Path:
    def save(_report: object) -> None:
        with as_the_disk(DyingDisk()):
            memory.save(folder)

    assert (0, True) == killed_child(save)
    return folder


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> Stores:
    root = tmp_path_factory.mktemp("stores")
    made = Stores(*(root / name for name in Stores._fields))
    memory, other = new_memory(0), new_memory(1)
    record(memory, 0, range(OLDER_STEPS))
    memory.save(made.newest)
    memory.save(made.both)
    shutil.copytree(made.newest, made.older)
    record(memory, 0, range(OLDER_STEPS, NEWEST_STEPS))
    memory.save(made.newest)
    memory.save(made.both, keep_previous=True)
    record(other, 1, range(OTHER_STEPS))
    other.save(made.other)
    shutil.copytree(made.other, made.other_before)
    other.save(made.other)
    save_killed(other, made.first_save_killed)
    save_killed(other, Path(shutil.copytree(made.newest, made.save_killed)))
    return made


@pytest.fixture(scope="module")
def third() -> ReplayMemory:
    memory = new_memory(2)
    record(memory, 2, range(50))
    return memory


Make = Callable[[Stores, Path], None]  # makes the folder


def harmed(file: str, harm: str, store: str = "newest") -> Make:
    """Return a function that copies a store and harms one of its files."""

    def make(stores: Stores, folder: Path) -> None:
        shutil.copytree(getattr(stores, store), folder)
        path = folder / file
        if harm == "missing":
            path.unlink()
        elif harm == "damaged":
            content = bytearray(path.read_bytes())
            content[min(200, len(content) // 2)] ^= 16
            path.write_bytes(content)
        elif harm == "another's":
            shutil.copy(stores.other / file, path)
        elif harm == "older":
            shutil.copy(stores.older / file.replace("000002", "000001"), path)
        else:
            path.write_bytes({"empty": b"", "foreign": FOREIGN}[harm])

    make.__name__ = f"{file} {harm}"
    return make


def with_more(added: Callable[[Stores], dict[str, bytes]], store: str | None = "newest") -> Make:
    """Return a function that copies a store and adds files, which have to stay."""

    def make(stores: Stores, folder: Path) -> None:
        if store is None:
            folder.mkdir()
        else:
            shutil.copytree(getattr(stores, store), folder)
        for name, content in added(stores).items():
            assert not (folder / name).exists()
            (folder / name).write_bytes(content)

    return make


def restored_manifest(stores: Stores, folder: Path) -> None:
    """The manifest of the generation before, from a backup, instead of the newest one."""
    shutil.copytree(stores.newest, folder)
    (folder / MANIFEST).unlink()
    shutil.copy(stores.older / OLDER_MANIFEST, folder)


def copy_of(store: str) -> Make:
    return lambda stores, folder: (shutil.copytree(getattr(stores, store), folder), None)[1]


def foreign_files(_stores: Stores) -> dict[str, bytes]:
    names = "frames.000001.log.new frames.000004.log steps.000002.index state.000009.npz state.000002.repaired.npz"
    manifests = "MANIFEST.000001 MANIFEST.000001.old MANIFEST.000003.new MANIFEST.000003.begun.2.2"
    return dict.fromkeys((*names.split(), *manifests.split()), FOREIGN)


def files_of_another(stores: Stores) -> dict[str, bytes]:
    names = {"MANIFEST.000001": stores.other_before, "state.000001.npz": stores.other_before}
    files = {name: (store / name).read_bytes() for name, store in names.items()}
    files["state.000004.npz"] = (stores.other / "state.000002.npz").read_bytes()
    files["frames.000003.log"] = (stores.other / FRAMES).read_bytes()
    return files | {"steps.000002.log": (stores.other / STEPS).read_bytes()}


HARMS = ("missing", "damaged", "empty", "foreign", "another's", "older")
ALL_WELL = (RESUMED, SAVED, OPENED, LOADED)
UNREADABLE = (REPAIR, SAVED, REPAIR, REPAIR)
REFUSED = (REPAIR,) * 4


class Row(NamedTuple):
    """Folders where the four calls do the same."""

    folders: list[Make]
    outcomes: tuple[str, str, str, str]
    stays: Callable[[Stores], dict[str, bytes]] = lambda _: {}


TABLE = {
    "missing or empty": Row(
        [lambda _stores, _folder: None, lambda _stores, folder: folder.mkdir()], (NEW, SAVED, NOTHING, NOTHING)
    ),
    "whole": Row([copy_of("newest"), copy_of("both")], ALL_WELL),
    "its manifest missing, damaged, empty, foreign or older": Row(
        [*(harmed(MANIFEST, harm) for harm in HARMS if harm != "another's"), restored_manifest], REFUSED
    ),
    "its manifest another memory's": Row([harmed(MANIFEST, "another's")], UNREADABLE),
    "its state file, or a log of steps, any of these": Row(
        [harmed(file, harm) for file in (STATE, STEPS) for harm in HARMS], UNREADABLE
    ),
    "a log of frames missing": Row([harmed(FRAMES, "missing")], UNREADABLE),
    "a log of frames damaged, empty, foreign, another's or older": Row(
        [harmed(FRAMES, harm) for harm in HARMS[1:]], (WHEN_READ, SAVED, WHEN_READ, REPAIR)
    ),
    "an index, any of these": Row([harmed(file, harm) for file in INDICES for harm in HARMS], ALL_WELL),
    "the newest manifest missing or damaged, an older generation kept": Row(
        [harmed(MANIFEST, harm, "both") for harm in ("missing", "damaged")], REFUSED
    ),
    "the manifest of an older, kept generation missing": Row([harmed(OLDER_MANIFEST, "missing", "both")], ALL_WELL),
    "the manifest of an older, kept generation damaged": Row(
        [harmed(OLDER_MANIFEST, "damaged", "both")], (REPAIR, REPAIR, OPENED, LOADED)
    ),
    "logs or state files, and no manifest": Row(
        [
            with_more(lambda _stores, name=name: {name: FOREIGN}, None)
            for name in (FRAMES, INDICES[1], "state.000009.npz")
        ],
        REFUSED,
    ),
    "whole, with foreign files of such names": Row([with_more(foreign_files)], ALL_WELL, foreign_files),
    "whole, with files of another memory": Row([with_more(files_of_another)], ALL_WELL, files_of_another),
    "what a killed first save left": Row([copy_of("first_save_killed")], (NEW, SAVED, NOTHING, NOTHING)),
    "whole, with what a killed save left": Row([copy_of("save_killed")], ALL_WELL),
}


def outcome_of(call: str, folder: Path, third: ReplayMemory) -> str:
    """Make one of the four calls, read every transition, and return what happened."""
    try:
        if call == "save":
            third.save(folder)
            assert rewards(third) == rewards(ReplayMemory.load(folder))
            return SAVED
        calls = {
            "directory": lambda: new_memory(0, directory=folder),
            "open": lambda: ReplayMemory.open(folder),
            "load": lambda: ReplayMemory.load(folder),
        }
        memory = calls[call]()
    except FileNotFoundError as error:
        assert "no framestow memory was saved in this folder" in str(error)  # noqa: PT017
        return NOTHING
    except DamagedDataError as error:
        assert f"`framestow repair {folder}`" in str(error)  # noqa: PT017
        return REPAIR
    with memory:
        try:
            found = rewards(memory)
        except DamagedSegmentError as error:
            assert f"`framestow repair {folder}`" in str(error)  # noqa: PT017
            return WHEN_READ
    if not found:
        return NEW
    assert list(range(NEWEST_STEPS)) == found
    return {"directory": RESUMED, "open": OPENED, "load": LOADED}[call]


def contents(folder: Path) -> dict[str, bytes]:
    paths = folder.iterdir() if folder.is_dir() else ()
    return {path.name: path.read_bytes() for path in paths if path.name != "LOCK"}


@pytest.mark.parametrize("number", range(4), ids=("directory", "save", "open", "load"))
@pytest.mark.parametrize("row", TABLE)
def test_each_call_does_in_each_folder_what_the_table_says_and_removes_nothing_else(
    row, number, stores, third, tmp_path
):
    call, wanted = ("directory", "save", "open", "load")[number], TABLE[row].outcomes[number]

    for index, make in enumerate(TABLE[row].folders):
        folder = tmp_path / str(index)
        make(stores, folder)
        before = contents(folder)

        assert wanted == outcome_of(call, folder, third), f"{row}, folder {index}"

        after = contents(folder)
        assert TABLE[row].stays(stores).items() <= after.items()
        if wanted not in (NEW, RESUMED, SAVED, WHEN_READ):
            assert before == after


@pytest.mark.parametrize("call", ["directory", "save"])
@pytest.mark.parametrize("left", ["first_save_killed", "save_killed"])
def test_what_a_killed_save_left_is_removed(left, call, stores, third, tmp_path):
    folder = Path(shutil.copytree(getattr(stores, left), tmp_path / "memory"))
    usual = {} if left == "first_save_killed" else contents(stores.newest)
    before = {name: content for name, content in contents(folder).items() if name not in usual}
    assert len(before) > 3

    outcome_of(call, folder, third)

    assert not before.items() & contents(folder).items()
    assert not [path for path in folder.iterdir() if ".begun" in path.name or path.suffix in (".old", ".new")]


def test_killed_saves_leave_no_more_files_from_kill_to_kill(stores, third, tmp_path):
    folder = Path(shutil.copytree(stores.save_killed, tmp_path / "memory"))
    num_files = len(contents(folder))

    for _ in range(3):
        save_killed(third, folder)

    assert len(contents(folder)) <= num_files
    assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(folder))


@pytest.mark.parametrize("call", ["directory", "save", "open", "load"])
def test_a_memory_that_lost_its_manifest_is_refused_and_repaired_whole(call, stores, third, tmp_path):
    folder = tmp_path / "memory"
    harmed(MANIFEST, "missing")(stores, folder)

    assert REPAIR == outcome_of(call, folder, third)
    repair_store(folder)

    assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(folder))


def test_the_memory_that_was_saved_there_is_refused_without_its_manifest_too(tmp_path):
    memory = new_memory(0)
    record(memory, 0, range(OLDER_STEPS))
    memory.save(tmp_path)
    (tmp_path / "MANIFEST.000001").unlink()
    before = contents(tmp_path)

    with pytest.raises(DamagedDataError, match=re.escape(f"with `framestow repair {tmp_path}`")):
        memory.save(tmp_path)

    assert before == contents(tmp_path)


def test_an_earlier_generation_is_named_when_its_number_is_missing(stores):
    with pytest.raises(FileNotFoundError, match=r"there is no generation 7; give one of \[1, 2\]"):
        ReplayMemory.load(stores.both, generation=7)


def test_a_skipped_block_of_steps_is_counted_and_its_file_is_logged(stores, tmp_path, caplog):
    folder = tmp_path / "memory"
    harmed(STEPS, "damaged")(stores, folder)

    with caplog.at_level("WARNING", "framestow"):
        memory = ReplayMemory.open(folder, on_damage="skip")

    report = memory.report()
    assert (NEWEST_STEPS, 0) == (len(memory) + report.skipped_transitions, report.skipped_segments)
    assert 1_024 <= report.skipped_transitions
    assert f"{report.skipped_transitions:,} transitions are lost" in str(report)
    (line,) = caplog.messages
    assert line.startswith(f"a damaged block of steps is skipped: {folder / STEPS}: block 0 of track 0 at offset 64")
