"""The storages there are, by the name that settings call them, and which one keeps what."""

from __future__ import annotations

from collections.abc import Callable

from framestow.frames.frame_spec import FrameSpec
from framestow.storage.frame_storage import FrameStorage
from framestow.storage.packed import PackedStorage
from framestow.storage.raw_ring import RawRing
from framestow.storage.scaled_pixels import ScaledPixels

# What makes a storage of some streams; so many threads may unpack what one call asks for.
MakeStorage = Callable[[FrameSpec, int, int], FrameStorage]

STORAGES: dict[str, MakeStorage] = {
    "packed": PackedStorage,
    "raw": lambda spec, num_streams, _threads: RawRing(spec, num_streams),  # which has nothing to unpack
}


def make_storage(name: str, spec: FrameSpec, num_streams: int, threads: int = 1) -> FrameStorage:
    """Make the storage that ``name``, a key of ``STORAGES``, means for frames of ``spec``.

    Up to ``threads`` threads unpack what one call asks for.

    =====================================  =======================================================================
    frames                                 kept in
    =====================================  =======================================================================
    vectors of numbers (``is_column``)     ``RawRing``, whatever the name: they would not shrink
    floats in 0 to 1 (``is_scaled``)       the named storage as ``uint8``; those that are not k / 255 beside, exact
    all others                             the named storage, by their bytes
    =====================================  =======================================================================
    """

    def make(spec: FrameSpec, num_streams: int) -> FrameStorage:
        return STORAGES[name](spec, num_streams, threads)

    if spec.is_column:
        return RawRing(spec, num_streams)
    return ScaledPixels(make, spec, num_streams) if spec.is_scaled else make(spec, num_streams)
