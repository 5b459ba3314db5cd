"""Reads the resources of ``framestow view`` as a browser does, from the description of their bytes."""

from __future__ import annotations

import base64
import functools
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.viewer.memory_view import MemoryView

ZEROS, LOST, FIRST_EXTRA = -(2**30), -(2**30) - 1, 2**30


class Resource(NamedTuple):
    values: dict[str, Any]
    arrays: dict[str, np.ndarray]


def unpack(content: bytes) -> Resource:
    content = zlib.decompress(content)
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    arrays = {
        name: np.frombuffer(content, dtype, int(np.prod(shape, dtype=int)), 4 + length + offset).reshape(shape)
        for name, (dtype, shape, offset) in header["arrays"].items()
    }
    return Resource(header["values"], arrays)


def read(view: MemoryView, name: str) -> Resource:
    return unpack(view.resource(name))


def resources_of_page(path: Path) -> dict[str, Resource]:
    found = re.findall(r'id="resource:([^"]+)">([^<]*)<', path.read_text(encoding="utf-8"))
    return {name: unpack(base64.b64decode(content)) for name, content in found}


class ShownEpisode:
    """An episode as a browser has it: its steps, and all of its pieces with their frames undone."""

    def __init__(self, view: MemoryView, number: int) -> None:
        self.values, self.steps = read(view, f"episode/{number}")
        self.pieces = [read(view, f"frames/{number}/{piece}") for piece in range(self.values["pieces"])]
        self.frames_per_piece = read(view, "memory").values["frames_per_piece"]

    @functools.cache  # noqa: B019 -- of few episodes
    def frames(self, key: int) -> np.ndarray:
        """All frames of an array as bytes, the first one with the number ``-history``."""
        return np.concatenate(
            [np.bitwise_xor.accumulate(piece.arrays[f"frames.{key}"], axis=0) for piece in self.pieces]
        )

    def stack(self, step: int, part: int, key: int) -> np.ndarray:
        """The frames of the observation (part 0) or the next observation (1) of a step, as bytes."""
        frames, history = self.frames(key), self.values["history"]
        piece = self.pieces[(step + history) // self.frames_per_piece]
        numbers = piece.arrays[f"stacks.{key}"][step - piece.values["first_step"], part]
        rows = []
        for number in numbers.tolist():
            assert number != LOST
            if number == ZEROS:
                rows.append(np.zeros(frames.shape[1], np.uint8))
            elif number >= FIRST_EXTRA:
                rows.append(piece.arrays[f"extras.{key}"][number - FIRST_EXTRA])
            else:
                rows.append(frames[number + history])
        return np.array(rows)


def assert_shows(view: MemoryView, memory: ReplayMemory) -> None:
    """Assert that the view has every sampleable transition of ``memory`` once, as ``memory.get`` returns it."""
    seen = []
    for number in range(read(view, "memory").values["episodes"]):
        episode = ShownEpisode(view, number)
        is_sampleable = episode.steps["is_sampleable"].astype(bool)
        indices = episode.steps["index"][is_sampleable].astype(np.int64)
        seen += indices.tolist()
        if not len(indices):
            continue
        batch = memory.get(indices)
        for name, field in (
            ("reward", "n_step_return"), ("discount", "discount"), ("terminated", "n_terminated"),
            ("truncated", "n_truncated"), ("action", "action"),
        ):  # fmt: skip
            assert (getattr(batch, name) == episode.steps[field][is_sampleable]).all(), name
        for name, values in batch.extras.items():
            assert np.array_equal(values, episode.steps[f"extra.{name}"][is_sampleable])
        for row, step in enumerate(np.flatnonzero(is_sampleable).tolist()):
            assert_same_stacks(memory, batch, row, episode, step)
    assert sorted(seen) == memory.sampleable_indices().tolist()


def assert_same_stacks(memory: ReplayMemory, batch: Batch, row: int, episode: ShownEpisode, step: int) -> None:
    layout = memory.inner.settings.layout
    for part, observation in enumerate((batch.observation, batch.next_observation)):
        arrays = layout.split(layout.flatten(observation))
        for key in range(len(memory.inner.settings.frame.arrays)):
            expected = np.ascontiguousarray(arrays[key][row])
            assert expected.tobytes() == episode.stack(step, part, key).tobytes(), (step, part, key)
