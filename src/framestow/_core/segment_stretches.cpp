#include "segment_stretches.hpp"

#include <string>

#include "checksum.hpp"
#include "segment_header.hpp"

namespace framestow {

std::size_t StretchTable::find(std::size_t wanted) const {
    const std::size_t stretch = count_below(entries, num_stretches, kStretchBytes, wanted);
    return stretch < num_stretches && place(stretch) == wanted ? stretch : num_stretches;
}

// Lead-ins are numbered from 1 on, in the order of the stretches.
std::size_t StretchTable::num_with_lead_ins() const {
    std::size_t last = num_stretches;
    while (last > 0 && lead_ins_of(last - 1) == 0) {
        --last;
    }
    return last > 0 ? lead_ins_of(last - 1) : 0;
}

StretchTable stretch_table(ByteSpan segment) {
    const std::uint64_t frame_bytes = frame_segment_bytes_of(segment.bytes);
    const std::uint64_t num_stretches = load_u32(segment.bytes + 12);
    const std::uint64_t lead_ins_begin = kStretchesHeaderBytes + frame_bytes + num_stretches * kStretchBytes;
    if (lead_ins_begin > segment.size) {
        throw DamagedSegment("segment of " + std::to_string(segment.size) + " bytes cannot hold the " +
                             std::to_string(num_stretches) + " stretches that its header promises");
    }
    const auto begin = static_cast<std::size_t>(lead_ins_begin);
    const std::uint8_t* const frames = segment.bytes + kStretchesHeaderBytes;
    return StretchTable{ByteSpan{frames, static_cast<std::size_t>(frame_bytes)}, frames + frame_bytes,
                        static_cast<std::size_t>(num_stretches), ByteSpan{segment.bytes + begin, segment.size - begin}};
}

void write_stretches_header(std::uint8_t* segment, std::size_t size, std::size_t frame_segment_bytes,
                            std::size_t num_stretches) {
    std::memcpy(segment + 4, kStretchesMark, 4);
    store_u32(segment + 8, static_cast<std::uint32_t>(frame_segment_bytes));
    store_u32(segment + 12, static_cast<std::uint32_t>(num_stretches));
    store_u32(segment, crc32c(ByteSpan{segment + 4, size - 4}));
}

}  // namespace framestow
