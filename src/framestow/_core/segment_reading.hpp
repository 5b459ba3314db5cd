// A segment that lies in a file, as bytes in RAM that were verified.
#pragma once

#include <cstdint>
#include <vector>

#include "byte_span.hpp"
#include "segment_place.hpp"

namespace framestow {

// Room for one segment and for what decoders may load behind it.
using SegmentBuffer = std::vector<std::uint8_t>;

// Reads into `buffer` and verifies: the checksum is that of the bytes, and the one that is known. What is returned is
// padded, and stays until the buffer is used again. Throws DamagedSegment.
ByteSpan read_segment(const FilePlace& place, SegmentBuffer& buffer);

}  // namespace framestow
