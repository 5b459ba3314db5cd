"""The storages there are, by the name that settings call them."""

from __future__ import annotations

from collections.abc import Callable

from framestow.frames.frame_spec import FrameSpec
from framestow.storage.frame_storage import FrameStorage
from framestow.storage.packed import PackedStorage
from framestow.storage.raw_ring import RawRing

STORAGES: dict[str, Callable[[FrameSpec, int], FrameStorage]] = {"packed": PackedStorage, "raw": RawRing}
