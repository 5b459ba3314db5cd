"""Flips and cuts at every offset of a small store: each is found or harmless, and no content differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.replay.memory import ReplayMemory
from framestow.storage.files.block_format import FILE_HEADER_BYTES
from oracles.fixed_play import NUM_ENVS, FixedPlay, memory_of_play

STEPS, CAPACITY = 520, 1100  # for each track a sealed segment and a sealed block of steps, and some more
pytestmark = pytest.mark.filterwarnings("ignore:.*its copy has the same content:RuntimeWarning")
# Every third byte, in four parts for two processes; tests/storage/files tries every byte of logs and commits.
OFFSETS = pytest.mark.parametrize(
    ("first", "every"), [(0, 1597), *(pytest.param(part, 12, marks=pytest.mark.exhaustive) for part in (0, 3, 6, 9))]
)


@OFFSETS
def test_damage_to_a_saved_memory_is_found_or_harmless(first: int, every: int, tmp_path: Path, record_property) -> None:
    play, memory, folder = FixedPlay(STEPS), memory_of_play(CAPACITY), tmp_path / "memory"
    play.record(memory, 0, STEPS)
    memory.save(folder)
    outcomes: Counter[str] = Counter()

    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for offset, damaged in versions(whole, first, every):
            path.write_bytes(damaged)
            loaded = loaded_or_error(folder)
            if isinstance(loaded, DamagedDataError):
                assert str(folder) in str(loaded)
                outcomes["found"] += 1
            else:
                assert STEPS == play.check_newest(loaded)
                is_read = path.suffix == ".log" and offset >= FILE_HEADER_BYTES
                assert not is_read, f"{path}, {offset}"  # a commit has a copy
                outcomes["harmless"] += 1
        path.write_bytes(whole)
        path.unlink()
        if path.suffix == ".log":
            with pytest.raises(DamagedDataError, match="memory"):
                ReplayMemory.load(folder)
        else:
            assert STEPS == play.check_newest(ReplayMemory.load(folder))
        path.write_bytes(whole)
    for outcome, number in outcomes.items():
        record_property(f"changed and cut off bytes that were {outcome}", number)
    assert min(outcomes["found"], outcomes["harmless"]) > 0


@OFFSETS
def test_damage_to_a_memory_in_its_folder_is_found_or_skipped(
    first: int, every: int, tmp_path: Path, record_property
) -> None:
    play, memory, folder = FixedPlay(STEPS), memory_of_play(CAPACITY), tmp_path / "memory"
    play.record(memory, 0, STEPS)
    memory.save(folder)
    outcomes: Counter[str] = Counter()
    num_kept = 0

    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for _, damaged in versions(whole, first, every):
            path.write_bytes(damaged)
            numbers = numbers_or_error(play, folder, "raise")
            outcome = "found" if isinstance(numbers, DamagedDataError) else "harmless"
            assert outcome == "found" or numbers == list(range(STEPS * NUM_ENVS))
            assert outcome == "harmless" or str(folder) in str(numbers)
            outcomes[outcome] += 1
            left = numbers_or_error(play, folder, "skip")
            if outcome == "harmless":
                assert left == numbers
            elif isinstance(left, list):
                assert len(left) < STEPS * NUM_ENVS
                outcomes["found, and all else was kept"] += 1
                num_kept += len(left)
        path.write_bytes(whole)
    for outcome, number in outcomes.items():
        record_property(f"changed and cut off bytes that were {outcome}", number)
    record_property("transitions that were kept then", num_kept)
    assert outcomes["found"] >= outcomes["found, and all else was kept"] > 0


def numbers_or_error(play: FixedPlay, folder: Path, on_damage: str) -> list[int] | DamagedDataError:
    """Return the numbers of all transitions that a reader returns, each compared with the play."""
    try:
        memory = ReplayMemory.open(folder, on_damage=on_damage)
        while True:
            try:
                return play.check_any(memory)
            except NothingToSampleError:  # evicted meanwhile, with the rest of its segment
                assert on_damage == "skip"
    except DamagedDataError as error:
        return error


def loaded_or_error(folder: Path) -> ReplayMemory | DamagedDataError:
    try:
        return ReplayMemory.load(folder)
    except DamagedDataError as error:
        return error


def versions(whole: bytes, first: int, every: int) -> Iterator[tuple[int, bytes]]:
    """Yield ``whole`` with one bit flipped, and truncated, at every so many offsets from the first."""
    random = np.random.default_rng(len(whole))
    for offset in range(first, len(whole), min(every, 1 + len(whole) // 3)):
        yield offset, whole[:offset] + bytes([whole[offset] ^ (1 << random.integers(8))]) + whole[offset + 1 :]
        yield offset, whole[:offset]
