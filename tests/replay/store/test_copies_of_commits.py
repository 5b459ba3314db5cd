"""A save writes its commit twice under its number: one damaged file costs nothing, at any moment."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import FolderContents, StoredCommit, commit_path, write_commit
from framestow.replay.store.open_store import keep_only
from framestow.replay.store.verify import verify_store
from framestow.replay.store.writer import StoreWriter
from golden.saved_stores import DRAWS, STORES, draws_of, loaded
from oracles.damage import flip_bit
from oracles.plain_reading import assert_a_plain_reader_finds_the_transitions_of
from oracles.store_files import generations, newest_commit, unaccounted
from oracles.watched_disk import Operation, WatchedDisk, as_the_disk

EARLIER = STORES.parents[1] / "earlier"  # saved before commits had copies: as two commits of the same content
BUDGET = "3 MiB"


def memory_of(**settings) -> ReplayMemory:
    return ReplayMemory(5_000, FrameSpec((8, 8)), 3, seed=0, **settings)


def record(memory: ReplayMemory, first: int, num_steps: int) -> None:
    random = np.random.default_rng(first)
    memory.begin(random.integers(0, 256, (1, 8, 8), np.uint8))
    for step in range(num_steps):
        memory.append([1], [first + step], [False], [False], random.integers(0, 256, (1, 8, 8), np.uint8))


def rewards(folder: Path, generation: int | None = None) -> list[float]:
    memory = ReplayMemory.load(folder, generation=generation)
    return memory.get(memory.sampleable_indices()).reward.tolist()


def commits_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("COMMIT.*"))


@pytest.mark.parametrize("call", ["save", "close", "prune", "flush for a budget"])
def test_a_save_a_close_a_prune_and_a_flush_for_a_budget_leave_one_commit_and_its_copy(call, tmp_path):
    settings = {} if call == "save" else {"directory": tmp_path, "flush_every": None}
    memory = memory_of(**settings, max_bytes=BUDGET if "budget" in call else None)
    record(memory, 0, 300)
    generation = memory.save(tmp_path) if call == "save" else memory.flush()
    if call == "close":
        memory.close()
    elif call == "prune":
        memory.prune(tmp_path, generation)

    number = newest_commit(tmp_path).generation
    assert [f"COMMIT.{number:06d}", f"COMMIT.{number:06d}.copy"] == commits_in(tmp_path)
    assert commit_path(tmp_path, number).read_bytes() == commit_path(tmp_path, number, is_copy=True).read_bytes()


def test_a_flush_writes_one_commit_and_the_one_before_it_stays_without_a_copy(tmp_path):
    with memory_of(directory=tmp_path, flush_every=None) as memory:
        record(memory, 0, 300)
        memory.save(tmp_path)
        record(memory, 1_000, 300)
        number = memory.flush()

        assert [f"COMMIT.{number - 1:06d}", f"COMMIT.{number:06d}"] == commits_in(tmp_path)


def test_a_kept_generation_keeps_its_copy_until_it_is_pruned(tmp_path):
    with memory_of(directory=tmp_path, flush_every=None) as memory:
        record(memory, 0, 300)
        kept = memory.save(tmp_path, keep_previous=True)
        for first in (1_000, 2_000):
            record(memory, first, 300)
            newest = memory.flush()
        flip_bit(commit_path(tmp_path, kept), np.random.default_rng(0))
        with pytest.warns(RuntimeWarning, match=f"COMMIT.{kept:06d}: .*: its copy has the same content"):
            assert list(range(300)) == rewards(tmp_path, kept)

        memory.prune(tmp_path, newest)
        assert {f"COMMIT.{newest:06d}", f"COMMIT.{newest:06d}.copy"} == set(commits_in(tmp_path))


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_writer_writes_a_damaged_or_missing_commit_again_from_its_copy(is_kept, tmp_path, caplog):
    memory = memory_of()
    record(memory, 0, 300)
    number = memory.save(tmp_path)
    if is_kept:
        record(memory, 1_000, 300)
        memory.save(tmp_path, keep_previous=True)
    whole = commit_path(tmp_path, number).read_bytes()
    for harm in (Path.unlink, lambda path: flip_bit(path, np.random.default_rng(1))):
        harm(commit_path(tmp_path, number))
        with StoreWriter(tmp_path):
            pass
        assert whole == commit_path(tmp_path, number).read_bytes()
    assert 2 == caplog.text.count(f"COMMIT.{number:06d} was damaged or missing: it is written again from its copy")


def test_a_copy_from_before_a_rewrite_gives_way_and_is_written_again(tmp_path):
    memory = memory_of()
    record(memory, 0, 300)
    number = memory.save(tmp_path)
    stored = StoredCommit.read(tmp_path, number)
    write_commit(tmp_path, stored.whole()._replace(kept=[1]), stored.state, is_copy=True)  # as a kill leaves it

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(range(300)) == rewards(tmp_path)
    assert verify_store(tmp_path).is_intact
    record(memory, 1_000, 300)
    memory.save(tmp_path)
    assert not unaccounted(tmp_path)


class RecordingDisk(WatchedDisk):
    """Notes the names of commits in the folder after each operation, and removals."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.found: list[list[str]] = []
        self.removed: list[str] = []

    def perform(self, operation: Operation, act: Callable) -> object:
        result = act(operation)
        self.found.append([name for name in commits_in(self.folder) if not name.endswith(".new")])
        if operation.name == "remove" and operation.path.name.startswith("COMMIT."):
            self.removed.append(operation.path.name)
        return result


