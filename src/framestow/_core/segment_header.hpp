// The 24 bytes at the start of every packed segment (little-endian; docs/packing.md draws them), and the exceptions for
// damaged bytes.
//
//  0 checksum u32 (CRC-32C of every byte after it) · 4 mark u8 · 5 format version u8 · 6 encoding u8 · 7 zero u8
//  8 num_frames u32 · 12 rows u32 · 16 row_bytes u32 · 20 pixel_bytes u16 · 22 group_frames u16
//
// `read_header` throws DamagedSegment for invalid fields and reads only the header. `verify_checksum` throws it for any
// damaged byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "bytes.hpp"
#include "frame_geometry.hpp"
#include "packings/encodings.hpp"

namespace framestow {

// Bytes that no writer wrote. Every function that interprets packed bytes may throw it, before or after it wrote part
// of its output, but never reads or writes outside the given spans. bindings/module.cpp translates both exceptions into
// framestow.errors.DamagedDataError and DamagedSegmentError.
class DamagedSegment : public std::runtime_error {
public:
    explicit DamagedSegment(const std::string& what) : std::runtime_error(what) {}
};

inline std::string segment_name(std::int64_t env_id, std::int64_t number) {
    return "segment " + std::to_string(number) + " of environment " + std::to_string(env_id);
}

// Names a damaged segment that is stored, so that the caller can skip it.
class DamagedStoredSegment : public DamagedSegment {
public:
    DamagedStoredSegment(const std::string& what, std::int64_t env_id, std::int64_t number)
        : DamagedSegment(what), env_id_(env_id), number_(number) {}

    std::int64_t env_id() const { return env_id_; }
    std::int64_t number() const { return number_; }

private:
    std::int64_t env_id_;
    std::int64_t number_;
};

inline constexpr std::size_t kHeaderBytes = 24;
inline constexpr std::uint8_t kSegmentMark = 0xF5;  // fifth byte of every segment
inline constexpr std::uint8_t kFormatVersion = 1;   // another one is refused
inline constexpr std::uint32_t kMaxSegmentFrames = std::uint32_t{1} << 24;

struct SegmentHeader {
    Encoding encoding = Encoding::kRaw;
    std::uint32_t num_frames = 0;
    std::uint32_t group_frames = 1;  // frames per anchor; 1 in a raw segment
    FrameGeometry geometry;

    std::size_t num_groups() const { return (num_frames + group_frames - 1) / group_frames; }
};

// What a report says of a segment.
struct SegmentCounts {
    std::uint32_t num_exact = 0;  // exact frames among scaled floats, without lead-ins
    std::uint32_t num_whole = 0;  // observations stored whole: stretches with lead-ins
};

SegmentHeader read_header(ByteSpan segment);

// Returns the fields unchecked, also an encoding that no row has; `segment` has at least kHeaderBytes.
SegmentHeader peek_header(ByteSpan segment);

// Writes the header and the checksum over the first kHeaderBytes of `segment`.
void write_header(const SegmentHeader& header, std::uint8_t* segment, std::size_t size);

void verify_checksum(ByteSpan segment);

// Returns the stored checksum, right or wrong, of a segment of at least kHeaderBytes.
inline std::uint32_t checksum_of(ByteSpan segment) { return load_u32(segment.bytes); }

// Returns the payload of a segment of at least kHeaderBytes. Its table is cut off where the segment ends.
inline Payload payload_of(const SegmentHeader& header, ByteSpan segment) {
    const ByteSpan both{segment.bytes + kHeaderBytes, segment.size - kHeaderBytes};
    const std::size_t table_bytes = row_of(header.encoding).has_table ? header.num_groups() * kOffsetBytes : 0;
    const std::size_t taken = std::min(table_bytes, both.size);
    return Payload{ByteSpan{both.bytes, taken}, ByteSpan{both.bytes + taken, both.size - taken}};
}

}  // namespace framestow
