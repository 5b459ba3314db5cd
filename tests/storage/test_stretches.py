"""Stretches of frames that bring their own padding: windows show it wherever and however the frames are stored."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from framestow._core import FrameStore
from framestow.errors import DamagedDataError, DamagedSegmentError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.storage.frame_storage import FrameStorage
from oracles.listed_stretches import CONTINUES, LEAD_INS, USUAL, ZEROS, ListedStretches
from oracles.plain_store import frames_of_segment, stretches_of_segment

NUM_ENVS = 2
SPECS = {
    "pixels": FrameSpec((6, 7)),
    "colours": FrameSpec((5, 6, 3)),
    "planes": FrameSpec((3, 5, 6)),
    "scaled": FrameSpec((6, 7), np.float32, is_scaled=True),
    "vectors": FrameSpec((5,), np.float64),
    "integers": FrameSpec((4, 5), np.int16),
}


def frames_of(spec: FrameSpec, count: int, rng: np.random.Generator) -> np.ndarray:
    """Frames of which some differ little from the one before, some are noise, and some scaled ones are not k / 255."""
    pixels = np.zeros((count, *spec.shape), np.uint8)
    for index in range(count):
        if rng.random() < 0.3:
            pixels[index] = rng.integers(0, 256, spec.shape)
        else:
            pixels[index] = pixels[index - 1]
            pixels[index].flat[rng.integers(pixels[index].size)] = rng.integers(1, 256)
    if not spec.is_scaled:
        return pixels.astype(spec.dtype)
    frames = pixels.astype(spec.dtype) / spec.dtype.type(255)
    frames[rng.random(count) < 0.25] += spec.dtype.type(0.001)
    return frames


def append(storage, listed, spec, depth, rows, rng):
    """Append a frame of each (environment, padding) with new lead-ins."""
    frames, older = frames_of(spec, len(rows), rng), frames_of(spec, len(rows) * (depth - 1), rng)
    lead_ins = older.reshape(len(rows), depth - 1, *spec.shape)
    env_ids, paddings = np.array(rows).T
    storage.append(env_ids.astype(np.int32), frames, paddings.astype(np.uint8), lead_ins)
    for (env_id, padding), frame, leading in zip(rows, frames, lead_ins, strict=True):
        listed.append(env_id, frame, padding, leading)


def read(storage, windows, length, spec, padding="first_frame"):
    out = np.full((len(windows), length, *spec.shape), 171, spec.dtype)
    env_ids, lasts, counts = np.array(windows).T
    storage.windows(env_ids.astype(np.int32), lasts.copy(), counts.astype(np.int32), out, padding)
    return out


def assert_windows(storage, listed, windows, length, spec, padding="first_frame"):
    for window, actual in zip(windows, read(storage, windows, length, spec, padding), strict=True):
        np.testing.assert_array_equal(listed.window(*window, length, padding), actual, err_msg=str(window))


def all_windows(listed, length):
    """Every window whose frames are stored, with one half behind the other as those of n-step returns are."""
    windows = [
        (env_id, last, count)
        for env_id, stored in enumerate(listed.stored)
        for last in sorted(stored)
        for count in range(1, length + 1)
        if last >= count - 1 and listed.has(env_id, last, count)
    ]
    return windows + [windows[min(at + 1, len(windows) - 1)] for at in range(len(windows))]


class AgainstLists(RuleBasedStateMachine):
    """A storage beside plain lists, saved and restored, moved to files, and evicted beside open snapshots."""

    @initialize(
        kind=st.sampled_from(list(SPECS)),
        name=st.sampled_from(["packed", "raw"]),
        depth=st.sampled_from([1, 2, 4, 9]),
        segment=st.integers(1, 7),
        seed=st.integers(0, 2**16),
    )
    def begin(self, kind, name, depth, segment, seed):
        self.spec, self.name, self.depth, self.segment = SPECS[kind], name, depth, segment
        self.rng = np.random.default_rng(seed)
        self.storage, self.listed = self.new_storage(name), ListedStretches(NUM_ENVS)
        self.folder = Path(tempfile.mkdtemp())
        self.num_files = 0
        self.snapshot, self.seen = None, None

    def new_storage(self, name):
        return FrameStorage(
            self.spec, NUM_ENVS, name, frames_per_segment=self.segment, depths=[self.depth], step_bytes=10
        )

    def not_empty(self):
        return any(self.listed.stored)

    @rule(rows=st.lists(st.tuples(st.integers(0, NUM_ENVS - 1), st.integers(0, 3)), min_size=1, max_size=12))
    def append(self, rows):
        append(self.storage, self.listed, self.spec, self.depth, rows, self.rng)

    @rule(env_id=st.integers(0, NUM_ENVS - 1), count=st.integers(1, 20))
    def go_on(self, env_id, count):
        append(self.storage, self.listed, self.spec, self.depth, [(env_id, CONTINUES)] * count, self.rng)

    def drawn_windows(self, listed, choice, length):
        possible = all_windows(listed, length)
        return [possible[at] for at in choice.draw(st.lists(st.integers(0, len(possible) - 1), min_size=1, max_size=9))]

    @precondition(not_empty)
    @rule(choice=st.data(), more=st.integers(0, 3), padding=st.sampled_from(["first_frame", "zeros"]))
    def read(self, choice, more, padding):
        length = self.depth + more
        windows = self.drawn_windows(self.listed, choice, length)
        assert_windows(self.storage, self.listed, windows, length, self.spec, padding)

    @precondition(lambda self: self.not_empty() and self.snapshot is None)
    @rule()
    def start_a_snapshot(self):
        self.snapshot, self.seen = self.storage.take_snapshot(), self.listed.copy()

    @precondition(lambda self: self.snapshot is not None)
    @rule(choice=st.data())
    def read_and_stop_the_snapshot(self, choice):
        windows = self.drawn_windows(self.seen, choice, self.depth + 1)
        assert_windows(self.snapshot, self.seen, windows, self.depth + 1, self.spec)
        self.snapshot.stop()
        self.snapshot = None

    @rule(env_id=st.integers(0, NUM_ENVS - 1), first=st.integers(0, 40), count=st.integers(0, 40))
    def evict(self, env_id, first, count):
        sealed = self.storage.open_segment(env_id) * self.segment
        gone = range(
            -(-first // self.segment) * self.segment, min(first + count, sealed) // self.segment * self.segment
        )
        self.storage.evict(env_id, first + count, first)
        self.listed.stored[env_id] -= set(gone)

    def sealed(self):
        return [(env_id, int(number)) for env_id in range(NUM_ENVS) for number in self.storage.sealed_segments(env_id)]

    def write(self, segment):
        path = self.folder / str(self.num_files)
        self.num_files += 1
        path.write_bytes(b"before" + segment)
        return path, 6, len(segment)

    @precondition(lambda self: self.storage.supports_files(0) and self.sealed())
    @rule(choice=st.data())
    def move_to_a_file(self, choice):
        env_id, number = choice.draw(st.sampled_from(self.sealed()))
        charged = self.storage.charged_bytes
        self.storage.move_to_file(env_id, number, *self.write(self.storage.segment(env_id, number)))
        assert charged == self.storage.charged_bytes

    @rule(choice=st.data(), name=st.sampled_from(["packed", "raw"]))
    def save_and_restore(self, choice, name):
        restored = self.new_storage(name)
        for env_id in range(NUM_ENVS):
            sealed = {int(number) for number in self.storage.sealed_segments(env_id)}
            for number in sorted({position // self.segment for position in self.listed.stored[env_id]}):
                segment = self.storage.segment(env_id, number)
                if number in sealed and restored.supports_files(0) and choice.draw(st.booleans()):
                    restored.restore_in_file(env_id, number, *self.write(segment), self.segment)
                else:
                    restored.restore(env_id, number, segment)
                if number in sealed:
                    assert segment == restored.segment(env_id, number)
            if not self.listed.stored[env_id] or max(self.listed.stored[env_id]) + 1 < len(self.listed.frames[env_id]):
                return  # the next position is unknown to the segments
        if name == self.name:
            self.check_charged_bytes(restored)
        if self.snapshot is not None:
            self.snapshot.stop()
            self.snapshot = None
        self.storage, self.name = restored, name

    def check_charged_bytes(self, restored):
        """Of sealed segments: an open one of noise is packed on another base after it was restored."""
        for storage in (self.storage, restored):
            if any(storage.next_position(env_id) % self.segment for env_id in range(NUM_ENVS)):
                return
        assert self.storage.charged_bytes == restored.charged_bytes

    @invariant()
    def the_numbers_agree(self):
        assert sum(map(len, self.listed.stored)) == self.storage.num_frames_of(0)[0]
        for env_id in range(NUM_ENVS):
            assert len(self.listed.frames[env_id]) == self.storage.next_position(env_id)

    @invariant()
    def the_charged_bytes_are_an_upper_bound(self):
        if self.snapshot is None:
            assert self.storage.charged_bytes >= sum(self.storage.nbytes.values())

    def teardown(self):
        if hasattr(self, "folder"):
            if self.not_empty():
                windows = all_windows(self.listed, self.depth + 1)
                assert_windows(self.storage, self.listed, windows, self.depth + 1, self.spec)
            del self.storage, self.snapshot
            shutil.rmtree(self.folder)


AgainstLists.TestCase.settings = settings(
    max_examples=2 * settings.default.max_examples // 5, stateful_step_count=25, deadline=None, derandomize=True
)
TestAgainstLists = pytest.mark.slow(AgainstLists.TestCase)  # more than two seconds


def filled(spec, depth, paddings, seed=0, **options):
    """A storage of one environment, and the list of it, with a frame of each of those paddings."""
    storage, listed = FrameStorage(spec, 1, depths=[depth], **options), ListedStretches(1)
    append(storage, listed, spec, depth, [(0, padding) for padding in paddings], np.random.default_rng(seed))
    return storage, listed


@pytest.mark.parametrize("name", ["packed", "raw"])
@pytest.mark.parametrize("kind", SPECS)
def test_a_stretch_with_a_stack_of_256_begins_with_its_lead_ins(kind, name):
    paddings = [LEAD_INS, CONTINUES, LEAD_INS, ZEROS, CONTINUES, LEAD_INS, USUAL, LEAD_INS]
    storage, listed = filled(SPECS[kind], 256, paddings, storage=name, frames_per_segment=3)

    windows = all_windows(listed, len(paddings))
    assert_windows(storage, listed, windows, 256, SPECS[kind])
    assert_windows(storage, listed, windows, 257, SPECS[kind])


@pytest.mark.parametrize("name", ["packed", "raw"])
@pytest.mark.parametrize("kind", SPECS)
def test_a_storage_without_stored_paddings_has_the_bytes_of_a_storage_of_single_frames(kind, name):
    storages = [
        filled(SPECS[kind], depth, [CONTINUES, USUAL] * 20, storage=name, frames_per_segment=16)[0] for depth in (1, 4)
    ]

    single, stacked = ([storage.segment(0, number) for number in range(3)] for storage in storages)
    assert single == stacked


def test_the_lead_ins_may_be_a_part_of_larger_observations():
    rng = np.random.default_rng(0)
    spec = SPECS["scaled"]
    observations = frames_of(spec, 3 * 4, rng).reshape(3, 4, *spec.shape)
    storage = FrameStorage(spec, 3, depths=[4])

    newest = np.ascontiguousarray(observations[:, -1])
    storage.append(np.arange(3, dtype=np.int32), newest, np.full(3, LEAD_INS, np.uint8), observations[:, :-1])

    np.testing.assert_array_equal(observations, read(storage, [(env_id, 0, 1) for env_id in range(3)], 4, spec))


@pytest.mark.parametrize(
    ("paddings", "lead_ins", "message"),
    [
        ([0, 4], None, "paddings has the entry 4: entries must be 0 to 3"),
        ([0], None, "paddings has 1 entries: it must have one for each of 2 frames"),
        ([0, 2], None, "lead_ins does not fit: it must be an array"),
        ([0, 2], np.zeros((2, 2, 6, 7), np.uint8), r"lead_ins does not fit: it must be an array \(2, 3, \*frame\)"),
        ([0, 2], np.zeros((2, 3, 6, 7), np.uint16), "lead_ins does not fit: it must be an array"),
        ([0, 2], np.zeros((2, 3, 7, 6), np.uint8).swapaxes(2, 3), "in C order from its second axis on"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_stored(paddings, lead_ins, message):
    storage = FrameStorage(SPECS["pixels"], 2, depths=[4])

    with pytest.raises(ValueError, match=message):
        storage.append(np.zeros(2, np.int32), np.zeros((2, 6, 7), np.uint8), np.array(paddings, np.uint8), lead_ins)
    assert storage.stored_positions(0) == range(0)


def test_segments_whose_lead_ins_would_be_too_large_are_refused():
    with pytest.raises(InvalidSettingsError, match=r"a segment of frames of 1048576 bytes in stacks of 256 has 1 to 8"):
        FrameStorage(FrameSpec((1024, 1024)), 1, frames_per_segment=9, depths=[256])
    with pytest.raises(ValueError, match=r"in stacks of 256: the older frames of all stacks must be at most"):
        FrameStore(1, [(1024, 1024, 1, False, 0, False, 255)], 9)

    assert FrameStorage(FrameSpec((2048, 2048)), 1, depths=[256]).frames_per_segment == 2


@pytest.mark.parametrize("name", ["packed", "raw"])
@pytest.mark.parametrize("kind", ["pixels", "colours", "scaled", "vectors"])
def test_a_part_filled_segment_continues_as_if_it_had_never_been_written_out(kind, name):
    spec, options = SPECS[kind], {"storage": name, "frames_per_segment": 16, "depths": [4], "step_bytes": 10}
    storage, rng = FrameStorage(spec, 1, **options), np.random.default_rng(3)
    frames = np.cumsum(rng.random((200, *spec.shape)) < 0.02, axis=0).astype(spec.dtype) / (
        255 if spec.is_scaled else 1
    )
    frames = frames.astype(spec.dtype)
    for position in range(50):
        given = (
            frames[position, None],
            np.array([position * 7 % 4], np.uint8),
            frames[None, position + 10 : position + 13],
        )
        storage.append(np.zeros(1, np.int32), *given)

        restored = FrameStorage(spec, 1, **options)
        for number in range(storage.open_segment(0) + (position % 16 < 15)):
            restored.restore(0, number, storage.segment(0, number))

        assert storage.charged_bytes == restored.charged_bytes
        assert storage.segment(0, position // 16) == restored.segment(0, position // 16)
        storage = restored


@pytest.mark.parametrize("name", ["packed", "raw"])
@pytest.mark.parametrize("kind", SPECS)
def test_a_plain_reader_of_the_documented_format_reads_the_same(kind, name):
    spec = SPECS[kind]
    paddings = [LEAD_INS, ZEROS, CONTINUES, USUAL, LEAD_INS, LEAD_INS, CONTINUES]
    storage, listed = filled(spec, 3, paddings, storage=name, frames_per_segment=7)
    array = {"shape": spec.shape, "dtype": spec.dtype.str, "is_scaled": spec.is_scaled}

    segment, stretches = stretches_of_segment(storage.segment(0, 0), array)

    np.testing.assert_array_equal(listed.frames[0], frames_of_segment(segment, array))
    assert [0, 1, 4, 5] == list(stretches)
    for position, older in stretches.items():
        shown = np.zeros((2, *spec.shape)) if older is None else older
        np.testing.assert_array_equal(listed.window(0, position, 1, 3, "first_frame")[:2], shown)


@pytest.mark.parametrize("kind", ["pixels", "scaled", "vectors"])
def test_any_changed_byte_of_a_segment_with_stretches_is_found(kind):
    storage, _ = filled(SPECS[kind], 3, [LEAD_INS, ZEROS, CONTINUES, LEAD_INS], frames_per_segment=4)
    segment = bytearray(storage.segment(0, 0))

    for place in range(len(segment)):
        segment[place] ^= 1 + place % 255
        restored = FrameStorage(SPECS[kind], 1, frames_per_segment=4, depths=[3])
        with pytest.raises(DamagedDataError):
            restored.restore(0, 0, bytes(segment))
        assert restored.stored_positions(0) == range(0)
        segment[place] ^= 1 + place % 255


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_segment_restores_only_into_a_storage_of_the_same_depth(depth):
    storage, _ = filled(SPECS["pixels"], 4, [LEAD_INS, CONTINUES], frames_per_segment=4)
    restored = FrameStorage(SPECS["pixels"], 1, frames_per_segment=4, depths=[depth])

    with pytest.raises(DamagedDataError, match="segment"):
        restored.restore(0, 0, storage.segment(0, 0))


@pytest.mark.parametrize("kind", ["pixels", "scaled", "vectors"])
def test_a_damaged_lead_in_in_a_file_raises_for_its_segment(kind, tmp_path):
    spec = SPECS[kind]
    storage, listed = filled(spec, 4, [USUAL, LEAD_INS, CONTINUES, CONTINUES] * 2, frames_per_segment=4)
    segment = storage.segment(0, 1)
    path = tmp_path / "frames"
    path.write_bytes(segment)
    storage.move_to_file(0, 1, path, 0, len(segment))
    path.write_bytes(segment[:-1] + bytes([segment[-1] ^ 1]))  # the lead-ins stand last

    with pytest.raises(DamagedSegmentError) as damage:
        read(storage, [(0, 5, 1)], 4, spec)
    assert (damage.value.env_id, damage.value.segment) == (0, 1)
    assert_windows(storage, listed, [(0, 1, 1), (0, 3, 3)], 4, spec)


def test_arrays_of_lower_depth_have_the_last_frames_of_each_window():
    specs = {"camera": SPECS["pixels"], "joints": SPECS["vectors"], "past": SPECS["integers"]}
    depths = {"camera": 4, "joints": 1, "past": 2}
    spec = observation_spec(specs)
    storage = FrameStorage(spec, 1, frames_per_segment=3, depths=[depths[key] for key in specs])
    listed = {key: ListedStretches(1) for key in specs}
    rng = np.random.default_rng(1)
    for padding in [LEAD_INS, CONTINUES, CONTINUES, ZEROS, CONTINUES, LEAD_INS, USUAL, CONTINUES, CONTINUES, LEAD_INS]:
        frames = {key: frames_of(specs[key], 1, rng) for key in specs}
        older = {key: frames_of(specs[key], depths[key] - 1, rng) for key in specs}
        given = tuple(older[key][None] if depths[key] > 1 else None for key in specs)
        storage.append(np.zeros(1, np.int32), tuple(frames.values()), np.array([padding], np.uint8), given)
        for key in specs:
            listed[key].append(0, frames[key][0], padding, older[key])

    for more in (0, 1, 3):
        windows = all_windows(listed["camera"], 4 + more)
        env_ids, lasts, counts = np.array(windows).T
        out = tuple(
            np.full((len(windows), depths[key] + more, *specs[key].shape), 171, specs[key].dtype) for key in specs
        )
        storage.windows(env_ids.astype(np.int32), lasts.copy(), counts.astype(np.int32), out)

        for key, part in zip(specs, out, strict=True):
            length = depths[key] + more
            for (env_id, last, count), window in zip(windows, part, strict=True):
                expected = listed[key].window(env_id, last, min(count, length), length, "first_frame")
                np.testing.assert_array_equal(expected, window)
