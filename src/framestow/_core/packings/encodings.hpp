// The encodings of a segment's payload, one row each: what differs between them outside of their own files.
//
// The number of an encoding is its row, and byte 6 of a segment's header. Rows are only ever added. Headers are
// checked, frames unpacked and segments described by this table alone. What packs the frames is a PayloadWriter;
// SegmentWriter chooses one in its constructor. raw_frames.hpp has the smallest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "../bytes.hpp"

namespace framestow {

struct DecodingScratch;
struct SegmentHeader;

inline constexpr std::size_t kOffsetBytes = 4;  // of a table's entry

// The bytes behind a header: a table with an entry for each group, if the encoding has one, and the body. In a segment
// one stands behind the other, in a writer each grows by itself. The body is padded (kReadPadding).
struct Payload {
    ByteSpan table;
    ByteSpan body;

    std::size_t size() const { return table.size + body.size; }
};

enum class Encoding : std::uint8_t { kRaw = 0, kPatches = 1, kPixelPatches = 2, kPlanarPatches = 3 };

// Unpacks frames first .. first + count - 1 of a payload into `out` (count * frame_bytes). The header is checked; any
// payload, also one that ends within its table, gives some frames or DamagedSegment. Several threads with their own
// scratch may read one payload.
using UnpackFrames = void (*)(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                              DecodingScratch& scratch, std::uint8_t* out);

void unpack_raw(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                DecodingScratch& scratch, std::uint8_t* out);
void unpack_patches(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out);

struct EncodingRow {
    UnpackFrames unpack;      // the frames of a payload
    bool has_table;           // whether the payload begins with a table: kOffsetBytes for each group
    bool has_base;            // whether frames are patches of a base frame, in groups
    bool is_of_colour;        // whether it needs pixels of 3 bytes, and rows of whole pixels
    bool is_of_planes;        // whether the frames are three planes, (3, H, W)
    bool has_all_bytes;       // whether the payload has exactly the bytes of the frames
    std::size_t least_bytes;  // otherwise: of a frame, so that no header promises more frames than its payload holds
};

inline constexpr std::array<EncodingRow, 4> kEncodings = {{
    {unpack_raw, false, false, false, false, true, 0},
    {unpack_patches, true, true, false, false, false, 1},
    {unpack_patches, true, true, true, false, false, 1},
    {unpack_patches, true, true, false, true, false, 1},
}};

inline constexpr bool is_encoding(std::uint8_t number) { return number < kEncodings.size(); }

// `encoding` is one of the table, as that of a checked header is.
inline constexpr const EncodingRow& row_of(Encoding encoding) { return kEncodings[static_cast<std::size_t>(encoding)]; }

// Packs the frames of an open segment as they are appended. Its encoding's row unpacks them, as those of a sealed
// segment. Not thread-safe; several threads may read an idle one.
class PayloadWriter {
public:
    virtual ~PayloadWriter() = default;

    // Before the first frame: sets a base frame, with planes joined; encodings without one ignore it.
    virtual void begin(const std::uint8_t* /*base*/) {}

    // Before the first frame: says where the payload will stand. Only raw frames are written there at once.
    virtual void begin_in_place(std::uint8_t* /*payload*/) {}

    virtual void append(const std::uint8_t* frame) = 0;
    virtual void copy_last_frame(std::uint8_t* out) const = 0;

    // Rearranges the payload for quick reading. Only clear() may follow, no append.
    virtual void finish() {}

    // Removes all frames and frees the memory of a large segment, so nbytes() counts the next segment alone.
    virtual void clear() = 0;

    virtual SegmentHeader header() const = 0;
    virtual Payload payload() const = 0;     // of the frames so far; valid until the next one
    virtual std::size_t nbytes() const = 0;  // that it holds, without itself
};

}  // namespace framestow
