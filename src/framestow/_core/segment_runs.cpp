#include "segment_runs.hpp"

#include <string>

#include "checksum.hpp"
#include "segment_header.hpp"

namespace framestow {

std::size_t RunTable::find(std::size_t wanted) const {
    const std::size_t run = count_below(entries, num_runs, kRunBytes, wanted);
    return run < num_runs && place(run) == wanted ? run : num_runs;
}

// Lead-ins are numbered from 1 on, in the order of the runs.
std::size_t RunTable::num_with_lead_ins() const {
    std::size_t last = num_runs;
    while (last > 0 && lead_ins_of(last - 1) == 0) {
        --last;
    }
    return last > 0 ? lead_ins_of(last - 1) : 0;
}

RunTable run_table(ByteSpan segment) {
    const std::uint64_t frame_bytes = frame_segment_bytes_of(segment.bytes);
    const std::uint64_t num_runs = load_u32(segment.bytes + 12);
    const std::uint64_t lead_ins_begin = kRunsHeaderBytes + frame_bytes + num_runs * kRunBytes;
    if (lead_ins_begin > segment.size) {
        throw DamagedSegment("segment of " + std::to_string(segment.size) + " bytes cannot hold the " +
                             std::to_string(num_runs) + " runs that its header promises");
    }
    const auto begin = static_cast<std::size_t>(lead_ins_begin);
    const std::uint8_t* const frames = segment.bytes + kRunsHeaderBytes;
    return RunTable{ByteSpan{frames, static_cast<std::size_t>(frame_bytes)}, frames + frame_bytes,
                    static_cast<std::size_t>(num_runs), ByteSpan{segment.bytes + begin, segment.size - begin}};
}

void write_runs_header(std::uint8_t* segment, std::size_t size, std::size_t frame_segment_bytes, std::size_t num_runs) {
    std::memcpy(segment + 4, kRunsMark, 4);
    store_u32(segment + 8, static_cast<std::uint32_t>(frame_segment_bytes));
    store_u32(segment + 12, static_cast<std::uint32_t>(num_runs));
    store_u32(segment, crc32c(ByteSpan{segment + 4, size - 4}));
}

}  // namespace framestow
