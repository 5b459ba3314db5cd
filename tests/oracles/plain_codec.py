"""A packed segment read in plain Python, byte by byte, from docs/packing.md alone.

Slow, and obviously in order: what the native decoder gives must be equal to this, for every segment.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<IBBBBIIIHH")
LITERAL, UP, BASE, RUN, NEAR_KEPT, NEAR_UP, FAR_KEPT, FAR_UP = range(8)
NOTHING, FIRST_REPEAT, FIRST_WIDE8 = 100, 101, 115
REPEAT_WIDE8, REFERENCE, REPEAT_FAR, END = 123, 124, 125, 127


@dataclass(frozen=True)
class Codes:
    """What the codes below NOTHING mean in an encoding: for each source its first code and how many it has."""

    unit: int  # bytes that a length counts
    first_codes: tuple[int, ...]
    direct_lengths: tuple[int, ...]

    @property
    def first_of_kinds(self) -> list[int]:
        """The first code of every kind of operation, long and short."""
        return sorted([*self.first_codes, NOTHING, FIRST_REPEAT, *range(FIRST_WIDE8, REPEAT_FAR + 1), END])

    def kinds_of(self, codes: set[int]) -> list[int]:
        """The first codes of the kinds that ``codes`` belong to."""
        return sorted({next(first for first in reversed(self.first_of_kinds) if first <= code) for code in codes})


BYTES = Codes(1, (0, 40, 68, 84), (40, 28, 16, 16))
PIXELS = Codes(3, (0, 16, 32, 40, 48, 62, 76, 88), (16, 16, 8, 8, 14, 14, 12, 12))


class BrokenSegmentError(Exception):
    """The segment cannot be read; what the native code calls DamagedDataError."""


def crc32c(content: bytes) -> int:
    """CRC-32C, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@dataclass
