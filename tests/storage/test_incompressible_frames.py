"""Incompressible frames are stored raw: no segment is more than one percent larger than its frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.storage.frame_storage import FrameStorage
from oracles.segment_codec import SegmentCodec

CONTENTS = {
    "noise": lambda random, shape: random.integers(0, 256, shape),
    "two values": lambda random, shape: random.integers(0, 2, shape) * 255,
    "noise every other byte": lambda random, shape: random.integers(0, 256, shape) * (np.indices(shape).sum(0) % 2),
    "one byte in ten": lambda random, shape: random.integers(0, 256, shape) * (random.random(shape) < 0.1),
    "constant": lambda random, shape: np.full(shape, 7),
    "pairs": lambda random, shape: np.repeat(random.integers(0, 256, shape), 2, axis=-1)[..., ::2],
}


def assert_at_most_a_hundredth_over(spec: FrameSpec, frames: np.ndarray) -> None:
    segment = SegmentCodec(spec).pack(frames)

    assert len(segment) <= 1.01 * frames.nbytes, f"{len(segment)} bytes for {frames.nbytes}"


@pytest.mark.each_value
@pytest.mark.parametrize("contents", CONTENTS)
@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (5, 7, 2), (128,), (84, 84), (3, 40, 30), (60, 50, 3)])
def test_a_full_segment_takes_at_most_one_percent_more_than_raw_frames(shape, contents):
    spec = FrameSpec(shape)
    frames_per_segment = SegmentCodec(spec).frames_per_segment
    frames = CONTENTS[contents](np.random.default_rng(0), (frames_per_segment, *spec.shape)).astype(np.uint8)

    assert_at_most_a_hundredth_over(spec, frames)


@pytest.mark.parametrize("spec", [FrameSpec((2, 3)), FrameSpec((84, 84)), FrameSpec((40, 40), np.float32)])
def test_a_storage_of_noise_takes_little_more_than_raw_frames(spec):
    storage = FrameStorage(spec, 1)
    noise = np.random.default_rng(0).integers(0, 256, (512, spec.nbytes), dtype=np.uint8)
    frames = noise.view(spec.dtype).reshape(-1, *spec.shape)
    num_frames = 20 * SegmentCodec(spec).frames_per_segment
    for position in range(num_frames):
        storage.append(np.zeros(1, np.int32), frames[position % 512][None])

    parts = storage.nbytes
    assert parts["frames"] + parts["index"] < 1.01 * num_frames * spec.nbytes + 3 * 4096  # whole pages
