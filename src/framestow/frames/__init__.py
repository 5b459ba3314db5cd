"""Describe, compress, stack and preprocess frames."""

from framestow.frames.lazy_frames import LazyFrames, LazyFramesBatch

__all__ = ["LazyFrames", "LazyFramesBatch"]
