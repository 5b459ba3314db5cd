"""A store read in plain Python, from docs/store-format.md and docs/packing.md alone.

Slow, and obviously in order: a loaded memory must have these transitions, no others.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracles.plain_codec import crc32c, unpack

FILE_HEADER, BLOCK_HEADER = struct.Struct("<8sI8sQ8sI"), struct.Struct("<4s8sIIQIII")
ENTRY = struct.Struct("<IIQQII")
SCALED_HEADER = STRETCHES_HEADER = struct.Struct("<I4sII")
STEPS_A_BLOCK = 1024
TERMINATED, TRUNCATED, TAKEN, BORDER = 1, 2, 4, 16
Stretches = dict[int, "NDArray[Any] | None"]
"""Lead-ins of stretches, oldest first, by the index of the stretch's first frame in its segment; None for zeros."""


class BrokenStoreError(Exception):
    """The store is not as its specification says."""


@dataclass(frozen=True)
class PlainStep:
    """One step, with its observation and its next observation."""

    env_id: int
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    extras: dict[str, Any]
    observation: list[NDArray[Any]]  # each array, in the shape that the space has
    next_observation: list[NDArray[Any]]


class PlainStore:
    """The newest generation of a store."""

    def __init__(self, folder: Path) -> None:
        self.commit, state = newest_commit(folder)
        self.settings = self.commit["memory"]["settings"]
        self.state = dict(arrays_in(state))
        self.arrays = list(arrays_of(self.settings["frame"]))
        # Of each array: axis, number of frames, and entries of each frame along the axis.
        self.stacks = self.settings["stacks"] or [[0, self.settings["stack"], None]] * len(self.arrays)
        frames, steps = (dict(blocks(folder, name, self.commit)) for name in ("frames", "steps"))
        versions = {(track, number): version for track, number, version in self.state["steps.versions"].tolist()}
        for key, (version, _) in steps.items():
            if version != versions.get(key, 0):
                raise BrokenStoreError(f"version of the block {key}")
        self._step_blocks = {key: payload for key, (_, payload) in steps.items()}
        self.segments = {key: frames[key][1] for key in self._sealed_segments()} | self._open_segments()
        self._unpacked: dict[tuple[int, int], tuple[NDArray[Any], Stretches]] = {}

    def steps(self) -> list[PlainStep]:
        """All steps whose transitions can be sampled, oldest first."""
        found = self._steps_of_blocks() if "blocks.numbers" in self.state else self._steps_of_ring()
        lost = set(self.state["steps.lost"].tolist())
        return [self._step(record) for index, record in found if index not in lost and not self._is_pending(record)]

    def _is_pending(self, record: Any) -> bool:
        """Whether the episode is running and has too few steps behind this one for its return."""
        env_id, newest = record["env_id"], self.state["steps.newest_positions"]
        is_new = self._position(record) > int(newest[env_id]) - self.settings["n_step"]
        return is_new and bool(self.state["steps.is_open"][env_id])

    def _position(self, record: Any) -> int:
        """The number of the step's first frame, of which the record has the low 32 bits."""
        newest = int(self.state["steps.newest_positions"][record["env_id"]])
        return newest - (newest - int(record["position"])) % 2**32

    def _sealed_segments(self) -> Iterator[tuple[int, int]]:
        spans = iter(self.state["frames.runs"].tolist())
        for env_id, count in enumerate(self.state["frames.run_counts"].tolist()):
            for _ in range(count):
                first, last = next(spans)
                yield from ((env_id, number) for number in range(first, last + 1))

    def _open_segments(self) -> dict[tuple[int, int], bytes]:
        length, rest, segments = self.commit["frames_per_segment"], self.state["frames.open_segments"].tobytes(), {}
        sizes, positions = self.state["frames.open_sizes"].tolist(), self.state["frames.next_positions"].tolist()
        for env_id, (size, position) in enumerate(zip(sizes, positions, strict=True)):
            if size:
                segments[env_id, position // length] = rest[:size]
            rest = rest[size:]
        return segments

    def _steps_of_ring(self) -> Iterator[tuple[int, Any]]:
        oldest, stop = self.state["steps.span"].tolist()
        first_block, stop_block = self.state["steps.blocks"].tolist()
        loose = iter(self._loose_records())
        for index in range(oldest, stop):
            number, row = divmod(index, STEPS_A_BLOCK)
            if not first_block <= number < stop_block:
                yield index, next(loose)
            elif (0, number) in self._step_blocks:
                yield index, np.frombuffer(self._step_blocks[0, number], self.record)[row]

    def _steps_of_blocks(self) -> Iterator[tuple[int, Any]]:
        length = self.commit["frames_per_segment"]
        loose = self._loose_records()
        for number, env_id, segment, num_steps, is_sealed in zip(
            *(self.state[f"blocks.{name}"].tolist() for name in BLOCK_FIELDS), strict=True
        ):
            if is_sealed and not num_steps:
                continue
            records = np.frombuffer(self._step_blocks[env_id, segment], self.record) if is_sealed else loose[:length]
            loose = loose if is_sealed else loose[length:]
            yield from (
                (number * length + row, record) for row, record in enumerate(records) if record["flags"] & TAKEN
            )

    @property
    def record(self) -> np.dtype[Any]:
        """One step of a block."""
        num_envs, action = self.settings["num_envs"], self.settings["action"]
        env_id = "<u1" if num_envs <= 2**8 else "<u2" if num_envs <= 2**16 else "<u4"
        fields = [("position", "<u4"), ("reward", "<f4"), ("flags", "u1"), ("history", "u1"), ("env_id", env_id)]
        fields += [("action", self.state["columns.action"].dtype, tuple(action["shape"]))]
        extras = [(name, dtype, tuple(shape)) for name, (dtype, shape) in sorted(self.settings["extras"].items())]
        return np.dtype(fields + ([("extras", extras)] if extras else []))

    def _loose_records(self) -> NDArray[Any]:
        records = np.zeros(len(self.state["steps.env_id"]), self.record)
        for name in ("env_id", "position", "history"):
            records[name] = self.state[f"steps.{name}"]
        for name in ("action", "reward", "flags"):
            records[name] = self.state[f"columns.{name}"]
        for name in self.settings["extras"]:
            records["extras"][name] = self.state[f"extra.{name}"]
        return records

    def _step(self, record: Any) -> PlainStep:
        env_id = int(record["env_id"])
        position = self._position(record)
        first = position - int(record["history"])
        next_first = position + 1 if record["flags"] & BORDER else first
        observations = [
            [self._observation(array, env_id, begin, last) for array in range(len(self.arrays))]
            for begin, last in ((first, position), (next_first, position + 1))
        ]
        extras = record["extras"] if self.settings["extras"] else {}
        return PlainStep(
            env_id,
            record["action"],
            float(record["reward"]),
            bool(record["flags"] & TERMINATED),
            bool(record["flags"] & TRUNCATED),
            {name: extras[name] for name in self.settings["extras"]},
            *observations,
        )

    def _observation(self, array: int, env_id: int, begin: int, last: int) -> NDArray[Any]:
        """Return what an array shows at position ``last``, of a stretch that begins at ``begin`` or before it."""
        axis, depth, entries = self.stacks[array] or (0, 1, None)
        length, key = self.commit["frames_per_segment"], array * self.settings["num_envs"] + env_id
        places = [divmod(position, length) for position in range(max(begin, last - depth + 1), last + 1)]
        frames = [self._segment(array, (key, number))[0][index] for number, index in places]
        num_padded = depth - len(frames)
        if num_padded:
            number, index = places[0]
            padding = [
                np.zeros_like(frames[0]) if self.settings["stack_padding"] == "zeros" else frames[0]
            ] * num_padded
            _, stretches = self._segment(array, (key, number))
            if index in stretches:
                lead_ins = stretches[index]
                padding = [np.zeros_like(frames[0])] * num_padded if lead_ins is None else list(lead_ins[-num_padded:])
            frames = padding + frames
        if self.stacks[array] is None:
            return frames[0]
        return np.stack(frames, axis) if entries is None else np.concatenate(frames, axis)

    def _segment(self, array: int, key: tuple[int, int]) -> tuple[NDArray[Any], Stretches]:
        """Return the frames of a segment, and the padding of the stretches that bring their own."""
        if key not in self._unpacked:
            segment, stretches = stretches_of_segment(self.segments[key], self.arrays[array])
            self._unpacked[key] = frames_of_segment(segment, self.arrays[array]), stretches
        return self._unpacked[key]


def newest_commit(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Front and state of the commit with the highest number, or of its copy if that alone is whole."""
    newest = max(int(path.name.split(".")[1]) for path in folder.glob("COMMIT.*") if is_commit(path.name))
    problems = []
    for name in (f"COMMIT.{newest:06d}", f"COMMIT.{newest:06d}.copy"):
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        of_front, num_bytes = (int(digits, 16) for digits in content[:18].split() or ("0", "0"))
        front, state = content[18 : 18 + num_bytes], content[18 + num_bytes : -4]
        if not content or of_front != crc32c(front) or int.from_bytes(content[-4:], "little") != crc32c(content[:-4]):
            problems.append(f"checksum of {name}")
        elif len(state) != json.loads(front)["state_bytes"]:
            problems.append(f"size of {name}")
        else:
            return json.loads(front), state
    raise BrokenStoreError(", ".join(problems))


def is_commit(name: str) -> bool:
    _, number, *ending = name.split(".")
    return number.isdigit() and 6 <= len(number) <= 15 and ending in ([], ["copy"])


BLOCK_FIELDS = ("numbers", "env_ids", "segments", "num_steps", "are_sealed")


def arrays_in(state: bytes) -> Iterator[tuple[str, NDArray[Any]]]:
    line, _, values = state.partition(b"\n")
    for name, (dtype, shape) in json.loads(line).items():
        size = math.prod(shape)
        yield name, np.frombuffer(values, dtype, size).reshape(shape)
        values = values[size * np.dtype(dtype).itemsize :]


def arrays_of(frame: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The arrays of an observation: of a dict in the order of the commit."""
    if "dict" in frame:
        for part in frame["dict"].values():
            yield from arrays_of(part)
    elif "tuple" in frame:
        for part in frame["tuple"]:
            yield from arrays_of(part)
    else:
        yield frame


def blocks(folder: Path, name: str, commit: dict[str, Any]) -> Iterator[tuple[tuple[int, int], tuple[int, bytes]]]:
    """Key, version and payload of every committed block of a log; of equal keys the last one counts."""
    store = bytes.fromhex(commit["id"])
    for file in commit[name]["files"]:
        content = (folder / f"{name}-{commit['id']}.{file['number']:06d}.log").read_bytes()[: file["bytes"]]
        magic, form, its_store, number, its_name, checksum = FILE_HEADER.unpack_from(content)
        written = (b"FSTOWLOG", 1, store, file["number"], name.encode())
        if (magic, form, its_store, number, its_name.rstrip(b"\0")) != written or checksum != crc32c(content[:36]):
            raise BrokenStoreError(f"header of file {file['number']} of {name}")
        offset, entries = FILE_HEADER.size, b""
        while offset < len(content):
            header = content[offset : offset + BLOCK_HEADER.size]
            marker, its_store, track, version, block, size, of_payload, of_header = BLOCK_HEADER.unpack(header)
            offset += BLOCK_HEADER.size
            payload = content[offset : offset + size]
            if (marker, its_store, of_payload, of_header) != (b"FBLK", store, crc32c(payload), crc32c(header[:36])):
                raise BrokenStoreError(f"block before {offset} of file {file['number']} of {name}")
            entries += ENTRY.pack(track, version, block, offset, size, of_payload)
            yield (track, block), (version, payload)
            offset += size
        if (len(entries) // ENTRY.size, crc32c(entries)) != (file["blocks"], file["checksum"]):
            raise BrokenStoreError(f"entries of file {file['number']} of {name}")


def frames_of_segment(segment: bytes, spec: dict[str, Any]) -> NDArray[Any]:
    """Return the frames of a segment without stretches, ``(n, *shape)``; ``spec``: an array of the settings."""
    shape, dtype = spec["shape"], np.dtype(spec["dtype"])
    frames = scaled_frames(segment, dtype, math.prod(shape)) if spec["is_scaled"] else unpack(segment)
    return np.ascontiguousarray(frames).view(dtype).reshape(-1, *shape)


def stretches_of_segment(segment: bytes, spec: dict[str, Any]) -> tuple[bytes, Stretches]:
    """Return the segment of frames, and the padding of the stretches that bring their own."""
    checksum, mark, num_bytes, num_stretches = STRETCHES_HEADER.unpack_from(segment)
    if mark != b"run1":
        return segment, {}
    if checksum != crc32c(segment[4:]):
        raise BrokenStoreError("header of a segment with stretches")
    rest = segment[STRETCHES_HEADER.size :]
    table = list(struct.iter_unpack("<II", rest[num_bytes : num_bytes + 8 * num_stretches]))
    num_given = max((number for _, number in table), default=0)
    older = np.split(frames_of_segment(rest[num_bytes + 8 * num_stretches :], spec), num_given) if num_given else []
    return rest[:num_bytes], {place: older[number - 1] if number else None for place, number in table}


def scaled_frames(segment: bytes, dtype: np.dtype[Any], num_pixels: int) -> NDArray[Any]:
    """Frames of a segment of scaled floats."""
    checksum, mark, num_bytes, num_exact = SCALED_HEADER.unpack_from(segment)
    if mark != b"sca1" or checksum != crc32c(segment[4:]):
        raise BrokenStoreError("header of a segment of scaled floats")
    rest = segment[SCALED_HEADER.size :]
    frames = (unpack(rest[:num_bytes]).astype(np.float64) / 255).astype(dtype).reshape(-1, num_pixels)
    indices = struct.unpack_from(f"<{num_exact}I", rest, num_bytes)
    if num_exact:
        frames[list(indices)] = unpack(rest[num_bytes + 4 * num_exact :]).view(dtype)
    return frames
