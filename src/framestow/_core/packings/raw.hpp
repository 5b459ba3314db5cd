// Packing 0: the frames themselves, one after the other. Chosen where nothing else is smaller.
//
// `unpack_raw` copies frames first .. first + count - 1 to `out` (count * frame_bytes); throws DamagedSegment, before
// anything is written, where the payload has not exactly the frames that the header promises. Thread-safe.
#pragma once

#include "../segment_header.hpp"

namespace framestow {

void unpack_raw(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                std::uint8_t* out);

}  // namespace framestow
