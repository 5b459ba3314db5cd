// Applies patches: the inner loop of every sample.
//
// Input: `packed` is read from its begin; at least kReadPadding bytes behind its end must be readable (their values
// never matter). `frame` and `base` are FrameBuffers of this geometry. Returns the bytes of `packed` that the patch
// took. Any bytes at all give some frame or DamagedSegment: no read outside the padded span and no write outside
// the buffer. Thread-safe as long as each thread has its own buffers.
#pragma once

#include "../byte_span.hpp"
#include "frame_buffer.hpp"

namespace framestow {

// Rebuilds a self-coded frame; nothing of `frame` is read before it is written.
std::size_t decode_self_coded(ByteSpan packed, const FrameGeometry& geometry, FrameBuffer& frame);

// Turns `frame` into the patched frame, in place. `base` may not be `frame`.
std::size_t apply_patch(ByteSpan packed, const FrameGeometry& geometry, const FrameBuffer& base, FrameBuffer& frame);

}  // namespace framestow
