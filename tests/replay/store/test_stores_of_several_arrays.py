"""Stores of Dict and Tuple observations: damage in one array of an environment costs only the steps that show it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from framestow.errors import DamagedDataError, DamagedSegmentError
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
from framestow.storage.files.block_format import ENTRY, FILE_HEADER_BYTES
from oracles.damage import damage_at_random
from oracles.observations_of_bytes import NUM_BYTES, SPACE, MemoryOfBytes, spec

pytestmark = pytest.mark.slow  # more than two seconds

ENVS, FRAMES, STEPS = 2, 16, 650  # of a segment, of each environment
KEYS = [array.key for array in spec().arrays]
LIKE = {"stack": 3, "num_envs": ENVS, "frames_per_segment": FRAMES, "seed": 0}


def exhaustively(cases: Iterable[Any]) -> list[Any]:
    return [pytest.param(case, marks=pytest.mark.exhaustive) for case in cases]


class Recorded(NamedTuple):
    """Content of a store before any damage: by index, observation, next observation and positions of its frames."""

    folder: Path
    batch: dict[int, tuple[bytes, bytes]]
    windows: dict[int, tuple[int, int, int]]
    """Track, first and last position."""

    def assert_holds(self, memory: ReplayMemory) -> set[int]:
        """Raise unless every transition of ``memory`` equals the recording; return their indices."""
        memory.inner.parts.check()
        batch = MemoryOfBytes(memory).get(memory.sampleable_indices())
        indices = batch.index.tolist()
        assert [self.batch[index] for index in indices] == pairs_of(batch)
        return set(indices)

    def without(self, env_id: int, number: int) -> set[int]:
        """Return the indices of transitions that show no frame of that segment."""
        start, stop = number * FRAMES, (number + 1) * FRAMES
        lost = {i for i, (own, first, last) in self.windows.items() if own == env_id and first < stop and last >= start}
        return self.windows.keys() - lost


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return recorded(tmp_path_factory.mktemp("whole") / "store")


def pairs_of(batch: Batch) -> list[tuple[bytes, bytes]]:
    return [
        (before.tobytes(), after.tobytes())
        for before, after in zip(batch.observation, batch.next_observation, strict=True)
    ]


def recorded(
    folder: Path, retention: str = "fifo", capacity: int = 1_000, episode: int = 50, num_steps: int = STEPS
) -> Recorded:
    """Record episodes of two environments; save twice."""
    random, frames = np.random.default_rng(0), np.zeros((ENVS, NUM_BYTES), np.uint8)
    keyed = ReplayMemory(capacity, SPACE, 4, retention=retention, **{"stack": 4} | LIKE)
    memory = MemoryOfBytes(keyed)
    memory.begin(frames)
    for step in range(num_steps):
        frames[:, random.integers(0, NUM_BYTES, 5)] = random.integers(0, 256, 5)
        has_ended = step % episode == episode - 1
        memory.append([step % 4] * 2, [step] * 2, [has_ended] * 2, [False] * 2, frames)
        if has_ended:
            memory.begin(frames // 2)
        if step == num_steps // 2:
            keyed.save(folder)
    keyed.save(folder)
    indices = keyed.sampleable_indices()
    shown = dict(zip(indices.tolist(), pairs_of(memory.get(indices)), strict=True))
    env_ids, lasts, counts = keyed.inner.steps.resolve_steps(indices)[0]
    spans = zip(env_ids.tolist(), (lasts - counts + 1).tolist(), lasts.tolist(), strict=True)
    return Recorded(folder, shown, dict(zip(indices.tolist(), spans, strict=True)))


@pytest.fixture
def store(whole: Recorded, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.folder, tmp_path / "store"))


def damage(store: Path, track: int, number: int) -> Path:
    """Flip a bit of that block of frames; return the file."""
    for index in sorted(store.glob("frames-*.index")):
        entries = np.frombuffer(index.read_bytes()[FILE_HEADER_BYTES:], ENTRY)
        for entry in entries[(entries["track"] == track) & (entries["number"] == number)]:
            log = index.with_suffix(".log")
            content = bytearray(log.read_bytes())
            content[int(entry["offset"]) + 9] ^= 1
            log.write_bytes(content)
            return log
    raise AssertionError("no such block")


@pytest.mark.parametrize("key", ["depth", "seen", *exhaustively(["arm.0.joints", "arm.1", "camera", "touch"])])
def test_a_damaged_segment_of_one_array_costs_the_transitions_that_show_it(key, whole, store):
    array, env_id, number = KEYS.index(key), 1, 25
    file = damage(store, array * ENVS + env_id, number)
    left = whole.without(env_id, number)
    assert 0 < len(left) < len(whole.batch)

    with pytest.raises(DamagedDataError, match=file.name):
        ReplayMemory.load(store)
    with ReplayMemory.open(store, on_damage="skip", seed=0) as skipping:
        for _ in range(40):
            skipping.sample(64)
        assert left == whole.assert_holds(skipping)
        assert skipping.report().skipped_segments == 1
    (finding,) = verify_store(store).findings
    assert (file, len(whole.batch) - len(left)) == (finding.file, finding.transitions)
    assert f"block {number} of track {array * ENVS + env_id} " in finding.message

    repair_store(store)

    assert verify_store(store).is_intact
    assert left == whole.assert_holds(ReplayMemory.load(store))


def test_an_error_for_damage_names_the_environment_of_the_steps(store):
    damage(store, KEYS.index("depth") * ENVS + 1, 25)

    with ReplayMemory.open(store) as memory, pytest.raises(DamagedSegmentError) as caught:
        memory.get(memory.sampleable_indices())

    assert (1, 25) == (caught.value.env_id, caught.value.segment)


def test_transitions_damaged_in_two_arrays_are_counted_once(whole, store):
    for key in ("camera", "touch"):
        damage(store, KEYS.index(key) * ENVS, 30)

    verification = verify_store(store)

    assert len(whole.batch) - len(whole.without(0, 30)) == verification.lost
    assert verification.lost == sum(finding.transitions for finding in verification.findings)


def test_an_environment_without_its_newest_frames_continues_after_a_blank_frame(tmp_path):
    play = recorded(tmp_path / "store", episode=10_000, num_steps=20 * FRAMES - 1)
    damage(play.folder, KEYS.index("depth") * ENVS, 19)

    repair_store(play.folder)
    memory = ReplayMemory.open(play.folder, read_only=False, flush_every=None)

    assert play.without(0, 19) == play.assert_holds(memory)
    assert [False, True] == memory.open_episodes.tolist()
    frames = np.full((1, NUM_BYTES), 7, np.uint8)
    MemoryOfBytes(memory).begin(frames, [0])
    MemoryOfBytes(memory).append([1], [1.0], [True], [False], frames + 1, [0])
    memory.inner.parts.check()
    newest = memory.sampleable_indices()[-1:]
    assert (7, 8) == tuple(MemoryOfBytes(memory).get(newest).next_observation[0, -2:, 0].tolist())
    memory.close()
    assert verify_store(play.folder).is_intact


@pytest.mark.parametrize("seed", [*range(3), *exhaustively(range(3, 60))])
def test_after_any_damage_and_repair_the_rest_equals_the_recording(seed, whole, store):
    damages = damage_at_random(store, np.random.default_rng(seed))

    try:
        repair_store(store)
    except DamagedDataError:
        return

    verification = verify_store(store)
    assert verification.is_intact, damages
    memory = ReplayMemory.load(store, generation=verification.generations[-1])
    assert verification.transitions == len(memory), damages
    whole.assert_holds(memory)
    memory.save(store)
    assert verify_store(store).is_intact, damages
