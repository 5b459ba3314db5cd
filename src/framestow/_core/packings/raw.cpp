#include "raw.hpp"

#include <cstring>

#include "../damaged_segment.hpp"

namespace framestow {

void unpack_raw(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                std::uint8_t* out) {
    const std::size_t frame_bytes = header.geometry.frame_bytes();
    if (payload.size != static_cast<std::uint64_t>(header.num_frames) * frame_bytes) {
        throw DamagedSegment("raw segment does not hold the frames that its header promises");
    }
    std::memcpy(out, payload.bytes + first * frame_bytes, count * frame_bytes);
}

}  // namespace framestow
