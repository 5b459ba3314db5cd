"""The native layer: packs and unpacks frames, stacks them, and stores steps and priorities, in C++.

Native code raises ``framestow.errors.DamagedDataError`` directly.
"""

from framestow._core._native import (
    ABI_VERSION,
    BEGINS_EPISODE,
    BORDER,
    TAKEN,
    TERMINATED,
    TRUNCATED,
    Core,
    FrameSnapshot,
    FrameStore,
    OutputPool,
    PaletteScreen,
    Planner,
    Priorities,
    StepBlocks,
    StepFieldReader,
    StepRing,
    StepStore,
    WriterPlanner,
    are_priorities,
    checksum,
    default_frames_per_segment,
    draw_uniformly,
    join_frames,
    pack_segment,
    set_leak_warnings,
    shrinks_by_area,
    unpack_segment,
    verify_segment,
    write_pixel_floats,
)
from framestow._core.resolved_steps import StepFields, Windows

EXPECTED_ABI_VERSION = 21  # equals kAbiVersion in bindings/module.cpp; both grow with every change of the native calls

if ABI_VERSION != EXPECTED_ABI_VERSION:
    raise ImportError(
        f"framestow._core._native has ABI version {ABI_VERSION}: this package needs {EXPECTED_ABI_VERSION}; "
        "reinstall framestow so that both come from one version"
    )

__all__ = [
    "BEGINS_EPISODE",
    "BORDER",
    "TAKEN",
    "TERMINATED",
    "TRUNCATED",
    "Core",
    "FrameSnapshot",
    "FrameStore",
    "OutputPool",
    "PaletteScreen",
    "Planner",
    "Priorities",
    "StepBlocks",
    "StepFieldReader",
    "StepFields",
    "StepRing",
    "StepStore",
    "Windows",
    "WriterPlanner",
    "are_priorities",
    "checksum",
    "default_frames_per_segment",
    "draw_uniformly",
    "join_frames",
    "pack_segment",
    "set_leak_warnings",
    "shrinks_by_area",
    "unpack_segment",
    "verify_segment",
    "write_pixel_floats",
]
