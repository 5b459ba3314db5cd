"""Any frame sequence is restored, in any window, and any damage is found. `make fuzz` tries more frame sequences.

The examples that are written out stand at the borders of the format; one that ever fails joins them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from framestow._core import (
    FrameStore,
    checksum,
    default_frames_per_segment,
    pack_segment,
    unpack_segment,
    verify_segment,
)
from framestow.errors import DamagedDataError
from oracles import plain_codec
from oracles.frame_sequences import FrameSequence, Scene, frame_sequences

ONE_BYTE = FrameSequence(1, 1, 1, (Scene("noise", 12), Scene("constant", 12)))
ONE_ROW = FrameSequence(1, 80, 1, (Scene("sprites", 12), Scene("flicker", 12), Scene("noise", 1)))
ONE_COLUMN = FrameSequence(40, 1, 1, (Scene("sparse", 12), Scene("scroll", 12)))
ONE_CHUNK = FrameSequence(9, 16, 1, (Scene("sprites", 12, 1), Scene("sprites", 12, 2)))
SEVEN_CHANNELS = FrameSequence(6, 35, 7, (Scene("scroll", 8), Scene("sparse", 8), Scene("flicker", 8)))
PIXELS_THAT_DO_NOT_DIVIDE_A_ROW = FrameSequence(
    6, 32, 5, (Scene("sprites", 12), Scene("constant", 3), Scene("sparse", 9))
)
THREE_PLANES = FrameSequence(
    9, 17, 1, (Scene("sprites", 12), Scene("shaded", 12), Scene("scroll", 9)), channels_first=True
)
MORE_BYTES_THAN_16_BITS_COUNT = FrameSequence(
    260, 260, 1, (Scene("constant", 2), Scene("sparse", 3), Scene("noise", 1))
)


def packed(frame_sequence: FrameSequence) -> bytes:
    return pack_segment(frame_sequence.frames(), *frame_sequence.geometry, frame_sequence.channels_first)


def unpacked(segment: bytes, frame_sequence: FrameSequence, count: int) -> np.ndarray:
    out = np.full((count, frame_sequence.rows * frame_sequence.row_bytes), 171, np.uint8)
    unpack_segment(segment, *frame_sequence.geometry, out)
    return out


def mended(segment: bytearray) -> bytes:
    """Return the segment with a corrected checksum."""
    return checksum(segment[4:]).to_bytes(4, "little") + bytes(segment[4:])


def read_plainly(segment: bytes) -> np.ndarray | None:
    try:
        return plain_codec.unpack(segment)
    except plain_codec.BrokenSegmentError:
        return None


@given(frame_sequence=frame_sequences())
@example(frame_sequence=ONE_BYTE)
@example(frame_sequence=ONE_ROW)
@example(frame_sequence=ONE_COLUMN)
@example(frame_sequence=ONE_CHUNK)
@example(frame_sequence=SEVEN_CHANNELS)
@example(frame_sequence=PIXELS_THAT_DO_NOT_DIVIDE_A_ROW)
@example(frame_sequence=THREE_PLANES)
@example(frame_sequence=MORE_BYTES_THAN_16_BITS_COUNT)
def test_every_frame_sequence_is_unpacked_unchanged(frame_sequence):
    frames = frame_sequence.frames()

    segment = packed(frame_sequence)

    verify_segment(segment)
    np.testing.assert_array_equal(frames, unpacked(segment, frame_sequence, len(frames)))


@given(frame_sequence=frame_sequences(max_rows=12, max_row_bytes=34))
@example(frame_sequence=ONE_BYTE)
@example(frame_sequence=ONE_COLUMN)
@example(frame_sequence=ONE_CHUNK)
@example(frame_sequence=SEVEN_CHANNELS)
@example(frame_sequence=PIXELS_THAT_DO_NOT_DIVIDE_A_ROW)
@example(frame_sequence=THREE_PLANES)
def test_a_plain_reader_of_the_documented_format_reads_the_same(frame_sequence):
    np.testing.assert_array_equal(frame_sequence.frames(), plain_codec.unpack(packed(frame_sequence)))


@given(
    frame_sequence=frame_sequences(),
    frames_per_segment=st.integers(1, 30),
    evicted=st.integers(0, 60),
    choice=st.data(),
)
def test_any_window_equals_that_of_a_list(frame_sequence, frames_per_segment, evicted, choice):
    frames = frame_sequence.frames()
    store = FrameStore(1, [frame_sequence.array], frames_per_segment)
    store.append(np.zeros(len(frames), np.int32), frames)
    first = store.evict(0, evicted)
    if first == len(frames):
        return

    lasts = choice.draw(st.lists(st.integers(first, len(frames) - 1), min_size=1, max_size=8))
    counts = [choice.draw(st.integers(1, min(9, last - first + 1))) for last in lasts]
    out = np.full((len(lasts), 9, frames.shape[1]), 171, np.uint8)
    store.windows(np.zeros(len(lasts), np.int32), np.array(lasts), np.array(counts, np.int32), out)

    for window, last, count in zip(out, lasts, counts, strict=True):
        expected = [frames[position] for position in range(last - count + 1, last + 1)]
        np.testing.assert_array_equal([expected[0]] * (9 - count) + expected, window)


@given(frame_sequence=frame_sequences(), offset=st.integers(0), flipped=st.integers(1, 255))
def test_any_changed_byte_is_found(frame_sequence, offset, flipped):
    segment = bytearray(packed(frame_sequence))
    segment[offset % len(segment)] ^= flipped

    with pytest.raises(DamagedDataError):
        verify_segment(segment)
    with pytest.raises(DamagedDataError):
        unpacked(bytes(segment), frame_sequence, len(frame_sequence.frames()))


@given(
    frame_sequence=frame_sequences(max_rows=12, max_row_bytes=34),
    damage=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=4),
)
def test_damage_under_a_right_checksum_reads_as_the_plain_reader_reads_it(frame_sequence, damage):
    segment = bytearray(packed(frame_sequence))
    for offset, value in damage:
        segment[24 + offset % (len(segment) - 24)] = value
    expected = read_plainly(mended(segment))
    num_frames = len(frame_sequence.frames())

    try:
        frames = unpacked(mended(segment), frame_sequence, num_frames)
    except DamagedDataError:
        assert expected is None
        return
    # Where the plain reader refuses, the native one may read a byte after repeated operations, never after the body.
    if expected is not None:
        np.testing.assert_array_equal(expected, frames)


@given(
    frame_sequence=frame_sequences(max_rows=20, max_row_bytes=40),
    damage=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4),
    choice=st.data(),
)
def test_damage_that_no_checksum_shows_gives_the_same_frames_in_every_window_or_an_error(
    frame_sequence, damage, choice
):
    segment = bytearray(packed(frame_sequence))
    for offset, value in damage:
        segment[24 + offset % (len(segment) - 24)] = value
    num_frames = len(frame_sequence.frames())
    store = FrameStore(1, [frame_sequence.array], num_frames)
    store.restore(0, 0, mended(segment))
    last = choice.draw(st.integers(0, num_frames - 1))
    count = choice.draw(st.integers(1, last + 1))
    out = np.full((1, count, frame_sequence.rows * frame_sequence.row_bytes), 171, np.uint8)

    try:
        whole = unpacked(mended(segment), frame_sequence, num_frames)
    except DamagedDataError:
        whole = None
    try:
        store.windows(np.zeros(1, np.int32), np.array([last]), np.array([count], np.int32), out)
    except DamagedDataError:
        assert whole is None
        return

    if whole is not None:
        np.testing.assert_array_equal(whole[last - count + 1 : last + 1], out[0])


@given(frame_sequence=frame_sequences(max_rows=16, max_row_bytes=40))
@example(frame_sequence=ONE_BYTE)
@example(frame_sequence=FrameSequence(84, 84, 1, (Scene("noise", 12),)))
@example(frame_sequence=FrameSequence(84, 84, 1, (Scene("sprites", 6), Scene("sparse", 6))))
def test_a_segment_of_the_usual_length_is_never_one_percent_larger_than_its_frames(frame_sequence):
    frames = frame_sequence.frames_again_and_again(default_frames_per_segment(*frame_sequence.geometry))

    assert len(pack_segment(frames, *frame_sequence.geometry, frame_sequence.channels_first)) <= 1.01 * frames.nbytes
