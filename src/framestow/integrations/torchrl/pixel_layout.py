"""How pixels that come, stacks or single frames, and the stacks that are given lie in a memory."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec, observation_spec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import (
    Arrays,
    ObservationLayout,
    equal_rows,
    layouts_of_depth,
)
from framestow.integrations.stacked_observations import Stacks

RGB = 3


@dataclass(frozen=True)
class PixelLayout:
    """What comes is ``taken``, what is sampled is ``given``: the same, or single frames and their stacks."""

    taken: ObservationLayout
    given: ObservationLayout

    @property
    def depth(self) -> int:
        """How many frames a memory stacks."""
        return self.given.depth

    def parts_of(self, observations: Any) -> Arrays:
        """Give a memory's observations as stacks ``(n, depth, *frame)`` of each key."""
        spec = self.given.spec
        return spec.flattened(observations) if isinstance(spec, ObservationSpec) else [observations]

    def are_moved_on(self, seen: Arrays, seen_next: Arrays) -> bool:
        """Whether every next stack is its stack moved on by a frame; of single frames it is what stacking makes it."""
        if self.taken.depth == 1:
            return True
        return all(
            bool(equal_rows(now[:, 1:], after[:, :-1]).all()) for now, after in zip(seen, seen_next, strict=True)
        )


def layouts_that_may_be(space: Any, frame_stack: int | None, padding: StackPadding, dim: int) -> list[PixelLayout]:
    """Give the layouts to try, the most frugal first; the last fits whatever comes.

    ``frame_stack``: how many single frames to stack along ``dim``; ``None`` where what comes is given back as it is.
    """
    spec = observation_spec(space)
    whole = ObservationLayout.of_depth(spec, 1)
    if frame_stack is not None:
        stacks = tuple(_stacks_of_frames(leaf.shape, frame_stack, dim) for leaf in spec.leaf_frames)
        return [PixelLayout(whole, ObservationLayout(spec, frame_stack, padding, stacks))]
    layouts = []
    for depth in _depths_that_may_be(spec):
        with suppress(InvalidSettingsError):  # another key is no stack of as many
            layouts += layouts_of_depth(spec, depth)
    return [PixelLayout(layout, layout) for layout in [*layouts, whole]]


def spec_of_frames(frames: npt.NDArray[Any]) -> FrameSpec:
    """Tell a frame's spec from the first ones that came, ``(n, *frame)``; floats from 0 to 1 are scaled pixels."""
    is_scaled = frames.dtype.kind == "f" and bool(((frames >= 0) & (frames <= 1)).all())
    return FrameSpec(frames.shape[1:], frames.dtype, is_scaled)


def _depths_that_may_be(spec: AnySpec) -> list[int]:
    """Depths of grey and of RGB stacks, by the channels of the pictures of three axes or more, the deepest first."""
    depths = set()
    for shape in (leaf.shape for leaf in spec.leaf_frames if len(leaf.shape) > 2):
        channels = shape[0] if len(shape) > 3 or shape[0] <= shape[-1] else shape[-1]
        depths |= {channels, channels // RGB} if channels % RGB == 0 else {channels}
    return sorted(depths - {1}, reverse=True)


def _stacks_of_frames(shape: tuple[int, ...], depth: int, dim: int) -> Stacks:
    """How frames of ``shape`` are concatenated along ``dim``, as ``CatFrames`` does; grey ones without channel too."""
    if depth < 1:
        raise InvalidSettingsError(f"frame_stack is {depth}: a stack has at least 1 frame; leave it out to stack none")
    if len(shape) == 2 and dim == -3:
        return Stacks(0, depth)
    if dim not in (-1, -len(shape)):
        raise InvalidSettingsError(
            f"dim is {dim}: frames of shape {shape} are stacked along their first axis, {-len(shape)}, or their last, "
            "-1; give the axis of the channels"
        )
    axis = -1 if dim == -1 else 0
    return Stacks(axis, depth, shape[axis])
