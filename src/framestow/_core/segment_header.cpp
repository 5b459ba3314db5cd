#include "segment_header.hpp"

#include <string>

#include "checksum.hpp"

namespace framestow {
namespace {

constexpr std::size_t kChecksumBytes = 4;

ByteSpan checked_part(ByteSpan segment) {
    return ByteSpan{segment.bytes + kChecksumBytes, segment.size - kChecksumBytes};
}

// A header may not promise more frames than its payload can hold, so no caller allocates memory for them.
void check_size(const SegmentHeader& header, std::uint64_t payload_bytes) {
    const std::uint64_t num_frames = header.num_frames;
    const EncodingRow& row = row_of(header.encoding);
    const bool fits = row.has_all_bytes ? payload_bytes == num_frames * header.geometry.frame_bytes()
                                        : payload_bytes >= num_frames * row.least_bytes;
    if (!fits) {
        throw DamagedSegment("segment of " + std::to_string(payload_bytes + kHeaderBytes) + " bytes cannot hold the " +
                             std::to_string(num_frames) + " frames of " + header.geometry.text() +
                             " that its header promises");
    }
}

}  // namespace

SegmentHeader peek_header(ByteSpan segment) {
    const std::uint8_t* const bytes = segment.bytes;
    SegmentHeader header;
    header.encoding = static_cast<Encoding>(bytes[6]);
    header.num_frames = load_u32(bytes + 8);
    header.geometry = FrameGeometry{load_u32(bytes + 12), load_u32(bytes + 16), load_u16(bytes + 20)};
    header.geometry.channels_first = is_encoding(bytes[6]) && row_of(header.encoding).is_of_planes;
    header.group_frames = load_u16(bytes + 22);
    return header;
}

SegmentHeader read_header(ByteSpan segment) {
    if (segment.size < kHeaderBytes) {
        throw DamagedSegment("segment has " + std::to_string(segment.size) + " bytes: a header alone has 24");
    }
    const std::uint8_t* bytes = segment.bytes;
    if (bytes[4] != kSegmentMark || bytes[7] != 0) {
        throw DamagedSegment("segment does not begin with the mark of a packed segment");
    }
    if (bytes[5] != kFormatVersion) {
        throw DamagedSegment("segment has format version " + std::to_string(bytes[5]) + ": this build reads version 1");
    }
    if (!is_encoding(bytes[6])) {
        throw DamagedSegment("segment has encoding " + std::to_string(bytes[6]) + ": this build knows 0 to " +
                             std::to_string(kEncodings.size() - 1));
    }
    const SegmentHeader header = peek_header(segment);
    const std::string fault = geometry_fault(header.geometry);
    if (!fault.empty()) {
        throw DamagedSegment("segment header: " + fault);
    }
    if (row_of(header.encoding).is_of_colour && !header.geometry.is_colour()) {
        throw DamagedSegment("segment header: encoding " + std::to_string(bytes[6]) +
                             " needs pixels of 3 bytes and rows of whole pixels, not " + header.geometry.text());
    }
    if (header.num_frames == 0 || header.num_frames > kMaxSegmentFrames || header.group_frames == 0) {
        throw DamagedSegment("segment header: num_frames must be 1 to 2**24 and group_frames at least 1");
    }
    check_size(header, segment.size - kHeaderBytes);
    return header;
}

void write_header(const SegmentHeader& header, std::uint8_t* segment, std::size_t size) {
    segment[4] = kSegmentMark;
    segment[5] = kFormatVersion;
    segment[6] = static_cast<std::uint8_t>(header.encoding);
    segment[7] = 0;
    store_u32(segment + 8, header.num_frames);
    store_u32(segment + 12, header.geometry.rows);
    store_u32(segment + 16, header.geometry.row_bytes);
    store_u16(segment + 20, header.geometry.pixel_bytes);
    store_u16(segment + 22, header.group_frames);
    store_u32(segment, crc32c(checked_part(ByteSpan{segment, size})));
}

void verify_checksum(ByteSpan segment) {
    if (segment.size < kHeaderBytes) {
        throw DamagedSegment("segment has " + std::to_string(segment.size) + " bytes: a header alone has 24");
    }
    if (load_u32(segment.bytes) != crc32c(checked_part(segment))) {
        throw DamagedSegment("segment of " + std::to_string(segment.size) +
                             " bytes does not match its checksum: bytes were changed or cut off");
    }
}

}  // namespace framestow
