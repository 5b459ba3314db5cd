"""Changed files are found and named; files with impossible content build no memory."""

from __future__ import annotations

import json
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framestow._core import checksum
from framestow.errors import DamagedDataError, FramestowError, IncompatibleError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import pack_arrays, unpack_arrays, write_commit
from framestow.replay.store.verify import verify_store
from framestow.storage.files.block_format import INDEX
from oracles.store_files import files_of_newest_commit, log_file, read_commit

pytestmark = pytest.mark.slow  # more than two seconds

LOG_HEADER_BYTES = 40
LOGS = "frames", "steps"
GIB = 2**30


def load_everything(folder: Path) -> None:
    memory = ReplayMemory.load(folder)
    if len(memory):
        memory.get(memory.sampleable_indices())


@pytest.fixture(scope="module")
def small_store(tmp_path_factory) -> Path:
    """A store of a few KB with all parts: sealed segments and steps, an open segment, steps of an incomplete block."""
    folder = tmp_path_factory.mktemp("store") / "memory"
    memory = ReplayMemory(5000, FrameSpec((2, 2)), 4, stack=2, num_envs=1, seed=0)
    frame = np.zeros((1, 2, 2), np.uint8)
    memory.begin(frame)
    for step in range(4200):
        memory.append([0], [step], [False], [False], frame)
    memory.save(folder)
    return folder


@pytest.fixture
def store(small_store, tmp_path) -> Path:
    return Path(shutil.copytree(small_store, tmp_path / "memory"))


def flips(file: Path, most: int | None) -> Iterator[int]:
    """Flip a bit at every offset of the file, or at ``most`` random ones, one at a time; restore it."""
    good = file.read_bytes()
    first = LOG_HEADER_BYTES if file.suffix == ".log" else 0  # loading does not read it; `verify` does
    offsets = np.arange(first, len(good))
    if most is not None and most < len(offsets):
        offsets = np.random.default_rng(0).choice(offsets, most, replace=False)
    for offset in offsets.tolist():
        damaged = bytearray(good)
        damaged[offset] ^= 1 << (offset % 8)
        file.write_bytes(damaged)
        yield offset
    file.write_bytes(good)


