"""Damaged stores are verified and repaired; the sampleable transitions equal the recording."""

from __future__ import annotations

import errno
import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import DamagedDataError, IncompatibleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import FolderContents, StoredCommit, commit_path
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from framestow.storage.files.block_format import ENTRY, FILE_HEADER_BYTES, INDEX
from framestow.storage.files.writer_lock import LOCK, WriterLock
from oracles.damage import damage_at_random, flip_bit
from oracles.dead_disk import DeadDisk, Killed
from oracles.failing_disk import FailingDisk
from oracles.store_files import files_of_newest_commit, generations, log_file, newest_commit
from oracles.stored_play import NUM_ENVS, SHAPE, StoredPlay, assert_batch_is_what_was_recorded, play, store_play

pytestmark = pytest.mark.slow  # more than two seconds

STEPS_PER_BLOCK = 1_024


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StoredPlay]:
    folder = tmp_path_factory.mktemp("whole") / "store"
    return folder, store_play(folder)


@pytest.fixture
def store(whole: tuple[Path, StoredPlay], tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole[0], tmp_path / "store"))


@pytest.fixture
def stored(whole: tuple[Path, StoredPlay]) -> StoredPlay:
    return whole[1]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file() and file.name != LOCK}


def damage_block(store: Path, log: str, file: int, entry: int) -> int:
    """Flip a bit in the payload of a block of a log; return its offset."""
    offset = int(entries_of(store, log, file)[entry]["offset"])
    path = log_file(store, log, file)
    content = bytearray(path.read_bytes())
    content[offset + 5] ^= 1
    path.write_bytes(content)
    return offset


def entries_of(store: Path, log: str, file: int) -> np.ndarray:
    return np.frombuffer(log_file(store, log, file, INDEX).read_bytes()[FILE_HEADER_BYTES:], ENTRY)


def key_at(store: Path, log: str, file: int, number: int) -> tuple[int, int]:
    entry = entries_of(store, log, file)[number]
    return int(entry["track"]), int(entry["number"])


def assert_all_is_what_was_recorded(folder: Path, stored: StoredPlay, generation: int | None = None) -> ReplayMemory:
    memory = ReplayMemory.load(folder, generation=generation)
    memory.inner.parts.check()
    if len(memory):
        assert_batch_is_what_was_recorded(memory.get(memory.sampleable_indices()), stored)
        assert_batch_is_what_was_recorded(memory.sample(50), stored)
    return memory


def without_frames(stored: StoredPlay, generation: int, track: int, number: int) -> set[int]:
    """Return the indices of a generation's transitions that show no frame of that segment."""
    indices, tracks, firsts, lasts = stored.windows[generation]
    start, stop = number * stored.frames_per_segment, (number + 1) * stored.frames_per_segment
    return set(indices[(tracks != track) | (lasts < start) | (firsts >= stop)].tolist())


def test_an_intact_store_needs_no_repair(store):
    before = contents(store)

    verification, repair = verify_store(store), repair_store(store)

    assert (True, [2, 3], 0) == (verification.is_intact, verification.generations, verification.lost)
    assert verification.transitions == 6_000
    assert ([], None) == (repair.actions, repair.moved_to)
    assert before == contents(store)


def test_a_damaged_segment_costs_exactly_the_transitions_that_show_its_frames(store, stored):
    offset = damage_block(store, "frames", 2, 1)
    track, number = key_at(store, "frames", 2, 1)
    damaged = log_file(store, "frames", 2)

    (finding,) = verify_store(store).findings
    repair = repair_store(store)

    for generation in (2, 3):
        memory = assert_all_is_what_was_recorded(store, stored, generation)
        assert without_frames(stored, generation, track, number) == set(memory.sampleable_indices().tolist())
    assert (damaged, offset) == (finding.file, finding.offset)
    assert finding.transitions == 6_000 - len(without_frames(stored, 3, track, number))
    assert f"block {number} of track {track} at offset {offset}" in finding.message
    assert [finding] == repair.found.findings
    assert verify_store(store).is_intact


