// The encodings of a segment's payload, one row each: what differs between them outside of their own files.
//
// The number of an encoding is its row, and byte 6 of a segment's header. Rows are only ever added. Headers are
// checked, frames unpacked and segments described by this table alone. A writer chooses an encoding in segment.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../bytes.hpp"

namespace framestow {

struct DecodingScratch;
struct SegmentHeader;

enum class Encoding : std::uint8_t { kRaw = 0, kPatches = 1, kPixelPatches = 2, kPlanarPatches = 3 };

// Unpacks frames first .. first + count - 1 of a padded payload into `out` (count * frame_bytes). The header is
// checked; any payload gives some frames or DamagedSegment. Several threads with their own scratch may read one
// payload.
using UnpackFrames = void (*)(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                              DecodingScratch& scratch, std::uint8_t* out);

void unpack_raw(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                DecodingScratch& scratch, std::uint8_t* out);
void unpack_groups(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out);

struct EncodingRow {
    UnpackFrames unpack;      // the frames of a payload
    bool has_groups;          // whether frames are patches of a base frame, in groups, behind a table of groups
    bool is_of_colour;        // whether it needs pixels of 3 bytes, and rows of whole pixels
    bool is_of_planes;        // whether the frames are three planes, (3, H, W)
    bool has_all_bytes;       // whether the payload has exactly the bytes of the frames
    std::size_t least_bytes;  // otherwise: of a frame, so that no header promises more frames than its payload holds
};

inline constexpr std::array<EncodingRow, 4> kEncodings = {{
    {unpack_raw, false, false, false, true, 0},
    {unpack_groups, true, false, false, false, 1},
    {unpack_groups, true, true, false, false, 1},
    {unpack_groups, true, false, true, false, 1},
}};

inline constexpr bool is_encoding(std::uint8_t number) { return number < kEncodings.size(); }

// `encoding` is one of the table, as that of a checked header is.
inline constexpr const EncodingRow& row_of(Encoding encoding) { return kEncodings[static_cast<std::size_t>(encoding)]; }

}  // namespace framestow
