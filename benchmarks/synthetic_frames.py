"""Synthetic frames, 84x84 grey: the best and the worst case of a packing, and flicker.

Each function returns ``uint8`` of shape ``(num_frames, 84, 84)``, equal for equal arguments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FRAME_SIDE = 84  # pixels
NUM_SPRITES = 12
SPRITE_ROWS, SPRITE_COLUMNS = 8, 6  # pixels
FIELD_BLOCK = 7  # pixels; a field is made of blocks of one shade each


def noise(num_frames: int) -> NDArray[np.uint8]:
    """Return frames of random pixels, which cannot be packed."""
    return np.random.default_rng(0).integers(0, 256, (num_frames, FRAME_SIDE, FRAME_SIDE), np.uint8)


def constant(num_frames: int) -> NDArray[np.uint8]:
    """Return frames of one shade."""
    return np.full((num_frames, FRAME_SIDE, FRAME_SIDE), 87, np.uint8)


def flickering_sprites(num_frames: int) -> NDArray[np.uint8]:
    """Return frames of twelve sprites that drift over a still field, half in the even frames, half in the odd ones.

    The Atari 2600 so shows more sprites than it can draw at once. They look like this without a maximum of two
    screens.
    """
    generator = np.random.default_rng(1)
    frames = np.repeat(_field(generator)[None], num_frames, axis=0)
    sprites = generator.integers(0, 256, (NUM_SPRITES, SPRITE_ROWS, SPRITE_COLUMNS), np.uint8)
    positions = generator.integers(0, FRAME_SIDE, (NUM_SPRITES, 2))
    speeds = generator.integers(-2, 3, (NUM_SPRITES, 2))
    for time in range(num_frames):
        for sprite in range(time % 2, NUM_SPRITES, 2):
            top, left = (positions[sprite] + time * speeds[sprite]) % (FRAME_SIDE - SPRITE_ROWS)
            frames[time, top : top + SPRITE_ROWS, left : left + SPRITE_COLUMNS] = sprites[sprite]
    return frames


def flickering_screen(num_frames: int) -> NDArray[np.uint8]:
    """Return two still fields in turn, so that every pixel differs from the frame before."""
    generator = np.random.default_rng(2)
    fields = np.stack([_field(generator) // 2, _field(generator) // 2 + 128])
    return fields[np.arange(num_frames) % 2]


def _field(generator: np.random.Generator) -> NDArray[np.uint8]:
    blocks = FRAME_SIDE // FIELD_BLOCK
    shades = generator.integers(0, 256, (blocks, blocks), np.uint8)
    return shades.repeat(FIELD_BLOCK, axis=0).repeat(FIELD_BLOCK, axis=1)


SYNTHETIC = {
    "noise": noise,
    "constant": constant,
    "flickering_sprites": flickering_sprites,
    "flickering_screen": flickering_screen,
}
