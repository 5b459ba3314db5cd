"""A log of blocks compared with a dict: committed blocks survive everything else."""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.storage.files.block_format import (
    BLOCK_HEADER_BYTES,
    ENTRY_BYTES,
    INDEX,
    LOG,
    BlockKey,
    LogPlace,
    LogState,
    unpack_keys,
)
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.block_log_reader import BlockLogReader
from oracles.ctrl_c import ctrl_c_at_line
from oracles.watched_disk import WatchedDisk

DISK = WatchedDisk()  # it syncs nothing
ID = "00c0ffee00c0ffee"
BYTES_BESIDE_PAYLOAD = BLOCK_HEADER_BYTES + ENTRY_BYTES
KEYS = st.builds(BlockKey, st.integers(0, 3), st.integers(0, 40))


def place(folder: Path, store: str = ID) -> LogPlace:
    return LogPlace(folder, "frames", store)


def remove_unneeded(folder: Path, writer: BlockLogWriter, kept: list[LogState]) -> list[str]:
    """Remove the files that no state of ``kept`` names, as a store does after a commit; return their names."""
    numbers = {file["number"] for state in kept for file in state["files"]}
    named = {place(folder).path(number, ending).name for number in numbers for ending in (LOG, INDEX)}
    removed = sorted(set(os.listdir(folder)) - named)
    for name in removed:
        (folder / name).unlink()
    writer.leave_out(removed)
    return removed


def payload_of(key: BlockKey, size: int = 50) -> bytes:
    return np.random.default_rng([*key, size]).bytes(size)


def filled(folder: Path, num_blocks: int, *, file_bytes: int = 400) -> tuple[BlockLogWriter, dict[BlockKey, bytes]]:
    writer = BlockLogWriter.open(place(folder), None, file_bytes=file_bytes, files=DISK)
    blocks = {BlockKey(n % 2, n): payload_of(BlockKey(n % 2, n)) for n in range(num_blocks)}
    for key, payload in blocks.items():
        writer.append(key, payload)
    return writer, blocks


def remove_all_but(keys: Iterable[BlockKey], writer: BlockLogWriter) -> None:
    writer.remove(set(unpack_keys(writer.table.rows().keys)) - set(keys))


def read_all(folder: Path, state: LogState) -> dict[BlockKey, bytes]:
    with BlockLogReader.open(place(folder), state) as reader:
        assert list(reader.damages()) == []
        return {key: reader.read(key) for key in reader}


