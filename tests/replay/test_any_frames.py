"""Frames of any shape and dtype go through a memory and come back bit for bit."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory


def random_frames(random: np.random.Generator, spec: FrameSpec, count: int) -> np.ndarray:
    """Pictures alike, noise, and among scaled pixels some that are not, each dtype with what is odd about it."""
    pixels = np.repeat(random.integers(0, 256, (1, *spec.shape)), count, axis=0)
    noisy = random.random(count) < 0.3
    pixels[noisy] = random.integers(0, 256, (int(noisy.sum()), *spec.shape))
    if spec.dtype.kind != "f":
        return (pixels % 2 if spec.dtype == np.bool_ else pixels).astype(spec.dtype)
    frames = (pixels / np.float64(255)).astype(spec.dtype)
    odd = random.random(count) < 0.2
    frames[odd] = random.normal(size=(int(odd.sum()), *spec.shape))
    if count > 2:
        frames[2].reshape(-1)[0] = -0.0
        frames[1].reshape(-1)[-1] = np.nan
    return frames


def record(memory: ReplayMemory, frames: np.ndarray) -> None:
    """One episode an environment: frames ``(steps, env_ids, *frame)``."""
    count = memory.num_envs
    memory.begin(frames[0])
    for step in range(1, len(frames)):
        memory.append(np.full(count, step % 5), np.full(count, step), *np.zeros((2, count), bool), frames[step])


def stack_of(memory: ReplayMemory, frames: np.ndarray, env_id: int, last: int) -> np.ndarray:
    positions = np.arange(last - memory.stack + 1, last + 1)
    stack = frames[np.maximum(positions, 0), env_id]
    if memory.inner.settings.stack_padding == "zeros":
        stack[positions < 0] = 0
    return stack


def assert_holds(memory: ReplayMemory, frames: np.ndarray) -> None:
    indices = memory.sampleable_indices()
    batch = memory.get(indices)
    assert frames.dtype == batch.observation.dtype == batch.next_observation.dtype
    for row, index in enumerate(indices.tolist()):
        step, env_id = divmod(index, memory.num_envs)
        assert stack_of(memory, frames, env_id, step).tobytes() == batch.observation[row].tobytes()
        assert stack_of(memory, frames, env_id, step + 1).tobytes() == batch.next_observation[row].tobytes()
    for env_id, stack in enumerate(memory.observations()):
        assert stack_of(memory, frames, env_id, len(frames) - 1).tobytes() == stack.tobytes()


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(["bool", "uint8", "int8", "uint16", "int32", "int64", "float16", "float32", "float64"]),
    is_scaled=st.booleans(),
    padding=st.sampled_from(STACK_PADDINGS),
    storage=st.sampled_from(["packed", "raw"]),
    num_steps=st.integers(2, 60),
    capacity=st.integers(2, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_frames_of_any_shape_and_dtype_are_sampled_unchanged_before_and_after_saving(
    shape, dtype, is_scaled, padding, storage, num_steps, capacity, seed, tmp_path
):
    spec = FrameSpec(shape, dtype, is_scaled and dtype.startswith("float"))
    memory = ReplayMemory(capacity, spec, 5, stack=3, stack_padding=padding, num_envs=2, storage=storage, seed=0)
    frames = random_frames(np.random.default_rng(seed), spec, 2 * num_steps).reshape(num_steps, 2, *shape)

    record(memory, frames)

    assert_holds(memory, frames)
    memory.save(tmp_path / "memory")
    assert_holds(ReplayMemory.load(tmp_path / "memory"), frames)


def test_pictures_of_a_megapixel_are_sampled_unchanged():
    memory = ReplayMemory(20, Box(0, 255, (600, 800, 3), np.uint8), 5, stack=2, seed=0)
    frames = np.random.default_rng(0).integers(0, 256, (12, 1, 600, 800, 3), dtype=np.uint8)
    frames[1::2] = frames[:1]

    record(memory, frames)

    assert_holds(memory, frames)


def test_scaled_frames_take_the_bytes_of_pixels_and_the_report_counts_other_floats():
    pixels = np.random.default_rng(0).integers(0, 256, (256, 1, 84, 84), dtype=np.uint8)
    frames = pixels.astype(np.float32) / 255
    frames[100] = 0.3
    memory = ReplayMemory(300, Box(0, 1, (84, 84), np.float32), 5, stack=4)

    record(memory, frames)

    report = memory.report()
    assert {"k/255, as uint8": 255, "other floats, exact": 1} == report.frames
    assert "255 frames k/255, as uint8" in str(report)
    of_frames = report.parts["frames"] + report.parts["open segments"]
    assert of_frames < 1.01 * pixels.nbytes + 2 * 10**6  # what packing a frame of either kind needs beside them
    assert ReplayMemory(300, Box(0, 1, (84, 84), np.float32), 5, stack=4).report().parts["open segments"] < 10**6
