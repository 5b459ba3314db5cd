"""Folders with each file missing, damaged, empty, foreign or older: what four calls do there."""

from __future__ import annotations

import errno
import os
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
from framestow.replay.store.format import FolderContents
from framestow.replay.store.repair import repair_store
from framestow.storage.files.file_system import FileSystem, ReadFile
from oracles.killed_child import killed_child
from oracles.store_files import unaccounted
from oracles.watched_disk import Operation, WatchedDisk, as_the_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*was not closed:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:.*its copy has the same content:RuntimeWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]

# What a call did.
NEW, RESUMED, SAVED, OPENED, LOADED = "new memory", "resumes", "saves", "opens", "loads"
NOTHING = "no memory"
REPAIR = "repair"
LOST = "nothing can be read"
WHEN_READ = "repair, when read"

OLDER_STEPS, NEWEST_STEPS, OTHER_STEPS = 1_100, 2_200, 1_500
FOREIGN = b"This file is not of framestow.\n" * 20

COMMIT, COPY, OLDER_COMMIT = "COMMIT.000003", "COMMIT.000003.copy", "COMMIT.000002"
FRAMES, STEPS = "frames.000001.log", "steps.000001.log"  # the names of files without the id of their store
INDICES = ("frames.000001.index", "steps.000001.index")


def in_store(folder: Path, name: str) -> Path:
    """Return a file of a store by its name without the id."""
    log, _, rest = name.partition(".")
    return next(folder.glob(f"{log}-*.{rest}"), folder / name)


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
    """Kills its process before the new commit gets its name, when all other files of the generation are written."""

    is_listed = False  # whether the id of the new files is, in a commit of its own or in the newest one

    def perform(self, operation: Operation, act: Callable) -> object:
        if operation.name == "replace":
            if self.is_listed and not operation.new_path.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            self.is_listed = True
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
        path = in_store(folder, file)
        if harm == "missing":
            path.unlink()
        elif harm == "damaged":
            content = bytearray(path.read_bytes())
            content[min(200, len(content) // 2)] ^= 16
            path.write_bytes(content)
        elif harm == "another's":
            shutil.copy(in_store(stores.other, file), path)
        elif harm == "older":
            shutil.copy(in_store(stores.older, file.replace(COMMIT, OLDER_COMMIT)), path)
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


def copy_of(store: str) -> Make:
    return lambda stores, folder: (shutil.copytree(getattr(stores, store), folder), None)[1]


def foreign_files(_stores: Stores) -> dict[str, bytes]:
    names = "frames.000001.log.new frames.000004.log state.000009.npz COMMIT.000009.new COMMIT.7 MANIFEST.000003"
    return dict.fromkeys(names.split(), FOREIGN)


def files_of_another(stores: Stores) -> dict[str, bytes]:
    """An older commit of another memory, with all its files."""
    logs = [path for path in stores.other_before.iterdir() if "-" in path.name]
    return {path.name: path.read_bytes() for path in [*logs, stores.other_before / OLDER_COMMIT]}


def logs_of(stores: Stores) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in stores.newest.iterdir() if "-" in path.name}


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
    "one file of the newest commit missing, damaged, empty or foreign": Row(
        [
            harmed(file, harm, store)
            for file in (COMMIT, COPY)
            for harm in ("missing", "damaged", "empty", "foreign")
            for store in ("newest", "both")
        ],
        ALL_WELL,
    ),
    "the newest commit an older one under its name": Row([harmed(COMMIT, "older")], REFUSED),
    "the newest commit another memory's": Row([harmed(COMMIT, "another's")], UNREADABLE),
    "the commit of an older, kept generation damaged or missing": Row(
        [harmed(OLDER_COMMIT, harm, "both") for harm in ("damaged", "missing")], ALL_WELL
    ),
    "a log of steps, any of these": Row([harmed(STEPS, harm) for harm in HARMS], UNREADABLE),
    "a log of frames missing": Row([harmed(FRAMES, "missing")], UNREADABLE),
    "a log of frames damaged, empty, foreign, another's or older": Row(
        [harmed(FRAMES, harm) for harm in HARMS[1:]], (WHEN_READ, SAVED, WHEN_READ, REPAIR)
    ),
    "an index, any of these": Row([harmed(file, harm) for file in INDICES for harm in HARMS], ALL_WELL),
    "logs, and no commit": Row(
        [
            with_more(lambda stores, name=name: {in_store(stores.newest, name).name: FOREIGN}, None)
            for name in (FRAMES, INDICES[1])
        ],
        (LOST,) * 4,
    ),
    "no whole commit": Row(
        [with_more(lambda stores: {**logs_of(stores), COMMIT: FOREIGN, COPY: b""}, None)], (LOST,) * 4
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
        is_lost = "no whole COMMIT file" in str(error)
        assert is_lost or f"`framestow repair {folder}`" in str(error)  # noqa: PT017
        return LOST if is_lost else REPAIR
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
    before = unaccounted(folder)
    assert 5 <= len(before)  # two logs with indices, and the commit

    outcome_of(call, folder, third)

    assert not before & contents(folder).keys()
    assert not unaccounted(folder)


def test_killed_saves_leave_no_more_files_from_kill_to_kill(stores, third, tmp_path):
    folder = Path(shutil.copytree(stores.save_killed, tmp_path / "memory"))

    for _ in range(3):
        save_killed(third, folder)

    third.save(folder)
    assert not unaccounted(folder)


def test_killed_saves_change_no_number_of_a_generation(stores, third, tmp_path):
    folder = Path(shutil.copytree(stores.both, tmp_path / "memory"))

    for _ in range(3):
        save_killed(third, folder)

    for number, steps in ((2, OLDER_STEPS), (3, NEWEST_STEPS)):
        assert list(range(steps)) == rewards(ReplayMemory.load(folder, generation=number))
    assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(folder))


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_memory_that_lost_its_newest_commit_is_repaired_or_read_whole(harm, stores, third, tmp_path):
    folder = tmp_path / "memory"
    harmed(COMMIT, harm)(stores, folder)

    repair_store(folder)

    assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(folder))
    assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(folder, generation=3))
    third.save(folder)
    assert rewards(third) == rewards(ReplayMemory.load(folder))


