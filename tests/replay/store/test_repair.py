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
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from framestow.storage.files.writer_lock import LOCK, WriterLock
from oracles.damage import damage_at_random, flip_bit
from oracles.dead_disk import DeadDisk, Killed
from oracles.failing_disk import FailingDisk
from oracles.saved_bytes import saved_bytes
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
    index = (store / f"{log}.{file:06d}.index").read_bytes()
    offset = int.from_bytes(index[32 * (entry + 1) + 12 : 32 * (entry + 1) + 20], "little")
    path = store / f"{log}.{file:06d}.log"
    content = bytearray(path.read_bytes())
    content[offset + 5] ^= 1
    path.write_bytes(content)
    return offset


def key_at(store: Path, log: str, file: int, number: int) -> tuple[int, int]:
    entry = (store / f"{log}.{file:06d}.index").read_bytes()[32 * (number + 1) :]
    return int.from_bytes(entry[:4], "little"), int.from_bytes(entry[4:12], "little")


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

    assert (True, [1, 2], 0) == (verification.is_intact, verification.generations, verification.lost)
    assert verification.transitions == 6_000
    assert ([], None) == (repair.actions, repair.moved_to)
    assert before == contents(store)


def test_a_damaged_segment_costs_exactly_the_transitions_that_show_its_frames(store, stored):
    offset = damage_block(store, "frames", 2, 1)
    track, number = key_at(store, "frames", 2, 1)

    (finding,) = verify_store(store).findings
    repair = repair_store(store)

    for generation in (1, 2):
        memory = assert_all_is_what_was_recorded(store, stored, generation)
        assert without_frames(stored, generation, track, number) == set(memory.sampleable_indices().tolist())
    assert (store / "frames.000002.log", offset) == (finding.file, finding.offset)
    assert finding.transitions == 6_000 - len(without_frames(stored, 2, track, number))
    assert f"block {number} of track {track} at offset {offset}" in finding.message
    assert [finding] == repair.found.findings
    assert verify_store(store).is_intact


