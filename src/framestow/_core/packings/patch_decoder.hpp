// Applies patches: the inner loop of every sample.
//
// Input: `body` is the body of a segment, `place` where in it the patch begins; at least kReadPadding bytes behind the
// body must be readable (their values never matter). `frame` and `base` are FrameBuffers of this geometry. Returns the
// place behind the patch. Any bytes at all give some frame or DamagedSegment: no read outside the padded body and no
// write outside the buffer. Thread-safe as long as each thread has its own buffers.
#pragma once

#include "../byte_span.hpp"
#include "frame_buffer.hpp"

namespace framestow {

// Rebuilds a self-coded frame; nothing of `frame` is read before it is written.
std::size_t decode_self_coded(ByteSpan body, std::size_t place, const FrameGeometry& geometry, FrameBuffer& frame);

// Turns `frame` into the patched frame, in place. `base` may not be `frame`.
std::size_t apply_patch(ByteSpan body, std::size_t place, const FrameGeometry& geometry, const FrameBuffer& base,
                        FrameBuffer& frame);

}  // namespace framestow