@pytest.mark.parametrize(
    ("offset", "had"), [(40, ""), (-40, ": it has 1,100 transitions, and the damaged one had 2,200")]
)
def test_a_flushed_commit_that_is_damaged_costs_one_flush_and_a_warning_says_so(offset, had, tmp_path):
    with new_memory(0, directory=tmp_path / "memory") as memory:
        record(memory, 0, range(OLDER_STEPS))
        memory.flush()
        record(memory, 0, range(OLDER_STEPS, NEWEST_STEPS))
        memory.flush()
        folder = Path(shutil.copytree(tmp_path / "memory", tmp_path / "copy"))
    content = bytearray((folder / "COMMIT.000004").read_bytes())
    content[offset] ^= 1
    (folder / "COMMIT.000004").write_bytes(content)

    loss = f"generation 3 is read in place of it; what came after generation 3 is missing{had}; keep"
    with pytest.warns(RuntimeWarning, match=loss):
        assert list(range(OLDER_STEPS)) == rewards(ReplayMemory.load(folder))
    for call in (lambda: ReplayMemory.open(folder, read_only=False), lambda: ReplayMemory.load(folder, generation=4)):
        with pytest.raises(DamagedDataError, match=f"COMMIT.000004: .*`framestow repair {folder}`"):
            call()
    repair_store(folder)
    assert [3, 5] == FolderContents(folder).generations
    for generation in (3, None):
        assert list(range(OLDER_STEPS)) == rewards(ReplayMemory.load(folder, generation=generation))


def test_a_commit_that_may_not_be_read_is_no_reason_to_take_its_copy_and_one_that_the_disk_lost_is(stores, monkeypatch):
    usual, numbers = FileSystem.open_to_read, [errno.EACCES, errno.EIO]

    def open_to_read(self: FileSystem, path: Path) -> ReadFile:
        if path.name == COMMIT:
            raise OSError(numbers[0], "it cannot be read", str(path))
        return usual(self, path)

    monkeypatch.setattr(FileSystem, "open_to_read", open_to_read)
    with pytest.raises(PermissionError, match=COMMIT):
        ReplayMemory.load(stores.newest)

    del numbers[0]
    with pytest.warns(RuntimeWarning, match=f"{COMMIT}: it cannot be read .*: its copy .* so nothing is missing"):
        assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(stores.newest))


