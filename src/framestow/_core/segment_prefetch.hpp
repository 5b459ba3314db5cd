// Asks memory for what a window will read of a sealed segment, so that it answers while other windows are unpacked.
//
// In two steps, for the second one has to read what the first one asked for. Hints only: any bytes are safe, nothing is
// written, nothing is thrown. `first` and `count` are frames within the segment. Thread-safe.
#pragma once

#include "byte_span.hpp"
#include "frame_geometry.hpp"

namespace framestow {

// The header, and where in the group table the first frame's group stands.
void prefetch_directory(ByteSpan segment, const FrameGeometry& geometry, std::size_t first);

// The base frame, the operations shared by many frames, and the groups of the frames.
void prefetch_frames(ByteSpan segment, std::size_t first, std::size_t count);

}  // namespace framestow
