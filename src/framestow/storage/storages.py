"""The storages there are, by the name that settings call them, and which one keeps what."""

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

# What makes a storage of some streams: threads that may unpack what one call asks for, frames of a segment, and bytes
# that the step of each frame takes elsewhere.
MakeStorage = Callable[[FrameSpec, int, int, "int | None", int], FrameStorage]

SEGMENT_RULE = "a segment has at least 1 frame"

STORAGES: dict[str, MakeStorage] = {
    "packed": PackedStorage,
    "raw": lambda spec, num_streams, _threads, frames, step: RawRing(spec, num_streams, frames, step),  # is not packed
}


def usual_frames_per_segment(spec: AnySpec) -> int:
    """How many frames of ``spec`` lie and leave together where nobody says otherwise: what packs best.

    Of several arrays, what packs the largest one best: it takes nearly all of the bytes.
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
    """Make the storage that ``name``, a key of ``STORAGES``, means for frames of ``spec``.

    Up to ``threads`` threads unpack what one call asks for. ``frames_per_segment``: frames that lie and leave together;
    what packs best by default. ``step_bytes``: what the step of each frame takes elsewhere, for ``charged_bytes``.

    =====================================  =======================================================================
    frames                                 kept in
    =====================================  =======================================================================
    vectors of numbers (``is_column``)     ``RawRing``, whatever the name: they would not shrink
    floats in 0 to 1 (``is_scaled``)       the named storage as ``uint8``; those that are not k / 255 beside, exact
    all others                             the named storage, by their bytes
    several arrays (``ObservationSpec``)   ``KeyedStorage``: each of them as above, in segments of one length
    =====================================  =======================================================================
    """

    def make(spec: FrameSpec, num_streams: int) -> FrameStorage:
        return STORAGES[name](spec, num_streams, threads, frames_per_segment, step_bytes)

    if frames_per_segment is not None:
        frames_per_segment = whole_number("frames_per_segment", frames_per_segment, 1, rule=SEGMENT_RULE)
    if isinstance(spec, ObservationSpec):
        length = usual_frames_per_segment(spec) if frames_per_segment is None else frames_per_segment
        # What the step takes elsewhere is charged once, with the first leaf.
        charges = [step_bytes] + [0] * (len(spec.leaves) - 1)
        leaves = zip(spec.leaf_frames, charges, strict=True)
        made = [make_storage(name, frame, num_streams, threads, length, charge) for frame, charge in leaves]
        return KeyedStorage(spec, made, num_streams)
    if spec.is_column:
        return RawRing(spec, num_streams, frames_per_segment, step_bytes)
    return ScaledPixels(make, spec, num_streams) if spec.is_scaled else make(spec, num_streams)
