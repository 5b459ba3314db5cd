"""Scaled floats take the bytes of pixels, and all other floats are returned bit for bit."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framestow._core import checksum
from framestow.errors import DamagedDataError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.storage.frame_storage import STORAGES, FrameStorage
from oracles.segment_codec import SegmentCodec

HEADER = struct.Struct("<I4sII")  # checksum, mark, bytes of the pixels, number of other floats
MAGIC = b"sca1"

SHAPE = (3, 4)
ENV_ID = np.zeros(1, np.int32)
DTYPES = [np.float16, np.float32, np.float64]


def with_header(segment: bytes, pixel_bytes: int, num_places: int) -> bytes:
    """Return a segment of its parts, with a correct checksum."""
    rest = HEADER.pack(0, MAGIC, pixel_bytes, num_places)[4:] + segment
    return struct.pack("<I", checksum(rest)) + rest


def pixels_of(segment: bytes) -> bytes:
    return segment[HEADER.size : HEADER.size + HEADER.unpack_from(segment)[2]]


def filled(frames: np.ndarray, name: str = "packed") -> FrameStorage:
    storage = FrameStorage(FrameSpec(frames.shape[1:], frames.dtype, is_scaled=True), 1, name)
    for frame in frames:
        storage.append(ENV_ID, frame[None])
    return storage


def window(storage: FrameStorage, last: int, count: int, like: np.ndarray, length: int | None = None) -> np.ndarray:
    out = np.full((1, length or count, *like.shape[1:]), 7, like.dtype)
    storage.windows(ENV_ID, np.array([last]), np.array([count], np.int32), out)
    return out[0]


def scaled(pixels: np.ndarray, dtype) -> np.ndarray:
    return (pixels / np.float64(255)).astype(dtype)


def special_floats(dtype) -> np.ndarray:
    """All floats of 16 bits, or the special values of a longer dtype."""
    if dtype == np.float16:
        return np.arange(2**16, dtype=np.uint16).view(np.float16)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    exact = scaled(np.arange(256), dtype)
    limits = np.finfo(dtype)
    special = np.array(
        [-0.0, np.nan, np.inf, -np.inf, limits.max, limits.tiny, limits.smallest_subnormal, -1, 2], dtype
    )
    payloads = (special[1:2].view(bits) + np.arange(1, 4, dtype=bits)).view(dtype)
    signalling = (special[2:3].view(bits) + bits.type(1)).view(dtype)
    return np.concatenate([special, payloads, signalling, *(np.nextafter(exact, dtype(towards)) for towards in (0, 2))])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_float_nearest_to_each_quotient_by_255_is_a_pixel(dtype):
    pixels = np.arange(3 * 257, dtype=np.uint8).reshape(3, 1, 257)  # 257: not a multiple of a vector's length
    frames = scaled(pixels, dtype)
    for k, value in enumerate(frames[0, 0, :256]):
        neighbours = [np.nextafter(value, dtype(towards)) for towards in (-1, 2)]
        errors = [abs(Fraction(float(each)) - Fraction(k, 255)) for each in (value, *neighbours)]
        assert errors[0] == min(errors)

    storage = filled(frames)

    assert {"k/255, as uint8": 3, "other floats, exact": 0} == storage.num_frames
    assert frames.tobytes() == window(storage, 2, 3, frames).tobytes()
    assert frames.tobytes() == (pixels.astype(dtype) / dtype(255)).tobytes()  # the usual expression


@pytest.mark.parametrize("make", STORAGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_float_among_scaled_pixels_is_returned_bit_for_bit(dtype, make):
    odd = special_floats(dtype)
    odd = np.resize(odd, (-(-len(odd) // 4), 2, 2))
    frames = scaled(np.random.default_rng(0).integers(0, 256, (2 * len(odd), 2, 2)), dtype)
    frames[::2] = odd

    storage = filled(frames, make)

    for last in range(0, min(len(frames), 900), 3):
        count = min(last + 1, 1 + last % 5)
        expected = frames[last - count + 1 : last + 1]
        assert expected.tobytes() == window(storage, last, count, frames).tobytes()
        padded = np.concatenate([np.repeat(expected[:1], 5 - count, axis=0), expected])
        assert padded.tobytes() == window(storage, last, count, frames, 5).tobytes()
    for last in range(len(frames) - 1, -1, -64):
        count = min(last + 1, 64)
        assert frames[last - count + 1 : last + 1].tobytes() == window(storage, last, count, frames).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_scaled_pixels_take_the_bytes_of_pixels(dtype):
    noise = np.random.default_rng(0).integers(0, 256, (128, 84, 84), dtype=np.uint8)
    pixels, storage = FrameStorage(FrameSpec((84, 84)), 1), filled(scaled(noise, dtype))
    for frame in noise:
        pixels.append(ENV_ID, frame[None])

    assert {"k/255, as uint8": 128, "other floats, exact": 0} == storage.num_frames
    assert pixels.segment(0, 0) == pixels_of(storage.segment(0, 0))
    assert pixels.nbytes["frames"] == storage.nbytes["frames"]


def test_a_float_frame_takes_its_size_and_no_pixels():
    frames = scaled(np.random.default_rng(0).integers(0, 256, (1, 84, 84)), np.float32).repeat(120, axis=0)
    frames[60, 5, 5] = 0.5

    plain, storage = filled(frames[:60].repeat(2, axis=0)), filled(frames)

    assert {"k/255, as uint8": 119, "other floats, exact": 1} == storage.num_frames
    pixel_bytes = [len(pixels_of(each.segment(0, 0))) for each in (plain, storage)]
    assert pixel_bytes[0] == pixel_bytes[1]


def test_frames_multiplied_by_the_reciprocal_differ_from_divided_frames():
    pixels = np.arange(252, dtype=np.uint8).reshape(-1, *SHAPE)

    frames = pixels * np.float32(1 / 255)
    num_odd = (frames != pixels / np.float32(255)).any(axis=(1, 2)).sum()

    storage = filled(frames)

    assert 0 < num_odd < len(frames)
    assert num_odd == storage.num_frames["other floats, exact"]
    assert frames.tobytes() == window(storage, 20, 21, frames).tobytes()


def test_evicted_float_frames_are_not_counted_and_free_their_bytes():
    frames = np.random.default_rng(0).random((4000, 20, 30), np.float32)
    storage = FrameStorage(FrameSpec((20, 30), np.float32, is_scaled=True), 1, "raw")
    for position, frame in enumerate(frames):
        storage.append(ENV_ID, frame[None])
        storage.evict(0, position - 200)

    assert len(storage.stored_positions(0)) == storage.num_frames["other floats, exact"]
    assert sum(storage.nbytes.values()) < 900 * 5 * 600  # of 4,000: the stored ones and two chunks


@pytest.mark.parametrize(
    ("places", "num_frames", "fault"),
    [
        ([3, 3], 2, "places must be ascending"),
        ([4, 3], 2, "places must be ascending"),
        ([10**6], 1, "ascending and below 20"),
        ([1, 2], 1, "segment has 1 float frames and 2 places"),
    ],
)
def test_impossible_places_with_a_correct_checksum_are_refused(places, num_frames, fault):
    frames = np.full((20, *SHAPE), 0.3, np.float32)
    pixels = pixels_of(filled(frames).segment(0, 0))
    exact = SegmentCodec(FrameSpec(SHAPE, np.float32)).pack(frames[:num_frames])
    storage = FrameStorage(FrameSpec(SHAPE, np.float32, is_scaled=True), 1)
    segment = with_header(pixels + np.array(places, "<u4").tobytes() + exact, len(pixels), len(places))

    with pytest.raises(DamagedDataError, match=fault):
        storage.restore(0, 0, segment)

    assert range(0) == storage.stored_positions(0)


def test_a_segment_shorter_than_its_parts_is_refused():
    storage = FrameStorage(FrameSpec(SHAPE, np.float32, is_scaled=True), 1)

    with pytest.raises(DamagedDataError, match="segment of 916 bytes is not a segment of scaled floats"):
        storage.restore(0, 0, with_header(bytes(900), 1000, 1))


def test_float_frames_of_randomly_evicted_segments_free_their_bytes():
    rng = np.random.default_rng(0)
    storage = FrameStorage(FrameSpec((20, 30), np.float32, is_scaled=True), 1, "raw")
    frames_per_segment = storage.frames_per_segment
    stored: list[int] = []
    for number in range(60):
        for frame in rng.random((frames_per_segment, 20, 30), np.float32):
            storage.append(ENV_ID, frame[None])
        stored.append(number)
        if len(stored) > 4:
            gone = stored.pop(int(rng.integers(4)))
            storage.evict(0, (gone + 1) * frames_per_segment, gone * frames_per_segment)

    assert 4 * frames_per_segment == storage.num_frames["other floats, exact"]
    assert (
        sum(storage.nbytes.values()) < 9 * frames_per_segment * 5 * 600
    )  # of 60: the stored ones, and reusable chunks


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    kinds=st.lists(st.sampled_from(["scaled", "odd", "same"]), min_size=1, max_size=60),
    shape=st.sampled_from([SHAPE, (3, 2, 5)]),  # grey, and colour with channels first
    dtype=st.sampled_from(DTYPES),
    make=st.sampled_from(STORAGES),
    padding=st.sampled_from(STACK_PADDINGS),
    asked=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 6)), min_size=1, max_size=8),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_mixture_of_pixels_and_floats_is_returned_bit_for_bit(kinds, shape, dtype, make, padding, asked, seed):
    random = np.random.default_rng(seed)
    frames = np.zeros((len(kinds), *shape), dtype)
    for index, kind in enumerate(kinds):
        if kind == "same":
            frames[index] = frames[index - 1]
        else:
            frames[index] = scaled(random.integers(0, 256, shape), dtype) if kind == "scaled" else random.random(shape)
    storage = filled(frames, make)
    lasts = np.array([last % len(frames) for last, _ in asked])
    counts = np.minimum([count for _, count in asked], lasts + 1).astype(np.int32)
    out = np.empty((len(asked), 6, *shape), dtype)

    storage.windows(np.zeros(len(asked), np.int32), lasts, counts, out, padding)

    for row, (last, count) in enumerate(zip(lasts, counts, strict=True)):
        expected = frames[np.maximum(np.arange(last - 5, last + 1), last - count + 1)]
        if padding == "zeros":
            expected[: 6 - count] = 0
        assert expected.tobytes() == out[row].tobytes()