def test_a_backup_of_the_commits_is_read_and_a_writer_goes_on_without_touching_what_it_cannot_know(stores, tmp_path):
    folder = Path(shutil.copytree(stores.newest, tmp_path / "memory"))
    for name in (COMMIT, COPY):
        (folder / name).unlink()
    shutil.copy(stores.older / OLDER_COMMIT, folder)
    log = in_store(folder, FRAMES)
    before = log.read_bytes()

    memory = ReplayMemory.load(folder)
    assert list(range(OLDER_STEPS)) == rewards(memory)
    record(memory, 0, range(OLDER_STEPS, OLDER_STEPS + 700))
    memory.save(folder)

    assert before == log.read_bytes()
    assert list(range(OLDER_STEPS + 700)) == rewards(ReplayMemory.load(folder))


def test_the_memory_that_was_saved_there_writes_all_again_over_an_older_backup_and_over_a_copy_that_went_on(tmp_path):
    memory = new_memory(0)
    record(memory, 0, range(OLDER_STEPS))
    memory.save(tmp_path / "store")
    backup = shutil.copytree(tmp_path / "store", tmp_path / "backup")
    record(memory, 0, range(OLDER_STEPS, NEWEST_STEPS))
    memory.save(tmp_path / "store")
    went_on = ReplayMemory.load(backup)
    record(went_on, 7, range(OLDER_STEPS, NEWEST_STEPS))  # other steps under the same numbers
    copy = shutil.copytree(backup, tmp_path / "copy")
    went_on.save(copy)

    for folder in (backup, copy):
        shutil.rmtree(tmp_path / "store")
        shutil.copytree(folder, tmp_path / "store")
        memory.save(tmp_path / "store")
        assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(tmp_path / "store"))
        memory.save(tmp_path / "elsewhere")  # so that the next save finds another newest commit
        assert not unaccounted(tmp_path / "store")


@pytest.mark.parametrize("file", [FRAMES, STEPS, *INDICES])
def test_files_of_a_copy_that_went_on_are_refused_or_harmless(file, tmp_path):
    memory = new_memory(0)
    record(memory, 0, range(OLDER_STEPS))
    memory.save(tmp_path / "store")
    copy = shutil.copytree(tmp_path / "store", tmp_path / "copy")
    went_on = ReplayMemory.load(copy)
    for target, number, folder in ((memory, 0, tmp_path / "store"), (went_on, 7, copy)):
        record(target, number, range(OLDER_STEPS, NEWEST_STEPS))
        target.save(folder)

    shutil.copy(in_store(copy, file), in_store(tmp_path / "store", file))

    if file in INDICES:
        assert list(range(NEWEST_STEPS)) == rewards(ReplayMemory.load(tmp_path / "store"))
    for call in (ReplayMemory.load, ReplayMemory.open):
        if file not in INDICES:
            with pytest.raises((DamagedDataError, DamagedSegmentError), match=in_store(copy, file).name):
                rewards(call(tmp_path / "store"))


def test_a_copy_made_while_a_writer_goes_on_is_made_by_loading_and_saving_it(tmp_path):
    with new_memory(0, directory=tmp_path / "store") as memory:
        record(memory, 0, range(OLDER_STEPS))
        memory.flush()
        ReplayMemory.load(tmp_path / "store").save(tmp_path / "copy")
        record(memory, 0, range(OLDER_STEPS, NEWEST_STEPS))

    assert list(range(OLDER_STEPS)) == rewards(ReplayMemory.load(tmp_path / "copy"))


def test_an_earlier_generation_is_named_when_its_number_is_missing(stores):
    with pytest.raises(FileNotFoundError, match=r"there is no generation 7; give one of \[2, 3\]"):
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
    assert line.startswith(
        f"a damaged block of steps is skipped: {in_store(folder, STEPS)}: block 0 of track 0 at offset 80"
    )
