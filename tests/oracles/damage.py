"""Damage files in the ways of disks and people."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from oracles.store_files import log_file


def flip_bit(path: Path, random: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    content[random.integers(len(content))] ^= 1 << random.integers(8)
    path.write_bytes(content)


def blank(path: Path, random: np.random.Generator) -> None:
    """Overwrite up to 4 KiB with zeros, as if a page was never written."""
    content = bytearray(path.read_bytes())
    start = int(random.integers(len(content)))
    content[start : start + 4096] = bytes(len(content[start : start + 4096]))
    path.write_bytes(content)


def truncate(path: Path, random: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes()[: random.integers(path.stat().st_size)])


def move_bytes(path: Path, random: np.random.Generator) -> None:
    """Remove bytes from the middle."""
    content = path.read_bytes()
    start, stop = sorted(random.integers(len(content) + 1, size=2))
    path.write_bytes(content[:start] + content[stop:])


def remove(path: Path, _random: np.random.Generator) -> None:
    path.unlink()


def damage_a_segment(folder: Path) -> None:
    """Change a byte in the middle of a store's frames."""
    _change_middle(log_file(folder, "frames"))


def damage_a_block_of_steps(folder: Path) -> None:
    """Change a byte in the middle of a store's steps."""
    _change_middle(log_file(folder, "steps"))


def _change_middle(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)


KINDS = (flip_bit, flip_bit, flip_bit, blank, truncate, move_bytes, remove)


def damage_at_random(folder: Path, random: np.random.Generator) -> list[str]:
    """Damage one to three files of a store; return a description of each."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "LOCK")
    damages = []
    for index in random.choice(len(files), random.integers(1, 4), replace=False):
        kind = KINDS[random.integers(len(KINDS))]
        kind(files[index], random)
        damages.append(f"{kind.__name__} {files[index].name}")
    return damages