def test_a_budget_has_room_for_three_files_of_commits_at_any_moment_and_a_copy_is_removed_first(tmp_path):
    with memory_of(directory=tmp_path, flush_every=None, max_bytes=BUDGET) as memory:
        disk = RecordingDisk(tmp_path)
        with as_the_disk(disk):
            for first in (0, 1_000, 2_000):
                record(memory, first, 300)
                memory.flush()

    assert 3 == max(map(len, disk.found))
    with_copies = [name for name in disk.removed if f"{name}.copy" in disk.removed]
    assert with_copies
    for name in with_copies:
        assert disk.removed.index(f"{name}.copy") < disk.removed.index(name)


def changes(folder: Path) -> Iterator[None]:
    """Change the store in the ways that write a commit; yield before each."""
    memory = memory_of()
    record(memory, 0, 300)
    memory.save(folder)
    record(memory, 1_000, 300)
    yield
    first = memory.save(folder, keep_previous=True)
    record(memory, 2_000, 300)
    yield
    second = memory.save(folder, keep_previous=True)
    yield
    memory.prune(folder, second)
    yield
    memory_of().save(folder, keep_previous=True)
    yield
    assert first < second
    keep_only(folder, second)


def test_numbers_of_generations_rise_and_none_is_used_for_another_content(tmp_path):
    seen: dict[int, list[float]] = {}
    for _ in changes(tmp_path):
        for number in generations(tmp_path):
            if FolderContents(tmp_path).read(number).whole().num_transitions:
                assert seen.setdefault(number, rewards(tmp_path, number)) == rewards(tmp_path, number)
        assert not unaccounted(tmp_path)
        assert verify_store(tmp_path).is_intact
    assert 3 <= len(seen)


@pytest.mark.parametrize("name", ["prioritized_pixels", "several_arrays"])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_store_with_two_commits_of_the_same_content_is_read_and_goes_on_with_a_copy(is_damaged, name, tmp_path):
    folder = Path(shutil.copytree(EARLIER / name, tmp_path / name))
    assert ["COMMIT.000002", "COMMIT.000003"] == commits_in(folder)
    assert b'"repeats": 2' in (folder / "COMMIT.000003").read_bytes()
    if is_damaged:
        flip_bit(commit_path(folder, 3), np.random.default_rng(0))
    else:
        assert_a_plain_reader_finds_the_transitions_of(ReplayMemory.load(folder), folder)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if is_damaged else "error")
        memory = loaded(tmp_path, name)
    assert json.loads((STORES / DRAWS).read_text())[name] == draws_of(memory)
    if not is_damaged:
        number = loaded(tmp_path, name).inner.store_in(folder).save(keep_previous=False)
        assert [f"COMMIT.{number:06d}", f"COMMIT.{number:06d}.copy"] == commits_in(folder)
        assert not unaccounted(folder)
        assert verify_store(folder).is_intact
