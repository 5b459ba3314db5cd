"""Environments of frames as games make them, and as they do not, drawn from one seed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, ...]
Frames = NDArray[np.uint8]


def noise(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    return rng.integers(0, 256, (count, *shape), dtype=np.uint8)


def constant(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    return np.full((count, *shape), rng.integers(256), np.uint8)


def flicker(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    pictures = noise(rng, 2, shape)
    return pictures[np.arange(count) % 2]


def sprites(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    """A fixed background of stripes, and small pictures that move over it and leave it as it was."""
    frames = np.zeros((count, *shape), np.uint8)
    frames[:] = (np.arange(shape[0]) // 5 * 17 % 251).astype(np.uint8).reshape(-1, *[1] * (len(shape) - 1))
    width = shape[1] if len(shape) > 1 else 1
    for _ in range(4):
        picture = noise(rng, 1, (min(4, shape[0]), min(3, width), *shape[2:]))[0]
        picture = picture.reshape(picture.shape[: len(shape)]) if len(shape) > 1 else picture[:, 0]
        row, column = rng.integers(shape[0]), rng.integers(width)
        speed = rng.integers(-2, 3, 2)
        for index in range(count):
            top = (row + index * speed[0]) % max(1, shape[0] - picture.shape[0] + 1)
            left = (column + index * speed[1]) % max(1, width - (picture.shape[1] if len(shape) > 1 else 1) + 1)
            if len(shape) > 1:
                frames[index, top : top + picture.shape[0], left : left + picture.shape[1]] = picture
            else:
                frames[index, top : top + picture.shape[0]] = picture
    return frames


def scroll(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    picture = noise(rng, 1, shape)[0] // 128 * 128
    return np.stack([np.roll(picture, index, axis=0) for index in range(count)])


def sparse(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    """Each frame changes single bytes of the one before."""
    frames = np.repeat(noise(rng, 1, shape), count, axis=0).reshape(count, -1)
    for index in range(1, count):
        frames[index] = frames[index - 1]
        frames[index, rng.integers(0, frames.shape[1], 3)] += 1
    return frames.reshape(count, *shape)


def scenes(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    """Some scenes that take turns, each with a few random bytes."""
    frames = rng.integers(0, 256, (3, *shape), dtype=np.uint8)[np.arange(count) // 4 % 3]
    pixels = rng.integers(0, frames[0].size, count)
    frames.reshape(count, -1)[np.arange(count), pixels] = rng.integers(0, 256, count)
    return frames


def shaded(rng: np.random.Generator, count: int, shape: Shape) -> Frames:
    """A smooth picture; each frame is a little brighter or darker in some places, in colours that differ a little."""
    size = int(np.prod(shape))
    frames = np.empty((count, size), np.uint8)
    frames[0] = np.arange(size) // 3 // max(1, size // 400) + rng.integers(0, 3, size)
    for index in range(1, count):
        reach = int(rng.choice([1, 2, 12, 60]))  # of what all bytes of three grow by
        brighter = np.repeat(rng.integers(-reach, reach, -(-size // 3)), 3)[:size] + rng.integers(-1, 2, size)
        begin, end = sorted(rng.integers(0, size + 1, 2))
        frames[index] = frames[index - 1]
        frames[index, begin:end] += brighter[begin:end].astype(np.uint8)
    return frames.reshape(count, *shape)


MAKERS: dict[str, Callable[[np.random.Generator, int, Shape], Frames]] = {
    "noise": noise,
    "constant": constant,
    "flicker": flicker,
    "sprites": sprites,
    "scroll": scroll,
    "sparse": sparse,
    "scenes": scenes,
    "shaded": shaded,
}
SHAPES: tuple[Shape, ...] = ((1, 1), (1, 7), (7, 1), (13, 5), (24, 24), (5, 40), (16, 17, 3), (3, 9, 31), (84, 84))
