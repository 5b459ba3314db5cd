"""A segment restores every byte, follows the format of docs/packing.md, and detects damage."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from framestow._core import checksum, pack_segment
from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from oracles import pixel_envs, plain_codec
from oracles.segment_codec import SegmentCodec


def drawn(kind, shape, count, seed):
    return pixel_envs.MAKERS[kind](np.random.default_rng(seed), count, shape)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(frames=st.lists(st.binary(min_size=48, max_size=48), min_size=1, max_size=20))
def test_frames_of_any_bytes_are_unpacked_unchanged(frames):
    codec = SegmentCodec(FrameSpec((4, 12)))
    pictures = np.frombuffer(b"".join(frames), np.uint8).reshape(-1, 4, 12)

    np.testing.assert_array_equal(codec.unpack(codec.pack(pictures)), pictures)


def frames_of_every_operation() -> NDArray[np.uint8]:
    """Frames that take every operation: scenes that take turns, noise, and sprites after 64 KiB of patches."""
    rng = np.random.default_rng(12)
    shape = (12, 48)
    noise = np.zeros((200, *shape), np.uint8)
    noise[:, :8] = rng.integers(0, 256, (200, 8, 48))
    sprite = rng.integers(1, 256, (4, 20))
    for index in range(195, 200):
        noise[index, 8:, index - 190 : index - 170] = sprite
    stripes = np.tile(np.arange(48, dtype=np.uint8) // 7, (9, 12, 1))
    stripes[:, :, 5:9] = np.arange(9)[:, None, None]
    row = np.zeros((8, *shape), np.uint8)
    row[1, 2:8] = rng.integers(1, 256, 48)  # the same row six times
    row[2:, 11] = stripes[0, 11]
    for index in range(2, 8):
        row[index, 3, 4 * index : 4 * index + 12] = np.arange(201, 213)
    first = drawn("scenes", shape, 24, seed=12)
    return np.concatenate([first, stripes, row, first[:1], noise])


def pairs_of_every_operation() -> NDArray[np.uint8]:
    """The same bytes, as pixels of two bytes."""
    frames = frames_of_every_operation()
    return frames.reshape(len(frames), 12, 24, 2)


def colours_of_every_operation() -> NDArray[np.uint8]:
    """Colour frames that take every operation: stretches of random lengths, each made as one operation would."""
    rng = np.random.default_rng(13)
    shape, count = (12, 48, 3), 100
    frames = drawn("noise", shape, count, seed=13)
    for index in range(1, count):
        frame, before = frames[index].reshape(-1, 3), frames[index - 1].reshape(-1, 3)
        place = 0
        while place < len(frame):
            kind, length = rng.integers(10), int(rng.choice([3, 12, 40]))
            part = slice(place, place + length)
            above = frame[part.start - 48 : part.stop - 48] if place >= 48 else np.zeros((length, 3), np.uint8)
            reach = 3 if kind % 2 else 90
            shades = (rng.integers(-reach, reach, (length, 1)) + rng.integers(-1, 2, (length, 3))).astype(np.uint8)
            source = {0: before[part], 1: frames[0].reshape(-1, 3)[part], 2: above, 3: frame[[place - 1]]}.get(kind)
            if source is None and kind < 8:
                source = (before[part] if kind < 6 else above)[: len(frame) - place] + shades[: len(frame) - place]
            if source is not None:
                frame[part] = source[: len(frame) - place]
            place += length
    for index in range(count - 5, count):
        frames[index, 8:11, index - count + 10 : index - count + 30] = frames[0, 1:4, :20] + 70
    scenes = drawn("scenes", shape, 24, seed=14)
    for index in range(1, 24):  # the same four pixels wherever they are
        scenes[index, 5, index : index + 4] = frames[0, 0, :4] + 70
    return np.concatenate([frames[:20], scenes, frames[20:]])


def planes_of_every_operation() -> NDArray[np.uint8]:
    """The same with channels first."""
    return np.ascontiguousarray(colours_of_every_operation().transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("frames", "meaning"),
    [
        (frames_of_every_operation, plain_codec.BYTES),
        (pairs_of_every_operation, plain_codec.BYTES),
        (colours_of_every_operation, plain_codec.PIXELS),
        (planes_of_every_operation, plain_codec.PIXELS),
    ],
    ids=["grey", "two bytes a pixel", "colour", "channels first"],
)
def test_a_segment_with_every_kind_of_operation_reads_as_the_format_is_documented(frames, meaning):
    frames = frames()
    segment = SegmentCodec(FrameSpec(frames.shape[1:])).pack(frames)
    codes: set[int] = set()

    np.testing.assert_array_equal(plain_codec.unpack(segment, codes), frames.reshape(len(frames), -1))

    assert meaning.first_of_kinds == meaning.kinds_of(codes)
    np.testing.assert_array_equal(SegmentCodec(FrameSpec(frames.shape[1:])).unpack(segment), frames)


def test_a_segment_of_a_large_frame_reads_as_the_format_is_documented():
    frames = drawn("sprites", (84, 84), 14, seed=3)
    segment = SegmentCodec(FrameSpec((84, 84))).pack(frames)

    np.testing.assert_array_equal(plain_codec.unpack(segment), frames.reshape(len(frames), -1))


def test_repeated_sprites_take_fewer_bytes_than_new_ones():
    codec = SegmentCodec(FrameSpec((84, 84)))
    frames = np.zeros((12, 84, 84), np.uint8)
    picture = np.random.default_rng(5).integers(1, 256, (12, 5), dtype=np.uint8)
    for index in range(1, 12):  # the same image at different places
        frames[index, 6 * index : 6 * index + 12, 7 * index - 7 : 7 * index - 2] = picture

    once, eleven_times = len(codec.pack(frames[:2])), len(codec.pack(frames))

    assert eleven_times - once < 5 * (once - len(codec.pack(frames[:1])))


def test_every_cut_is_found():
    codec = SegmentCodec(FrameSpec((24, 24)))
    segment = codec.pack(drawn("sprites", (24, 24), 8, seed=7))

    for size in range(len(segment)):
        with pytest.raises(DamagedDataError):
            codec.unpack(segment[:size])
    with pytest.raises(DamagedDataError):
        codec.unpack(segment + b"\0")


def one_frame(shape: tuple[int, ...], body: bytes, group: int = 0, encoding: int = 1) -> bytes:
    """Return a segment of one frame with these patches and a correct checksum; the group begins at ``group``."""
    rows, columns, pixel_bytes = (*shape, 1)[:3]
    rest = (
        struct.pack("<BBBBIIIHHI", 0xF5, 1, encoding, 0, 1, rows, columns * pixel_bytes, pixel_bytes, 5, group) + body
    )
    return struct.pack("<I", checksum(rest)) + rest


LITERAL_51, LITERAL_300 = b"\x73\x0a", b"\x77\x2c\x01"  # what the patch format calls 115 and 119
END = b"\x7f"


@pytest.mark.parametrize("shape", [(80, 5), (20, 24), (8, 17, 3)], ids=str)
@pytest.mark.parametrize(("operation", "count"), [(LITERAL_51, 51), (LITERAL_300, 300)], ids=["51", "300"])
def test_a_literal_past_the_end_of_the_segment_is_refused(shape, operation, count):
    codec = SegmentCodec(FrameSpec(shape))
    literals = bytes(range(1, 52)) * 6
    body = operation + literals[:count] + END

    whole = codec.unpack(one_frame(shape, body + END, group=len(body)))

    assert literals[:count] == whole.tobytes()[:count]
    for num_left in range(count):  # cut anywhere, without the end mark
        with pytest.raises(DamagedDataError, match="patch has fewer literals than it says"):
            codec.unpack(one_frame(shape, body[: len(operation) + num_left]))


@pytest.mark.parametrize("shape", [(80, 5, 3), (8, 17, 3)], ids=str)
@pytest.mark.parametrize(
    ("code", "num_bytes"),
    [(115, 20 * 3), (119, 18), (120, 18), (121, 16 * 2), (122, 16 * 2)],  # the longest direct length + 1 + 3 pixels
    ids=["literal", "near kept", "near up", "far kept", "far up"],
)
def test_pixels_past_the_end_of_the_segment_are_refused(shape, code, num_bytes):
    codec = SegmentCodec(FrameSpec(shape))
    body = bytes([code, 3]) + bytes(range(1, num_bytes + 1)) + END
    whole = one_frame(shape, body + END, group=len(body), encoding=2)

    np.testing.assert_array_equal(codec.unpack(whole).reshape(1, -1), plain_codec.unpack(whole))
    for num_left in range(num_bytes):  # cut anywhere, without the end mark
        with pytest.raises(DamagedDataError, match="patch has fewer literals than it says"):
            codec.unpack(one_frame(shape, body[: 2 + num_left], encoding=2))


@pytest.mark.parametrize("kind", ["sprites", "noise"])
def test_colour_with_channels_first_takes_as_many_bytes_as_with_channels_last(kind):
    pictures = drawn(kind, (11, 23, 3), 30, seed=15)
    planes = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
    last, first = (SegmentCodec(FrameSpec(frames.shape[1:])) for frames in (pictures, planes))

    segment = first.pack(planes)

    assert len(segment) == len(last.pack(pictures))
    np.testing.assert_array_equal(first.unpack(segment), planes)


def test_three_planes_that_were_packed_as_grey_rows_are_read():
    codec, planes = SegmentCodec(FrameSpec((3, 8, 9))), drawn("sprites", (3, 8, 9), 30, seed=16)
    segment = pack_segment(planes.reshape(30, -1), 24, 9, 1, channels_first=False)

    np.testing.assert_array_equal(codec.unpack(segment), planes)
    assert segment[6] == 1  # patches of bytes
    assert codec.pack(planes)[6] == 3


@pytest.mark.parametrize(
    ("encoding", "shape", "rule"),
    [
        *((2, shape, "encoding 2 needs pixels of 3 bytes and rows of whole pixels") for shape in [(8, 20), (8, 7, 2)]),
        *((3, shape, "three planes must have pixels of one byte") for shape in [(8, 20), (9, 8, 2)]),
    ],
)
def test_patches_of_colours_in_a_segment_of_other_frames_are_refused(encoding, shape, rule):
    with pytest.raises(DamagedDataError, match=rule):
        SegmentCodec(FrameSpec(shape)).unpack(one_frame(shape, END + END, group=1, encoding=encoding))


def test_near_and_far_pixels_add_to_the_row_above_or_the_patched_frame():
    base = b"\x02" + bytes([10, 20, 30, 40, 50, 60, 250, 250, 250]) + END  # three literal pixels, the rows below alike
    near = 16 * (8 + 5) + 4 * (2 + 1) + (2 - 2)  # green 5 more, red 1 more than that, blue 2 less
    far = bytes([100, 16 * (8 - 8) + (8 + 7)])
    patch = bytes([48, near, 76, *far, 88 + 128, *far, 2, 62, near]) + END  # near and far kept, far up, 3 kept, near up
    segment = one_frame((3, 3, 3), base + patch, group=len(base), encoding=2)

    [frame] = SegmentCodec(FrameSpec((3, 3, 3))).unpack(segment)

    assert frame[0].tolist() == [[16, 25, 33], [132, 150, 167], [92, 100, 107]]
    assert frame[1].tolist() == [[10, 20, 30], [40, 50, 60], [250, 250, 250]]
    assert frame[2].tolist() == [[16, 25, 33], [40, 50, 60], [250, 250, 250]]
    np.testing.assert_array_equal(plain_codec.unpack(segment), frame.reshape(1, -1))


@pytest.mark.parametrize("shape", [(3, 4, 2), (3, 20, 2), (3, 4, 4), (3, 20, 4)], ids=str)
def test_a_run_of_pixels_of_several_bytes_counts_bytes(shape):
    rows, columns, pixel_bytes = shape
    pixel = bytes(range(1, pixel_bytes + 1))
    base = bytes([pixel_bytes - 1]) + pixel + bytes([84 + 4]) + END  # a literal pixel, 5 bytes of it, rows below alike
    patch = bytes([100 + 128, pixel_bytes - 1, 84 + 2]) + END  # after a kept pixel 3 bytes of it
    segment = one_frame(shape, base + patch, group=len(base))
    expected = np.zeros((rows, columns * pixel_bytes), np.uint8)
    expected[:, : pixel_bytes + 5] = list((pixel * 6)[: pixel_bytes + 5])

    unpacked = SegmentCodec(FrameSpec(shape)).unpack(segment)

    np.testing.assert_array_equal(unpacked.reshape(rows, -1), expected)
    np.testing.assert_array_equal(plain_codec.unpack(segment), unpacked.reshape(1, -1))


@pytest.mark.parametrize("shape", [(80, 5), (20, 24), (9, 8, 2)], ids=str)
def test_an_operation_of_the_base_frame_copies_the_row_above_within_the_base_frame(shape):
    row_bytes = int(np.prod(shape[1:]))
    body = bytes([row_bytes - 1]) + bytes(range(1, row_bytes + 1)) + bytes([68 + 3]) + END  # a row, 4 bytes of the base

    frame = SegmentCodec(FrameSpec(shape)).unpack(one_frame(shape, body + END, group=len(body)))

    assert (frame.reshape(shape[0], -1) == np.arange(1, row_bytes + 1)).all()
    np.testing.assert_array_equal(
        plain_codec.unpack(one_frame(shape, body + END, group=len(body))), frame.reshape(1, -1)
    )


@pytest.mark.parametrize("shape", [(80, 5), (20, 24), (8, 17, 3)], ids=str)
def test_a_literal_past_the_end_of_repeated_operations_is_refused(shape):
    codec = SegmentCodec(FrameSpec(shape))
    base = LITERAL_51 + bytes(51) + END
    repeat_4_bytes_of_the_base = b"\x65\x00\x00"

    with pytest.raises(DamagedDataError, match="patch has fewer literals than it says"):
        codec.unpack(one_frame(shape, base + repeat_4_bytes_of_the_base + END, group=len(base)))


@pytest.mark.parametrize("shape", [(80, 5), (20, 24), (8, 17, 3)], ids=str)
@pytest.mark.parametrize("num_behind", [0, 1])
def test_repeated_operations_end_before_the_last_byte_of_a_segment(shape, num_behind):
    codec = SegmentCodec(FrameSpec(shape))
    literals = b"\x02\x07\x08\x09"  # 3 bytes
    group = b"\x65" + struct.pack("<H", 5) + END  # repeats the 4 bytes after itself
    segment = one_frame(shape, END + group + literals + bytes(num_behind), group=1)

    if num_behind:
        assert codec.unpack(segment).tobytes()[:3] == b"\x07\x08\x09"
    else:
        with pytest.raises(DamagedDataError, match="patch repeats operations that are not there"):
            codec.unpack(segment)


def one_patch_a_frame(patches: list[bytes]) -> bytes:
    """Return a segment of these groups of one frame each, over a base frame of zeros."""
    begins = np.cumsum([1, *map(len, patches)])[:-1].tolist()
    rest = struct.pack("<BBBBIIIHH", 0xF5, 1, 1, 0, len(patches), 4, 8, 1, 1)
    rest += struct.pack(f"<{len(begins)}I", *begins) + END + b"".join(patches)
    return struct.pack("<I", checksum(rest)) + rest


REFERENCE_TO_GROUP_0 = b"\x7c\x00"


def test_a_reference_patches_the_anchor_of_another_group():
    codec = SegmentCodec(FrameSpec((4, 8)))
    segment = one_patch_a_frame(
        [b"\x02\x05\x06\x07" + END, b"\x00\x09" + END, REFERENCE_TO_GROUP_0 + b"\x00\x08" + END]
    )

    frames = codec.unpack(segment).reshape(3, -1)

    np.testing.assert_array_equal(frames[:, :4], [[5, 6, 7, 0], [9, 0, 0, 0], [8, 6, 7, 0]])
    np.testing.assert_array_equal(plain_codec.unpack(segment), frames)


@pytest.mark.parametrize(
    "patches",
    [
        [REFERENCE_TO_GROUP_0 + END],
        [b"\x00\x05" + END, b"\x7c\x02" + END],
        [END, b"\x7c\x02" + END, REFERENCE_TO_GROUP_0 + END],
        [b"\x00\x05" + REFERENCE_TO_GROUP_0 + END],
    ],
    ids=["itself", "no such group", "another reference", "not at the beginning"],
)
def test_a_reference_that_no_writer_writes_is_refused(patches):
    segment = one_patch_a_frame(patches)

    with pytest.raises(plain_codec.BrokenSegmentError):
        plain_codec.unpack(segment)
    with pytest.raises(DamagedDataError):
        SegmentCodec(FrameSpec((4, 8))).unpack(segment)


def test_a_header_with_too_many_frames_is_refused_before_memory_is_allocated():
    codec = SegmentCodec(FrameSpec((84, 84)))
    damaged = bytearray(codec.pack(np.zeros((3, 84, 84), np.uint8)))
    damaged[8:12] = (2**24).to_bytes(4, "little")
    damaged[:4] = checksum(bytes(damaged[4:])).to_bytes(4, "little")

    with pytest.raises(DamagedDataError, match="cannot hold the 16777216 frames"):
        codec.unpack(damaged)