@pytest.mark.parametrize("most", [40, pytest.param(None, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("log", LOGS)
def test_any_changed_byte_of_a_log_is_found_and_its_file_named(log, most, store):
    path = log_file(store, log)
    for _ in flips(path, most):
        with pytest.raises((DamagedDataError, IncompatibleError), match=re.escape(path.name)):
            load_everything(store)

    load_everything(store)


@pytest.mark.parametrize("most", [40, pytest.param(None, marks=pytest.mark.exhaustive)])
def test_a_changed_byte_of_the_newest_commit_costs_nothing_and_is_named(most, store):
    commit, copy = files_of_newest_commit(store)
    for _ in flips(commit, most):
        said = rf"{commit.name}: .*: its copy has the same content .*so nothing is missing.*`framestow repair {store}`"
        with pytest.warns(RuntimeWarning, match=said):
            load_everything(store)
        with pytest.warns(RuntimeWarning, match=said):
            ReplayMemory.load(store, generation=2)

    for _ in flips(copy, most):
        load_everything(store)  # does not read it
        assert copy in {finding.file for finding in verify_store(store).findings}
    load_everything(store)


@pytest.mark.parametrize("log", LOGS)
def test_a_changed_byte_of_an_index_costs_nothing(log, store):
    """The block headers replace the entries of a damaged index."""
    for _ in flips(log_file(store, log, ending=INDEX), 20):
        load_everything(store)


@pytest.mark.parametrize("log", LOGS)
@pytest.mark.parametrize("harm", ["cut short", "missing"])
def test_a_truncated_or_missing_log_is_named(log, harm, store):
    file = log_file(store, log)
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DamagedDataError, match=file.name):
        load_everything(store)


def change_front(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrite the front of the newest commit with correct checksums."""
    commit, *copies = files_of_newest_commit(folder)
    for copy in copies:  # it would have the other content
        copy.unlink()
    content = commit.read_bytes()
    start = 18 + int(content[9:17], 16)
    fields = json.loads(content[18:start])
    change(fields)
    front = json.dumps(fields).encode()
    content = b"%08x %08x\n" % (checksum(front), len(front)) + front + content[start:-4]
    commit.write_bytes(content + checksum(content).to_bytes(4, "little"))


def test_a_memory_of_a_later_version_is_refused(store):
    change_front(store, lambda content: content.update(version=3))

    with pytest.raises(IncompatibleError, match="it is version 3"):
        ReplayMemory.load(store)


def test_a_memory_with_an_unknown_stack_padding_is_refused(store):
    change_front(store, lambda content: content["memory"]["settings"].update(stack_padding="mirror"))

    with pytest.raises(InvalidSettingsError, match="stack_padding is 'mirror': it must be one of"):
        ReplayMemory.load(store)


def test_a_memory_with_segments_of_another_length_is_refused(store):
    change_front(store, lambda content: content.update(frames_per_segment=content["frames_per_segment"] // 2))

    with pytest.raises(IncompatibleError, match="load it with the version that saved it"):
        ReplayMemory.load(store)


def paths_in(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the path of every value in nested dicts and lists."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from paths_in(child, (*path, key))


def put(content: Any, path: tuple, value: Any) -> None:
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


@contextmanager
def at_most(num_bytes: int):
    """Limit the address space of the process to ``num_bytes`` more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


HOSTILE = [
    None,
    True,
    -1,
    0,
    2**31,
    2**62,
    10**30,
    0.5,
    float("nan"),
    "",
    "../../etc/passwd",
    "O",
    [],
    [-1],
    [2**40],
    {},
]


@pytest.mark.filterwarnings("ignore:.*is read in place of it:RuntimeWarning")
@pytest.mark.parametrize("values", [[None, -1, 2**62], pytest.param(HOSTILE, marks=pytest.mark.exhaustive)])
def test_a_commit_with_any_value_in_any_field_loads_or_is_refused_by_name(values, store):
    commit = files_of_newest_commit(store)[0]
    original = commit.read_bytes()
    content = json.loads(original[18 : 18 + int(original[9:17], 16)])
    refused = []

    with at_most(2 * GIB):
        for path in list(paths_in(content))[1:]:
            for value in values:
                change_front(store, lambda changed, path=path, value=value: put(changed, path, value))
                try:
                    load_everything(store)
                except FramestowError as error:
                    refused.append((path, value, error))
                commit.write_bytes(original)

    assert 30 * len(values) < len(refused)
    assert [] == [one for one in refused if isinstance(one[-1], DamagedDataError) and str(store) not in str(one[-1])]


def test_arrays_with_any_value_load_or_are_refused_by_name(store):
    commit, arrays = read_commit(store)
    refused = []

    with at_most(2 * GIB):
        for name, array in arrays.items():
            for changed in hostile_arrays(array):
                write_commit(store, commit, pack_arrays(arrays | {name: changed}))
                try:
                    load_everything(store)
                except FramestowError as error:
                    refused.append((name, changed, error))

    assert 50 < len(refused)
    assert [] == [one for one in refused if isinstance(one[-1], DamagedDataError) and str(store) not in str(one[-1])]


def hostile_arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    yield array[:0]
    yield np.concatenate([array, array])
    yield array.astype(np.float32) if array.dtype.kind in "biu" else array.astype(np.int64)
    yield array.reshape(1, *array.shape)
    if array.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        for value in (limits.min, limits.max, limits.max // 2, 2**20):
            changed = array.copy()
            changed.flat[-1] = min(value, limits.max)
            yield changed


@pytest.mark.parametrize(
    "line",
    [
        '{"rewards": ["<f8", [9000000000]]}',
        '{"rewards": ["<f8", [-1]]}',
        '{"rewards": ["<f8", [2, -2, -1]]}',
        '{"rewards": ["<f8", [3]]}',
        '{"rewards": ["|O", [4]]}',
        '{"rewards": ["<f8", 4]}',
        '{"rewards": ["<f8", [1e300]]}',
        '{"rewards": 7}',
        '["rewards"]',
        "[" * 100_000,
        "",
    ],
)
def test_a_state_that_claims_other_arrays_than_it_has_allocates_nothing(line):
    stored = line.encode() + b"\n" + np.zeros(4).tobytes()

    with at_most(GIB), pytest.raises(DamagedDataError, match=r"COMMIT\.000001: it does not have arrays"):
        unpack_arrays(stored, "COMMIT.000001")