class Patch:
    """Reads one patch into a frame; ``frame`` begins as the patched frame, or as zeros where it is self-coded."""

    body: bytes
    offset: int
    row_bytes: int
    pixel_bytes: int
    frame: list[int]
    base: list[int] | None
    codes: set[int]
    meaning: Codes

    def __post_init__(self) -> None:
        self.position = 0

    def take(self, limit: int, count: int = 1) -> int:
        if self.offset + count > limit:
            raise BrokenSegmentError("a patch ends within an operation")
        self.offset += count
        return int.from_bytes(self.body[self.offset - count : self.offset], "little")

    def write(self, value: int) -> None:
        if self.position >= len(self.frame):
            raise BrokenSegmentError("a patch writes past the frame")
        self.frame[self.position] = value
        self.position += 1

    def behind(self, distance: int) -> int:
        return self.frame[self.position - distance] if self.position >= distance else 0

    def keep(self, count: int) -> None:
        for _ in range(count * self.meaning.unit):
            if self.position >= len(self.frame):
                raise BrokenSegmentError("a patch keeps past the frame")
            self.write(self.behind(self.row_bytes) if self.base is None else self.frame[self.position])

    def read_keep(self, limit: int) -> None:
        count = self.take(limit)
        self.keep(self.take(limit, 2) if count == 255 else 255 + self.take(limit) if count == 254 else count + 1)

    def copy(self, source: int, count: int, limit: int) -> None:
        if source >= NEAR_KEPT:
            for _ in range(count):
                self.add_to_pixel(source, limit)
            return
        for _ in range(count * self.meaning.unit):
            if source == LITERAL:
                self.write(self.take(limit))
            elif source == RUN:
                self.write(self.behind(self.pixel_bytes))
            elif source == BASE and self.base is not None and self.position < len(self.frame):
                self.write(self.base[self.position])
            else:
                self.write(self.behind(self.row_bytes))

    def add_to_pixel(self, source: int, limit: int) -> None:
        if source in (NEAR_KEPT, NEAR_UP):
            code = self.take(limit)
            green, red, blue = code // 16 - 8, code // 4 % 4 - 2, code % 4 - 2
        else:
            green, code = self.take(limit), self.take(limit)
            red, blue = code // 16 - 8, code % 16 - 8
        for added in (green + red, green, green + blue):
            if self.position >= len(self.frame):
                raise BrokenSegmentError("a patch writes past the frame")
            is_kept = source in (NEAR_KEPT, FAR_KEPT) and self.base is not None
            before = self.frame[self.position] if is_kept else self.behind(self.row_bytes)
            self.write((before + added) % 256)

    def operations(self, limit: int, is_repeated: bool) -> None:
        while self.offset < limit:
            first = self.take(limit)
            code, keeps = first & 127, first >= 128
            self.codes.add(code)
            if code == END:
                if is_repeated or keeps:
                    raise BrokenSegmentError("an end where none may be")
                self.keep((len(self.frame) - self.position) // self.meaning.unit)
                return
            if code < NOTHING:
                source = max(kind for kind, first in enumerate(self.meaning.first_codes) if first <= code)
                self.copy(source, code - self.meaning.first_codes[source] + 1, limit)
            elif FIRST_WIDE8 <= code < REPEAT_WIDE8:
                num_sources = len(self.meaning.first_codes)
                source = (code - FIRST_WIDE8) % num_sources
                is_16 = code >= FIRST_WIDE8 + num_sources
                count = self.take(limit, 2) if is_16 else self.meaning.direct_lengths[source] + 1 + self.take(limit)
                self.copy(source, count, limit)
            elif (code <= REPEAT_WIDE8 and code != NOTHING) or code == REPEAT_FAR:
                if is_repeated:
                    raise BrokenSegmentError("a repeat within a repeat")
                self.repeat(code, limit)
            elif code != NOTHING:
                raise BrokenSegmentError("a code that means nothing")
            if keeps and not (is_repeated and self.offset == limit):
                self.read_keep(limit)
        if not is_repeated:
            raise BrokenSegmentError("a patch without its end")

    def repeat(self, code: int, limit: int) -> None:
        least = 4 if code == REPEAT_FAR else 18
        size = code - FIRST_REPEAT + 4 if code < FIRST_WIDE8 else least + self.take(limit)
        offset = self.take(limit, 3 if code == REPEAT_FAR else 2)
        if offset + size >= len(self.body):  # the end of a patch stands behind whatever is repeated
            raise BrokenSegmentError("a repeat of what is not there")
        back, self.offset = self.offset, offset
        self.operations(offset + size, is_repeated=True)
        self.offset = back


class Header(NamedTuple):
    """The fields of a segment's header that its payload is read by."""

    num_frames: int
    rows: int
    row_bytes: int
    pixel_bytes: int
    group_frames: int

    @property
    def frame_bytes(self) -> int:
        return self.rows * self.row_bytes


def raw_frames(header: Header, payload: bytes, codes: set[int]) -> NDArray[np.uint8]:
    del codes  # of operations, which raw frames have not
    return np.frombuffer(payload, np.uint8).reshape(header.num_frames, header.frame_bytes)


def byte_patches(header: Header, payload: bytes, codes: set[int]) -> NDArray[np.uint8]:
    return patched_frames(header, payload, codes, BYTES)


def pixel_patches(header: Header, payload: bytes, codes: set[int]) -> NDArray[np.uint8]:
    if header.pixel_bytes != 3 or header.row_bytes % 3:
        raise BrokenSegmentError("pixels that are no colours")
    return patched_frames(header, payload, codes, PIXELS)


def planar_patches(header: Header, payload: bytes, codes: set[int]) -> NDArray[np.uint8]:
    if header.pixel_bytes != 1 or header.rows % 3:
        raise BrokenSegmentError("planes that are no colours")
    joined = header._replace(rows=header.rows // 3, row_bytes=3 * header.row_bytes, pixel_bytes=3)
    pixels = patched_frames(joined, payload, codes, PIXELS).reshape(header.num_frames, -1, 3)
    return pixels.transpose(0, 2, 1).reshape(header.num_frames, header.frame_bytes)


def patched_frames(header: Header, payload: bytes, codes: set[int], meaning: Codes) -> NDArray[np.uint8]:
    """Read a base frame and groups of patches, behind a table of groups."""
    num_groups = -(-header.num_frames // header.group_frames)
    begins = struct.unpack_from(f"<{num_groups}I", payload)
    body = payload[4 * num_groups :]

    def read(offset: int, frame: list[int], base: list[int] | None) -> Patch:
        patch = Patch(body, offset, header.row_bytes, header.pixel_bytes, list(frame), base, codes, meaning)
        patch.operations(len(body), is_repeated=False)
        return patch

    base = read(0, [0] * header.frame_bytes, None).frame
    frames: list[list[int]] = []
    offset = 0
    for index in range(header.num_frames):
        patched = frames[-1] if index % header.group_frames else base
        if index % header.group_frames == 0:
            offset = begins[index // header.group_frames]
        if body[offset : offset + 1] == bytes([REFERENCE]):
            [group] = body[offset + 1 : offset + 2] or [num_groups]
            if group >= num_groups:
                raise BrokenSegmentError("a reference to a group that is not there")
            codes.add(REFERENCE)
            patched = read(begins[group], base, base).frame  # an anchor with a reference itself is refused
            offset += 2
        patch = read(offset, patched, base)
        offset = patch.offset
        frames.append(patch.frame)
    return np.array(frames, np.uint8)


ENCODINGS = (raw_frames, byte_patches, pixel_patches, planar_patches)
"""Reads the payload of each encoding, by the number in a segment's header."""


def unpack(segment: bytes, codes: set[int] | None = None) -> NDArray[np.uint8]:
    """Frames of ``segment``, ``(num_frames, rows * row_bytes)``; BrokenSegmentError for anything that is wrong.

    Adds the codes of the operations that it reads to ``codes``.
    """
    crc, mark, version, encoding, zero, *fields = HEADER.unpack_from(segment)
    if crc != crc32c(segment[4:]) or (mark, version, zero) != (0xF5, 1, 0) or encoding >= len(ENCODINGS):
        raise BrokenSegmentError("a header that no writer wrote")
    return ENCODINGS[encoding](Header(*fields), segment[HEADER.size :], set() if codes is None else codes)
