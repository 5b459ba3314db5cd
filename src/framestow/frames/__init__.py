"""One picture and a stack of pictures: shapes, packing, stacking, lazy stacks, preprocessing."""

from framestow.frames.lazy_frames import LazyFrames, LazyFramesBatch

__all__ = ["LazyFrames", "LazyFramesBatch"]
