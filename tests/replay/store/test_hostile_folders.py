"""Whatever a stranger puts in place of a store's file, nothing outside of the folder is read, written or removed."""

from __future__ import annotations

import os
import shutil
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.inspection import inspect_memory
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from framestow.storage.files.writer_lock import LOCK
from oracles.damage import damage_a_segment
from oracles.hostile_folders import KINDS, NO_FILES, Outside, names_in_use, outcomes
from oracles.store_files import commit_files, log_file, log_files_of
from oracles.stored_play import SHAPE, STACK, play

pytestmark = pytest.mark.slow  # more than two seconds
NUM_STEPS = 1_100  # so that segments of frames and blocks of steps are sealed


def new_memory(seed: int) -> ReplayMemory:
    memory = ReplayMemory(6_000, FrameSpec(SHAPE), 5, stack=STACK, num_envs=3, seed=seed)
    play(memory, NUM_STEPS, np.random.default_rng(seed))
    return memory


@cache
def another_memory() -> ReplayMemory:
    return new_memory(seed=1)


def read_all(memory: ReplayMemory) -> list[float]:
    return memory.get(memory.sampleable_indices()).reward.tolist() if len(memory) else []


def append(folder: Path) -> None:
    with ReplayMemory.open(folder, read_only=False, flush_every=None) as memory:
        play(memory, 40, np.random.default_rng(1), 10_000)
        memory.flush()


def prune(folder: Path) -> None:
    memory = ReplayMemory.load(folder)
    memory.prune(folder, memory.save(folder, keep_previous=True))


WHOLE = {
    "inspect": inspect_memory,
    "verify": verify_store,
    "load": lambda folder: read_all(ReplayMemory.load(folder)),
    "open": lambda folder: read_all(ReplayMemory.open(folder)),
    "append": append,
    "save": lambda folder: another_memory().save(folder),
    "prune": prune,
    "repair": repair_store,
}
DAMAGED = {name: WHOLE[name] for name in ("verify", "repair", "load", "append")}
STORES = {"whole": WHOLE, "damaged": DAMAGED}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of two generations, and with one that is damaged."""
    folder = tmp_path_factory.mktemp("stores")
    with log_files_of(20_000):
        memory = new_memory(seed=0)
        memory.save(folder / "whole", keep_previous=True)
        play(memory, 700, np.random.default_rng(2), 3 * NUM_STEPS)
        memory.save(folder / "whole", keep_previous=True)
        shutil.copytree(folder / "whole", folder / "damaged")
        damage_a_segment(folder / "damaged")
    return folder


@pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", STORES)
def test_nothing_outside_is_touched_whatever_is_planted_under_any_name(store, kind, every, stores, tmp_path):
    warnings.simplefilter("ignore", RuntimeWarning)  # a store that was not closed
    names = names_in_use(Path(shutil.copytree(stores / store, tmp_path / "first")), STORES[store])
    assert len(names) > 15, names

    for number, name in enumerate(names[KINDS.index(kind) % every :: every]):  # each kind other names
        folder = Path(shutil.copytree(stores / store, tmp_path / f"{number}"))
        outside = Outside(tmp_path / f"outside of {number}")
        outside.plant(kind, folder / name)

        outcomes(folder, STORES[store])

        outside.check()


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("call", ["load", "open", "append", "save", "repair", "verify"])
def test_what_is_no_file_in_place_of_all_commits_is_refused_by_name(call, kind, stores, tmp_path):
    folder, outside = Path(shutil.copytree(stores / "whole", tmp_path / "store")), Outside(tmp_path / "home")
    *older, planted = commit_files(folder)
    for path in (*older, *folder.glob("*.copy")):
        path.unlink()
    outside.plant(kind, planted)
    before = sorted(os.listdir(folder))

    with pytest.raises(DamagedDataError, match=rf"no whole COMMIT file.* \({planted.name}: it is a .*\)"):
        WHOLE[call](folder)

    outside.check()
    assert before == sorted(os.listdir(folder))


@pytest.mark.each_value
@pytest.mark.filterwarnings("ignore:.*its copy has the same content:RuntimeWarning")
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("call", ["load", "open", "append", "save", "repair", "verify"])
def test_what_is_no_file_in_place_of_a_commit_is_not_touched_while_its_copy_serves(call, kind, stores, tmp_path):
    folder, outside = Path(shutil.copytree(stores / "whole", tmp_path / "store")), Outside(tmp_path / "home")
    planted = commit_files(folder)[-1]
    outside.plant(kind, planted)
    (finding,) = verify_store(folder).findings
    assert (planted, True) == (finding.file, "it is a " in finding.what)

    try:
        WHOLE[call](folder)
    except DamagedDataError as error:  # no link, pipe or folder is replaced by a writer; a repair moves it aside
        assert kind == "folder"
        assert planted.name in str(error)  # noqa: PT017

    outside.check()
    repair_store(folder)
    outside.check()
    assert verify_store(folder).is_intact


@pytest.mark.each_value
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("ending", ["log", "index"])
def test_a_repair_keeps_what_is_whole_beside_a_link_or_a_pipe(ending, kind, stores, tmp_path):
    folder, outside = Path(shutil.copytree(stores / "whole", tmp_path / "store")), Outside(tmp_path / "home")
    planted = log_file(folder, "frames", ending=ending)
    outside.plant(kind, planted)

    findings = verify_store(folder).findings
    assert [planted] == [one.file for one in findings]
    assert "it is a " in findings[0].what
    moved_to = repair_store(folder).moved_to

    outside.check()
    assert moved_to is not None
    assert os.path.lexists(moved_to / planted.name)
    assert verify_store(folder).is_intact
    left, there = (len(ReplayMemory.load(each)) for each in (folder, stores / "whole"))
    assert (left < there) == (ending == "log"), (left, there)


def test_a_backup_of_second_names_stays_as_it_is_while_its_store_goes_on(stores, tmp_path):
    store, backup = Path(shutil.copytree(stores / "whole", tmp_path / "store")), tmp_path / "backup"
    shutil.copytree(store, backup, copy_function=os.link)  # as `cp -al` does
    before = {path.name: path.read_bytes() for path in backup.iterdir()}
    with pytest.raises(IncompatibleError, match=f"{LOCK}: the file has 2 names.*; replace this one by a copy"):
        append(store)
    (backup / LOCK).unlink()
    del before[LOCK]

    append(store)
    WHOLE["save"](store)

    assert before == {path.name: path.read_bytes() for path in backup.iterdir()}
    assert read_all(ReplayMemory.load(backup)) == read_all(ReplayMemory.load(stores / "whole"))
    assert read_all(ReplayMemory.load(store)) == read_all(another_memory())
