"""Create the storage that fits a spec of frames and a memory's settings."""

from __future__ import annotations

from collections.abc import Callable

from framestow.argument_checks import whole_number
from framestow.frames.codec import SegmentCodec
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec
from framestow.storage.frame_storage import FrameStorage
from framestow.storage.keyed_storage import KeyedStorage
from framestow.storage.packed import PackedStorage
from framestow.storage.raw_ring import RawRing
from framestow.storage.scaled_pixels import ScaledPixels

# Arguments: spec, num_streams, threads, frames_per_segment, step_bytes; see make_storage.
MakeStorage = Callable[[FrameSpec, int, int, "int | None", int], FrameStorage]

SEGMENT_RULE = "a segment must have at least 1 frame"

STORAGES: dict[str, MakeStorage] = {
    "packed": PackedStorage,
    "raw": lambda spec, num_streams, _threads, frames, step: RawRing(spec, num_streams, frames, step),
}


def usual_frames_per_segment(spec: AnySpec) -> int:
    """Return the default number of frames per segment for ``spec``: the one that compresses best.

    For several arrays, it is the one for the largest array, which takes nearly all bytes.
    """
    if isinstance(spec, ObservationSpec):
        return usual_frames_per_segment(max(spec.leaf_frames, key=lambda frame: frame.nbytes))
    return SegmentCodec(FrameSpec(spec.shape) if spec.is_scaled else spec).frames_per_segment


def make_storage(
    name: str,
    spec: AnySpec,
    num_streams: int,
    threads: int = 1,
    frames_per_segment: int | None = None,
    step_bytes: int = 0,
) -> FrameStorage:
    """Return a new storage for frames of ``spec``.

    Arguments:
        name: a key of ``STORAGES``.
        spec: shape and dtype of the frames.
        num_streams: number of streams.
        threads: most threads that unpack the windows of one call.
        frames_per_segment: frames that are stored and evicted together; by default the number that compresses best.
        step_bytes: bytes of each frame's step in the timeline, for ``charged_bytes``.

    =====================================  ==================================================================
    frames                                 storage
    =====================================  ==================================================================
    vectors of numbers (``is_column``)     ``RawRing``, whatever the name, since they do not compress
    floats in 0 to 1 (``is_scaled``)       ``ScaledPixels``: ``uint8`` in the named storage, other floats exact
    all others                             the named storage, by their bytes
    several arrays (``ObservationSpec``)   ``KeyedStorage``: each array as above, with segments of one length
    =====================================  ==================================================================
    """

    def make(spec: FrameSpec, num_streams: int) -> FrameStorage:
        return STORAGES[name](spec, num_streams, threads, frames_per_segment, step_bytes)

    if frames_per_segment is not None:
        frames_per_segment = whole_number("frames_per_segment", frames_per_segment, 1, rule=SEGMENT_RULE)
    if isinstance(spec, ObservationSpec):
        length = usual_frames_per_segment(spec) if frames_per_segment is None else frames_per_segment
        # The first leaf alone is charged for the step.
        charges = [step_bytes] + [0] * (len(spec.leaves) - 1)
        leaves = zip(spec.leaf_frames, charges, strict=True)
        made = [make_storage(name, frame, num_streams, threads, length, charge) for frame, charge in leaves]
        return KeyedStorage(spec, made, num_streams)
    if spec.is_column:
        return RawRing(spec, num_streams, frames_per_segment, step_bytes)
    return ScaledPixels(make, spec, num_streams) if spec.is_scaled else make(spec, num_streams)