def test_damaged_blocks_of_steps_cost_exactly_their_transitions(store, stored):
    entries = [(1, 0), (2, 1)]
    offsets = [damage_block(store, "steps", *entry) for entry in entries]
    numbers = [key_at(store, "steps", *entry)[1] for entry in entries]

    findings = verify_store(store).findings
    repair_store(store)

    for generation in (1, 2):
        memory = assert_all_is_what_was_recorded(store, stored, generation)
        indices = stored.windows[generation][0]
        assert indices[~np.isin(indices // STEPS_PER_BLOCK, numbers)].tolist() == memory.sampleable_indices().tolist()
    files = [store / f"steps.{file:06d}.log" for file, _ in entries]
    indices = stored.windows[2][0]
    costs = [int((indices // STEPS_PER_BLOCK == number).sum()) for number in numbers]
    is_sealed = [
        indices[0] <= number * STEPS_PER_BLOCK for number in numbers
    ]  # the state stores the rest of other blocks
    expected = [cost if sealed else 0 for cost, sealed in zip(costs, is_sealed, strict=True)]
    assert [*zip(files, offsets, expected, strict=True)] == [
        (one.file, one.offset, one.transitions) for one in findings
    ]
    assert verify_store(store).is_intact


@pytest.mark.parametrize("name", ["frames.000001.index", "steps.000001.index"])
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_lost_index_costs_nothing(name, is_removed, store, stored):
    before = contents(store)
    if is_removed:
        (store / name).unlink()
    else:
        flip_bit(store / name, np.random.default_rng(0))

    (finding,) = verify_store(store).findings
    repair = repair_store(store)

    assert (store / name, 0) == (finding.file, finding.transitions)
    assert f"{name} is rewritten from its log" in repair.actions
    assert before == contents(store)
    assert 6_000 == len(assert_all_is_what_was_recorded(store, stored))


@pytest.mark.parametrize("is_removed", [False, True])
def test_damaged_manifests_cost_nothing_if_the_state_files_are_intact(is_removed, store, stored):
    before = saved_bytes(store)
    for manifest in store.glob("MANIFEST.*"):
        manifest.unlink() if is_removed else flip_bit(manifest, np.random.default_rng(1))

    verification = verify_store(store)
    repair_store(store)

    assert ["MANIFEST.000001", "MANIFEST.000002"] == sorted(finding.file.name for finding in verification.findings)
    assert before == saved_bytes(store)
    assert 6_000 == len(assert_all_is_what_was_recorded(store, stored))


def test_a_lost_newest_manifest_is_rebuilt_beside_an_older_generation(store, stored):
    before = saved_bytes(store)
    (store / "MANIFEST.000002").unlink()

    verification = verify_store(store)
    repair_store(store)

    assert ["MANIFEST.000002"] == [finding.file.name for finding in verification.findings]
    assert (6_000, 0) == (verification.transitions, verification.lost)
    assert before == saved_bytes(store)
    assert 6_000 == len(assert_all_is_what_was_recorded(store, stored))


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: flip_bit(path, np.random.default_rng(0))])
def test_verification_without_a_state_file_counts_what_a_repair_keeps(damage, store):
    for state in store.glob("state.*"):
        damage(state)

    verification = verify_store(store)
    repair_store(store)

    assert 3_000 < verification.transitions < 6_000
    assert 6_000 == verification.transitions + verification.lost
    assert verification.transitions == len(ReplayMemory.load(store))


def test_a_damaged_state_is_replaced_by_the_generation_before_under_a_new_number(store, stored):
    flip_bit(store / "state.000002.npz", np.random.default_rng(0))

    repair = repair_store(store)

    assert "generation 2 is dropped: its manifest or its state cannot be read" in repair.actions
    memory = assert_all_is_what_was_recorded(store, stored)
    assert stored.windows[1][0].tolist() == memory.sampleable_indices().tolist()
    assert ["MANIFEST.000001", "MANIFEST.000003"] == sorted(path.name for path in store.glob("MANIFEST.*"))
    assert {"MANIFEST.000002", "state.000002.npz"} <= {path.name for path in repair.moved_to.iterdir()}
    with pytest.raises(FileNotFoundError):
        ReplayMemory.load(store, generation=2)


def test_without_state_files_complete_segments_are_rebuilt_from_the_logs(store, stored):
    for state in store.glob("state.*"):
        flip_bit(state, np.random.default_rng(0))
    num_sealed = np.zeros(NUM_ENVS, np.int64)
    for log in range(1, 1 + len(list(store.glob("frames.*.log")))):
        for entry in range((store / f"frames.{log:06d}.index").stat().st_size // 32 - 1):
            track, number = key_at(store, "frames", log, entry)
            num_sealed[track] = max(num_sealed[track], number + 1)

    repair_store(store)

    memory = assert_all_is_what_was_recorded(store, stored)
    indices, tracks, _, lasts = stored.windows[2]
    is_sealed = lasts < num_sealed[tracks] * stored.frames_per_segment
    is_in_a_block = indices < indices[-1] // STEPS_PER_BLOCK * STEPS_PER_BLOCK
    first = -(-indices[0] // STEPS_PER_BLOCK) * STEPS_PER_BLOCK
    kept = indices[is_sealed & is_in_a_block & (indices >= first)]
    assert kept.tolist() == memory.sampleable_indices().tolist()
    assert len(kept) > 3_000
    assert verify_store(store).is_intact


def test_without_manifests_and_state_files_nothing_is_changed(store):
    for path in [*store.glob("MANIFEST.*"), *store.glob("state.*")]:
        path.write_bytes(b"")
    before = contents(store)

    with pytest.raises(DamagedDataError, match="the settings of the memory are unknown; load an older save"):
        repair_store(store)

    assert before == contents(store)


def test_an_environment_without_its_newest_frames_continues_with_a_new_episode(store, stored):
    memory = ReplayMemory.load(store)
    newest = [memory.inner.storage.open_segment(track) - 1 for track in range(NUM_ENVS)]
    while (
        memory.inner.storage.stored_positions(0).stop % stored.frames_per_segment
    ):  # until track 0 has no open segment
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
    for index in store.glob("frames.*.index"):
        file = int(index.name.split(".")[1])
        for entry in range(index.stat().st_size // 32 - 1):
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
def test_memories_of_every_kind_are_repaired_and_rebuilt_from_their_logs(kind, tmp_path):
    stored = store_play(tmp_path / "whole", **OTHER_MEMORIES[kind])
    damaged, rebuilt = (Path(shutil.copytree(tmp_path / "whole", tmp_path / name)) for name in ("damaged", "rebuilt"))

    damage_repair_and_resume(0, damaged, stored)
    for state in rebuilt.glob("state.*"):
        state.unlink()
    repair_store(rebuilt)

    assert verify_store(rebuilt).is_intact
    memory = assert_all_is_what_was_recorded(rebuilt, stored)
    assert len(memory) > 2_000
    play(memory, 100, np.random.default_rng(0))
    memory.inner.parts.check()


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
    found = verify_store(store)
    before = contents(store)
    dry = repair_store(store, dry_run=True) if found.generations else None
    assert before == contents(store), damages

    try:
        repair = repair_store(store)
    except DamagedDataError:
        assert not list(store.glob("state.*")) or not found.generations, damages
        return

    assert dry is None or dry.actions == repair.actions
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
    """Return a store with damaged segments, steps, index and state, and the result of an undisturbed repair."""
    damaged = Path(shutil.copytree(whole[0], tmp_path / "damaged"))
    damage_block(damaged, "frames", 2, 1)
    damage_block(damaged, "steps", 1, 0)
    flip_bit(damaged / "frames.000004.index", np.random.default_rng(0))
    flip_bit(damaged / "state.000002.npz", np.random.default_rng(0))
    repaired = Path(shutil.copytree(damaged, tmp_path / "repaired"))
    repair_store(repaired)
    return damaged, ReplayMemory.load(repaired).sampleable_indices().tolist()


@pytest.mark.parametrize("at", [0, 7, 18, 33, 42])
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
    assert at > 40


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
    with (store / "frames.000001.log").open("ab") as file:
        file.write(b"what a crash left")
    (store / "state.000009.npz").write_bytes(b"half")

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
