"""A memory of Dict and Tuple observations that is fed and asked in plain bytes, so that the list oracle fits it."""

from __future__ import annotations

from typing import Any

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import ObservationSpec, observation_spec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch


class Number:
    """What a ``Discrete`` looks like."""

    shape, dtype = (), np.dtype(np.int64)


SPACE = {
    "camera": FrameSpec((9, 7, 3)),
    "arm": ({"joints": FrameSpec((3,), np.float64)}, Number()),
    "depth": FrameSpec((6, 5), np.float32),
    "seen": FrameSpec((4, 4), np.float32, is_scaled=True),
    "touch": FrameSpec((5,), np.int8),
}

# Where each array stands in an observation, its shape there and its dtype: told again, not asked of the memory.
LAYOUT = (
    (("touch",), (5,), np.int8),
    (("arm", 0, "joints"), (3,), np.float64),
    (("camera",), (9, 7, 3), np.uint8),
    (("arm", 1), (), np.int64),
    (("seen",), (4, 4), np.float32),
    (("depth",), (6, 5), np.float32),
)
SIZES = [int(np.prod(shape)) * np.dtype(dtype).itemsize for _, shape, dtype in LAYOUT]
NUM_BYTES = sum(SIZES)


def split(frames: np.ndarray) -> dict[str, Any]:
    """Observations of which ``frames``, ``(..., NUM_BYTES)``, are the bytes."""
    parts = np.split(frames, np.cumsum(SIZES)[:-1], axis=-1)
    arrays = {
        path: np.ascontiguousarray(part).view(dtype).reshape(*frames.shape[:-1], *shape)
        for part, (path, shape, dtype) in zip(parts, LAYOUT, strict=True)
    }
    return {
        "camera": arrays["camera",],
        "arm": ({"joints": arrays["arm", 0, "joints"]}, arrays["arm", 1]),
        "depth": arrays["depth",],
        "seen": arrays["seen",],
        "touch": arrays["touch",],
    }


def join(observations: Any) -> np.ndarray:
    """The bytes of observations: ``(..., NUM_BYTES)``, whatever axes stand before those of each array."""
    parts = []
    for (path, shape, dtype), size in zip(LAYOUT, SIZES, strict=True):
        part = observations
        for key in path:
            part = part[key]
        assert part.dtype == dtype
        assert len(shape) == 0 or part.shape[-len(shape) :] == shape
        leading = part.shape[: part.ndim - len(shape)]
        flat = np.ascontiguousarray(part).reshape(*leading, size // part.itemsize)
        parts.append(flat.view(np.uint8))
    return np.concatenate(parts, axis=-1)


def spec() -> ObservationSpec:
    """Spec of these observations."""
    return observation_spec(SPACE)


class MemoryOfBytes:
    """A ``ReplayMemory`` of ``SPACE`` as a memory of vectors of bytes."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.wrapped = memory

    def __len__(self) -> int:
        return len(self.wrapped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def begin(self, frames: np.ndarray, *env_ids: Any) -> None:
        self.wrapped.begin(split(frames), *env_ids)

    def append(
        self, actions: Any, rewards: Any, terminated: Any, truncated: Any, frames: np.ndarray, *others: Any
    ) -> None:
        self.wrapped.append(actions, rewards, terminated, truncated, split(frames), *others)

    def observations(self) -> np.ndarray:
        return join(self.wrapped.observations())

    def sample(self, batch_size: int) -> Batch:
        return in_bytes(self.wrapped.sample(batch_size))

    def get(self, indices: Any) -> Batch:
        return in_bytes(self.wrapped.get(indices))


def in_bytes(batch: Batch) -> Batch:
    """The batch with its observations as bytes."""
    fields = dict(vars(batch))
    fields["observation"], fields["next_observation"] = join(batch.observation), join(batch.next_observation)
    return Batch(**fields)