def test_damaged_blocks_of_steps_cost_exactly_their_transitions(store, stored):
    entries = [(1, 0), (2, 1)]
    offsets = [damage_block(store, "steps", *entry) for entry in entries]
    numbers = [key_at(store, "steps", *entry)[1] for entry in entries]

    files = [log_file(store, "steps", file) for file, _ in entries]
    findings = verify_store(store).findings
    repair_store(store)

    for generation in (2, 3):
        memory = assert_all_is_what_was_recorded(store, stored, generation)
        indices = stored.windows[generation][0]
        assert indices[~np.isin(indices // STEPS_PER_BLOCK, numbers)].tolist() == memory.sampleable_indices().tolist()
    indices = stored.windows[3][0]
    costs = [int((indices // STEPS_PER_BLOCK == number).sum()) for number in numbers]
    is_sealed = [
        indices[0] <= number * STEPS_PER_BLOCK for number in numbers
    ]  # the state stores the rest of other blocks
    expected = [cost if sealed else 0 for cost, sealed in zip(costs, is_sealed, strict=True)]
    assert [*zip(files, offsets, expected, strict=True)] == [
        (one.file, one.offset, one.transitions) for one in findings
    ]
    assert verify_store(store).is_intact


@pytest.mark.parametrize("log", ["frames", "steps"])
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_lost_index_costs_nothing(log, is_removed, store, stored):
    before, index = contents(store), log_file(store, log, ending=INDEX)
    if is_removed:
        index.unlink()
    else:
        flip_bit(index, np.random.default_rng(0))

    (finding,) = verify_store(store).findings
    repair = repair_store(store)

    assert (index, 0) == (finding.file, finding.transitions)
    assert f"{index.name} is rewritten from its log" in repair.actions
    assert before == contents(store)
    assert 6_000 == len(assert_all_is_what_was_recorded(store, stored))


@pytest.mark.each_pair
@pytest.mark.parametrize("is_pruned", [False, True])
@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_file_of_a_commit_is_moved_aside_and_written_again_from_the_other(
    is_missing, is_copy, is_pruned, store, stored
):
    memory = ReplayMemory.load(store)
    generation = memory.save(store, keep_previous=True)
    if is_pruned:
        memory.prune(store, generation)
    path = commit_path(store, generation, is_copy=is_copy)
    if is_missing:
        path.unlink()
    else:
        flip_bit(path, np.random.default_rng(0))

    findings = verify_store(store).findings
    repair = repair_store(store)

    if is_missing and is_copy:  # as after a flush
        assert ([], None) == (findings, repair.moved_to)
    else:
        assert [(path, 0)] == [(finding.file, finding.transitions) for finding in findings]
        assert f"{path.name} is rewritten: of a commit and its copy, the other file is whole" in repair.actions
        assert (repair.moved_to / path.name).exists() != is_missing
        assert path.read_bytes() == commit_path(store, generation, is_copy=not is_copy).read_bytes()
    for number in (generation, None) if is_pruned else (2, 3, generation, None):
        assert 0 < len(assert_all_is_what_was_recorded(store, stored, number))
    assert verify_store(store).is_intact


def test_a_damaged_commit_is_replaced_by_the_one_before_under_a_number_above_it(store, stored):
    for path in files_of_newest_commit(store):
        flip_bit(path, np.random.default_rng(0))

    repair = repair_store(store)

    assert "generation 3 is removed: its commit is damaged" in repair.actions
    memory = assert_all_is_what_was_recorded(store, stored)
    assert stored.windows[2][0].tolist() == memory.sampleable_indices().tolist()
    assert [2, 4] == generations(store)
    assert {"COMMIT.000003"} <= {path.name for path in repair.moved_to.iterdir()}
    with pytest.raises(FileNotFoundError):
        ReplayMemory.load(store, generation=3)


def test_without_a_whole_commit_nothing_is_changed(store):
    for path in store.glob("COMMIT.*"):
        path.write_bytes(b"")
    before = contents(store)

    for call in (verify_store, repair_store, ReplayMemory.load, ReplayMemory.open):
        with pytest.raises(DamagedDataError, match="no whole COMMIT file, which alone says what they are; nothing is"):
            call(store)

    assert before == contents(store)


def test_a_log_of_another_store_costs_its_blocks_and_is_moved_aside(store, stored, tmp_path):
    other = tmp_path / "other"
    store_play(other)
    foreign = log_file(store, "frames", 2)
    for ending in ("log", INDEX):
        shutil.copy(log_file(other, "frames", 2, ending), log_file(store, "frames", 2, ending))

    repair = repair_store(store)

    assert f"{foreign.name} cannot be used, and no generation names it any more" in repair.actions
    assert (repair.moved_to / foreign.name).exists()
    assert 1_000 < len(assert_all_is_what_was_recorded(store, stored)) < 6_000
    assert verify_store(store).is_intact


def test_an_environment_without_its_newest_frames_continues_with_a_new_episode(store, stored):
    memory = ReplayMemory.load(store)
    newest = [memory.inner.frames.open_segment(track) - 1 for track in range(NUM_ENVS)]
    while memory.inner.frames.stored_positions(0).stop % stored.frames_per_segment:  # until track 0 has no open segment
        memory.append([0], [0.0], [False], [False], np.zeros((1, *SHAPE), np.uint8), [0])
    memory.save(store)
    damage_last_block_of(store, 0, newest[0] + 1)

    repair = repair_store(store)
    repaired = ReplayMemory.load(store)

    assert any("environments 0 lose their newest frames; their episodes end" in action for action in repair.actions)
    assert not repaired.inner.steps.is_open[0]
    assert 0 == repaired.observations()[0].max()
    play(repaired, 400, np.random.default_rng(3))
    repaired.inner.parts.check()


def damage_last_block_of(store: Path, track: int, number: int) -> None:
    for index in store.glob("frames-*.index"):
        file = int(index.name.split(".")[1])
        for entry in range(len(entries_of(store, "frames", file))):
            if key_at(store, "frames", file, entry) == (track, number):
                damage_block(store, "frames", file, entry)


@pytest.mark.parametrize("seed", range(8))
def test_after_any_damage_the_sampleable_transitions_equal_the_recording(seed, store, stored):
    damage_repair_and_resume(seed, store, stored)


OTHER_MEMORIES = {
    "random retention": {"retention": "random"},
    "raw": {"storage": "raw"},
    "vectors": {"frame": FrameSpec((5,), np.float32)},
    "scaled floats": {"frame": FrameSpec((4, 5), np.float32, is_scaled=True)},
}


@pytest.mark.parametrize("kind", OTHER_MEMORIES)
def test_memories_of_every_kind_are_repaired(kind, tmp_path):
    stored = store_play(tmp_path / "store", **OTHER_MEMORIES[kind])

    damage_repair_and_resume(0, tmp_path / "store", stored)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", OTHER_MEMORIES)
def test_thirty_damaged_stores_of_every_kind_equal_the_recording(kind, tmp_path):
    stored = store_play(tmp_path / "whole", **OTHER_MEMORIES[kind])
    for seed in range(30):
        store = Path(shutil.copytree(tmp_path / "whole", tmp_path / str(seed)))
        damage_repair_and_resume(seed, store, stored)
        shutil.rmtree(store)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first_seed", range(8, 408, 25))
def test_four_hundred_damaged_stores_equal_the_recording(first_seed, whole, tmp_path):
    for seed in range(first_seed, first_seed + 25):
        store = Path(shutil.copytree(whole[0], tmp_path / str(seed)))
        damage_repair_and_resume(seed, store, whole[1])
        shutil.rmtree(store)


def damage_repair_and_resume(seed: int, store: Path, stored: StoredPlay) -> None:
    random = np.random.default_rng(seed)
    damages = damage_at_random(store, random)
    try:
        found = verify_store(store)
    except DamagedDataError:
        assert all(StoredCommit.read(store, number).problem for number in FolderContents(store).numbers), damages
        return
    before = contents(store)
    dry = repair_store(store, dry_run=True)
    assert before == contents(store), damages

    repair = repair_store(store)

    assert dry.actions == repair.actions
    assert found.is_intact or repair.moved_to.is_dir(), damages
    after = verify_store(store)
    assert (True, []) == (after.is_intact, after.findings), damages
    for generation in after.generations:
        memory = assert_all_is_what_was_recorded(store, stored, generation)
    assert after.transitions == len(memory), damages
    play(memory, 50, random)
    memory.save(store)
    assert verify_store(store).is_intact, damages
    assert len(memory) == len(ReplayMemory.load(store)), damages


def assert_repair_survives_a_kill_at(at: int, store: Path, stored: StoredPlay, expected: list[int]) -> bool:
    """Kill a repair at one of its operations and finish it by a second one; return whether it had so many."""
    disk = DeadDisk(at)
    try:
        repair_store(store, files=disk)
    except Killed:
        verify_store(store)
    repair_store(store)
    assert verify_store(store).is_intact
    memory = assert_all_is_what_was_recorded(store, stored)
    assert expected == memory.sampleable_indices().tolist()
    return disk.num_operations > at


def damaged_in_every_way(whole: tuple[Path, StoredPlay], tmp_path: Path) -> tuple[Path, list[int]]:
    """Return a store with damaged segments, steps, index and commit, and the result of an undisturbed repair."""
    damaged = Path(shutil.copytree(whole[0], tmp_path / "damaged"))
    damage_block(damaged, "frames", 2, 1)
    damage_block(damaged, "steps", 1, 0)
    flip_bit(log_file(damaged, "frames", 4, INDEX), np.random.default_rng(0))
    flip_bit(commit_path(damaged, 3), np.random.default_rng(0))
    repaired = Path(shutil.copytree(damaged, tmp_path / "repaired"))
    repair_store(repaired)
    return damaged, ReplayMemory.load(repaired).sampleable_indices().tolist()


@pytest.mark.parametrize("at", [0, 7, 18, 26, 33])
def test_a_killed_repair_leaves_a_store_that_can_be_repaired(at, whole, tmp_path):
    damaged, expected = damaged_in_every_way(whole, tmp_path)

    assert assert_repair_survives_a_kill_at(at, damaged, whole[1], expected)


@pytest.mark.exhaustive
def test_a_repair_can_be_killed_at_every_operation(whole, tmp_path):
    damaged, expected = damaged_in_every_way(whole, tmp_path)
    store = tmp_path / "store"
    for at in itertools.count():
        shutil.copytree(damaged, store)
        was_killed = assert_repair_survives_a_kill_at(at, store, whole[1], expected)
        shutil.rmtree(store)
        if not was_killed:
            break
    assert at > 30


@pytest.mark.parametrize("at", [2, 20])
def test_a_repair_on_a_full_disk_raises_and_leaves_a_store_that_can_be_repaired(at, whole, tmp_path):
    damaged, expected = damaged_in_every_way(whole, tmp_path)

    with pytest.raises(OSError, match="No space left on device"):
        repair_store(damaged, files=FailingDisk(at, errno.ENOSPC, lasting=True))
    repair_store(damaged)

    assert expected == assert_all_is_what_was_recorded(damaged, whole[1]).sampleable_indices().tolist()


def test_a_repair_moves_files_and_never_removes_them(store):
    damage_block(store, "frames", 1, 0)
    before = contents(store)

    repair = repair_store(store)

    moved, after = contents(repair.moved_to), contents(store)
    assert re.fullmatch(r"damaged-\d{8}-\d{6}", repair.moved_to.name)
    for name, content in before.items():
        assert content in (moved.get(name), after.get(name)), name


def test_a_repair_refuses_a_store_that_is_being_written(store):
    damage_block(store, "frames", 1, 0)
    before = contents(store)

    with (
        WriterLock(store / LOCK, "the memory", "stop it"),
        pytest.raises(IncompatibleError, match=r"is being written by process .*; stop that one, then repair"),
    ):
        repair_store(store)

    assert before == contents(store)
    assert 1 == len(verify_store(store).findings)


def test_uncommitted_bytes_are_not_damage(store):
    with log_file(store, "frames", 5).open("ab") as file:
        file.write(b"what a crash left")
    log_file(store, "frames", 9).write_bytes(b"half")
    (store / f"COMMIT.000009.{newest_commit(store).id}.0123456789abcdef.new").write_bytes(b"half")

    assert verify_store(store).is_intact


def test_every_byte_of_every_file_is_verified(store, stored):
    random = np.random.default_rng(5)
    for path in sorted(store.iterdir()):
        if path.name == LOCK:
            continue
        content = path.read_bytes()
        for offset in {0, len(content) - 1, int(random.integers(len(content)))}:
            damaged = bytearray(content)
            damaged[offset] ^= 16
            path.write_bytes(damaged)
            findings = verify_store(store).findings
            assert path in {finding.file for finding in findings}, f"{path.name} at {offset}"
        path.write_bytes(content)


def test_a_folder_without_a_store_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no framestow memory was saved in this folder"):
        verify_store(tmp_path)