class RandomOperations(RuleBasedStateMachine):
    """Append, remove, commit, crash and compact in random order; the oracle has the blocks of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())

    def teardown(self) -> None:
        self.writer.close()
        shutil.rmtree(self.folder)

    @initialize(file_bytes=st.sampled_from([100, 500, 2000, 10**6]))
    def begin(self, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self.writer = BlockLogWriter.open(place(self.folder), None, file_bytes=file_bytes, files=DISK)
        self.blocks: dict[BlockKey, bytes] = {}
        self.generations: list[tuple[LogState, dict[BlockKey, bytes]]] = []
        self.commit(keep_previous=False)

    @rule(key=KEYS, size=st.integers(0, 300))
    def append(self, key: BlockKey, size: int) -> None:
        self.blocks[key] = payload_of(key, size)
        self.writer.append(key, self.blocks[key])
        assert key in self.writer.table

    @rule(keys=st.lists(KEYS, max_size=10))
    def remove(self, keys: list[BlockKey]) -> None:
        self.writer.remove(keys)
        for key in keys:
            self.blocks.pop(key, None)

    @rule(keys=st.sets(KEYS))
    def retain(self, keys: set[BlockKey]) -> None:
        remove_all_but(keys, self.writer)
        self.blocks = {key: payload for key, payload in self.blocks.items() if key in keys}

    @rule()
    def compact(self) -> None:
        assert set(self.writer.compact()) <= set(self.blocks)

    @rule(keep_previous=st.booleans())
    def commit(self, keep_previous: bool) -> None:
        state: LogState = json.loads(json.dumps(self.writer.sync()))
        self.generations = [*(self.generations if keep_previous else []), (state, dict(self.blocks))]
        remove_unneeded(self.folder, self.writer, [state for state, _ in self.generations])
        on_disk = sum(path.stat().st_size for path in self.folder.iterdir())
        assert on_disk >= sum(BYTES_BESIDE_PAYLOAD + len(payload) for payload in self.blocks.values())
        if not keep_previous:
            assert on_disk == self.writer.file_bytes

    @rule(back_to=st.integers(0, 2))
    def crash(self, back_to: int) -> None:
        """Resume from a kept generation; leave out later appends."""
        self.writer.close()
        at = len(self.generations) - 1 - back_to % len(self.generations)
        self.generations = self.generations[: at + 1]  # going back keeps none of those between
        state, self.blocks = copy.deepcopy(self.generations[at])
        self.writer = BlockLogWriter.open(place(self.folder), state, file_bytes=self.file_bytes, files=DISK)
        remove_all_but(self.blocks, self.writer)

    @rule()
    def check(self) -> None:
        assert len(self.blocks) == len(self.writer.table)
        assert sorted(self.blocks) == [*unpack_keys(self.writer.table.rows().keys)]
        for state, blocks in self.generations:
            stored = read_all(self.folder, state)
            assert blocks == {key: stored[key] for key in blocks}


RandomOperations.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None, derandomize=True)
TestAnyCourse = RandomOperations.TestCase


def test_a_file_that_is_longer_than_its_commit_says_stays_and_the_log_goes_on_in_a_new_one(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 7)
    state = writer.sync()
    for number in range(100, 120):
        writer.append(BlockKey(0, number), b"not committed")
    writer.close()
    left = {path: path.read_bytes() for path in tmp_path.iterdir()}

    with BlockLogWriter.open(place(tmp_path), state) as again:
        assert sorted(blocks) == [*unpack_keys(again.table.rows().keys)]
        again.append(BlockKey(0, 100), b"next")
        span = again.find(BlockKey(0, 100))
        after = again.sync()

    assert span.file not in left
    assert left.items() <= {path: path.read_bytes() for path in tmp_path.iterdir()}.items()
    assert blocks | {BlockKey(0, 100): b"next"} == read_all(tmp_path, after)


def test_a_number_that_any_file_of_the_store_has_is_not_used(tmp_path: Path) -> None:
    writer, _ = filled(tmp_path, 7)
    state = writer.sync()
    writer.close()
    (tmp_path / f"frames-{ID}.000009.index").write_bytes(b"of somebody else")
    (tmp_path / "frames-0123456789abcdef.000020.log").write_bytes(b"of another store")

    with BlockLogWriter.open(place(tmp_path), state, file_bytes=100) as again:
        again.append(BlockKey(0, 100), b"next")
        assert f"frames-{ID}.000010.log" == again.find(BlockKey(0, 100)).file.name
        (tmp_path / f"frames-{ID}.000011.index").write_bytes(b"made meanwhile")
        with pytest.raises(FileExistsError, match=r"000011\.index"):
            again.append(BlockKey(0, 101), b"next one")
        again.append(BlockKey(0, 101), b"next one")
        assert f"frames-{ID}.000012.log" == again.find(BlockKey(0, 101)).file.name

    assert b"made meanwhile" == (tmp_path / f"frames-{ID}.000011.index").read_bytes()


def test_a_log_of_another_store_or_of_a_copy_that_went_on_is_refused(tmp_path: Path) -> None:
    ours, theirs, later = tmp_path / "ours", tmp_path / "theirs", tmp_path / "later"
    for folder in (ours, theirs, later):
        folder.mkdir()
    writer, blocks = filled(ours, 3, file_bytes=10**6)
    state = writer.sync()
    writer.close()
    for folder, store in ((theirs, "0123456789abcdef"), (later, ID)):
        with BlockLogWriter.open(place(folder, store), None, files=DISK) as other:
            for key, payload in blocks.items():
                other.append(key, payload[::-1])  # blocks of the same keys and sizes
            other.sync()
    for folder, store in ((theirs, "0123456789abcdef"), (later, ID)):
        for endings in ((LOG,), (INDEX,), (LOG, INDEX)):
            mixed = shutil.copytree(ours, tmp_path / "mixed")
            for ending in endings:
                shutil.copy(place(folder, store).path(1, ending), place(mixed).path(1, ending))
            found = blocks_or_errors(mixed, state, set(blocks))
            if endings == (INDEX,):
                assert blocks == found
            else:
                assert {"refused"} == set(found.values())
            shutil.rmtree(mixed)


def blocks_or_errors(folder: Path, state: LogState, keys: set[BlockKey]) -> dict[BlockKey, bytes | str]:
    found: dict[BlockKey, bytes | str] = dict.fromkeys(keys, "refused")
    try:
        with BlockLogReader.open(place(folder), state) as reader:
            for key in keys:
                with suppress(DamagedDataError):
                    found[key] = reader.read(key)
    except DamagedDataError as error:
        assert str(folder) in str(error)  # noqa: PT017
    return found


def test_a_block_of_another_version_is_damage(tmp_path: Path) -> None:
    with BlockLogWriter.open(place(tmp_path), None) as writer:
        writer.append(BlockKey(0, 0), b"first", 0)
        writer.append(BlockKey(0, 0), b"changed", 1)
        state = writer.sync()

    with BlockLogReader.open(place(tmp_path), state) as reader:
        assert b"changed" == reader.read(BlockKey(0, 0), 1)
        with pytest.raises(DamagedDataError, match="has version 1, and the commit names version 0"):
            reader.read(BlockKey(0, 0))


def test_a_lost_index_is_rebuilt_from_the_headers_in_the_log(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 20)
    state = writer.sync()
    writer.close()
    whole = {path: path.read_bytes() for path in tmp_path.glob("*.index")}
    for path in whole:
        path.unlink()

    with BlockLogReader.open(place(tmp_path), state) as reader:
        assert blocks == {key: reader.read(key) for key in reader}
        assert sorted(whole) == sorted(damage.file for damage in list(reader.damages()))
        assert sorted(whole) == sorted(reader.repair_indices())
    assert whole == {path: path.read_bytes() for path in tmp_path.glob("*.index")}


def damaged_versions(content: bytes):
    for offset in range(len(content)):
        yield offset, content[:offset] + bytes([content[offset] ^ (1 << offset % 8)]) + content[offset + 1 :]
        yield offset, content[:offset]


def test_every_flipped_or_missing_byte_is_found_and_never_read(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 3, file_bytes=10**6)
    state = writer.sync()
    writer.close()

    for path in sorted(tmp_path.iterdir()):
        whole = path.read_bytes()
        for offset, damaged in damaged_versions(whole):
            path.write_bytes(damaged)
            with BlockLogReader.open(place(tmp_path), state) as reader:
                damages = list(reader.damages())
                assert {path} == {damage.file for damage in damages}
                assert any(damage.offset - BLOCK_HEADER_BYTES <= offset for damage in damages)
                lost = {damage.key for damage in damages if damage.key}
                for key in reader:
                    if key in lost:
                        with pytest.raises(
                            DamagedDataError, match=rf"frames-\w+\.000001\.log: block {key.number} of track"
                        ):
                            reader.read(key)
                    else:
                        assert blocks[key] == reader.read(key)
                assert path.suffix == ".log" or sorted(blocks) == list(reader)
        path.write_bytes(whole)


def test_a_log_with_a_damaged_header_and_index_is_refused_as_a_whole(tmp_path: Path) -> None:
    writer, _ = filled(tmp_path, 6, file_bytes=10**6)
    state = writer.sync()
    writer.close()
    log = place(tmp_path).path(1, LOG)
    in_log = bytearray(log.read_bytes())
    in_log[40 + 2 * 90 + 5] ^= 1  # the header of the third block
    log.write_bytes(in_log)
    place(tmp_path).path(1, INDEX).unlink()

    with pytest.raises(DamagedDataError, match="its blocks are not those that the commit names"):
        BlockLogReader.open(place(tmp_path), state)
    with BlockLogReader.open(place(tmp_path), state, skips_damage=True) as reader:
        assert ([], [log]) == (list(reader), [damage.file for damage in reader.unusable])


def test_a_log_with_a_damaged_end_continues_in_a_new_file(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 3, file_bytes=10**6)
    state = writer.sync()
    writer.close()
    next_files = {f"frames-{ID}.000001.{ending}": f"frames-{ID}.00000{n}.log" for n, ending in ((2, INDEX), (3, LOG))}
    for damaged, next_file in next_files.items():
        whole = (tmp_path / damaged).read_bytes()
        (tmp_path / damaged).write_bytes(whole[:-1])
        with BlockLogWriter.open(place(tmp_path), state) as again:
            again.append(BlockKey(0, 9), b"next")
            span = again.find(BlockKey(0, 9))
        (tmp_path / damaged).write_bytes(whole)

        assert span.file.name == next_file
    assert blocks == read_all(tmp_path, state)


def test_a_log_counts_the_bytes_that_a_killed_writer_left_in_it_and_in_its_index(tmp_path: Path) -> None:
    writer, _ = filled(tmp_path, 3, file_bytes=10**6)
    named = writer.sync()
    writer.append(BlockKey(3, 3), b"x" * 50)
    writer.sync()  # and no commit
    writer.close()

    with BlockLogWriter.open(place(tmp_path), named, files=DISK) as resumed:
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == resumed.file_bytes


def test_compaction_keeps_a_damaged_block_so_that_readers_find_it(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 12)
    writer.append(BlockKey(3, 3), b"x" * 1000)
    writer.remove([key for key in blocks if key.number not in (0, 1)])
    writer.remove([BlockKey(3, 3)])
    state = writer.sync()
    span = writer.find(BlockKey(1, 1))
    damaged = bytearray(span.file.read_bytes())
    damaged[span.offset] ^= 1
    span.file.write_bytes(damaged)

    moved = writer.compact()
    assert {BlockKey(0, 0)} == set(moved)
    assert writer.compact() == []
    state = writer.sync()
    remove_unneeded(tmp_path, writer, [state])
    writer.close()

    assert span.file.exists()
    with BlockLogReader.open(place(tmp_path), state) as reader:
        assert blocks[BlockKey(0, 0)] == reader.read(BlockKey(0, 0))
        with pytest.raises(DamagedDataError, match="block 1 of track 1 at offset"):
            reader.read(BlockKey(1, 1))


@pytest.mark.parametrize("num_between", [20, 400])
def test_a_log_with_random_removals_stays_below_twice_the_needed_bytes(num_between: int, tmp_path: Path) -> None:
    random, blocks = np.random.default_rng(3), list(range(500))
    file_bytes = 4000
    writer = BlockLogWriter.open(place(tmp_path), None, file_bytes=file_bytes, files=DISK)
    for number in range(2500):
        if number >= 500:
            chosen = int(random.integers(len(blocks)))
            writer.remove([BlockKey(0, blocks[chosen])])
            blocks[chosen] = number
        writer.append(BlockKey(0, number), payload_of(BlockKey(0, 0), 40))
        if number % num_between == 0:
            writer.compact()
            remove_unneeded(tmp_path, writer, [writer.sync()])
            needed_bytes = min(number + 1, len(blocks)) * (BYTES_BESIDE_PAYLOAD + 40)
            assert writer.file_bytes <= 2 * needed_bytes + 2 * file_bytes

    assert sorted(blocks) == [number for _, number in unpack_keys(writer.table.rows().keys)]
    writer.close()


def test_a_reader_can_read_files_that_a_writer_removes(tmp_path: Path) -> None:
    writer, blocks = filled(tmp_path, 12)
    with BlockLogReader.open(place(tmp_path), writer.sync()) as reader:
        remove_all_but([], writer)
        removed = remove_unneeded(tmp_path, writer, [writer.sync()])

        assert len(removed) == 4
        assert blocks == {key: reader.read(key) for key in reader}
    writer.close()


def test_a_missing_log_file_is_named(tmp_path: Path) -> None:
    writer, _ = filled(tmp_path, 12)
    state = writer.sync()
    writer.close()
    place(tmp_path).path(1, LOG).unlink()

    for log in (BlockLogWriter, BlockLogReader):
        with pytest.raises(DamagedDataError, match=r"frames-\w+\.000001\.log: the file is missing, and 4 blocks with"):
            log.open(place(tmp_path), state)


def test_out_of_bounds_keys_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    writer, _ = filled(tmp_path, 1)
    state = writer.sync()

    for key in (BlockKey(-1, 0), BlockKey(0, -1), BlockKey(2**22, 0), BlockKey(0, 2**40)):
        with pytest.raises(InvalidSettingsError, match="a log has at most"):
            writer.append(key, b"")
    assert state == writer.sync()
    writer.close()


@pytest.mark.filterwarnings("ignore:unclosed file")  # opened and not yet assigned
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_log_stays_usable_after_a_ctrl_c_at_any_line(every: int, tmp_path: Path) -> None:
    wanted = {BlockKey(0, n): payload_of(BlockKey(0, n)) for n in range(2, 9)}
    line, was_interrupted = 0, True
    while was_interrupted:
        line, was_interrupted = line + every, False
        folder = tmp_path / str(line)
        folder.mkdir()
        writer = BlockLogWriter.open(place(folder), None, file_bytes=300, files=DISK)
        writer.append(BlockKey(0, 0), b"first")
        try:
            with ctrl_c_at_line(line, ("framestow/storage/files",)):
                append_missing(writer, dict(list(wanted.items())[:4]))
                writer.sync()
        except KeyboardInterrupt:
            was_interrupted = True

        append_missing(writer, wanted)
        state = writer.sync()
        assert {BlockKey(0, 0): b"first", **wanted} == read_all(folder, state)
        writer.remove(BlockKey(0, n) for n in range(9) if n != 2 + line % 4)
        state = writer.sync()
        remove_unneeded(folder, writer, [state])
        assert payload_of(BlockKey(0, 2 + line % 4)) == read_all(folder, state)[BlockKey(0, 2 + line % 4)]
        writer.close()
    assert line > 200


def append_missing(writer: BlockLogWriter, blocks: dict[BlockKey, bytes]) -> None:
    for key, payload in blocks.items():
        if key not in writer.table:
            writer.append(key, payload)
