// Stretches that bring their own padding, and the segments in which they begin.
//
// A stretch is consecutive frames of one environment of which every observation is a stack. A window that begins before
// its stretch's first frame is padded. Usually the memory's padding does, and nothing is stored. A stretch may instead
// begin with *lead-ins*, the older frames of its first stack, or with zeros.
//
// A segment in which such stretches begin (little-endian): u32 CRC-32C of all following bytes, "run1", u32 bytes of the
// segment of frames, u32 number of stretches; the segment of frames, as it is without stretches; for each stretch the
// place of its first frame, u32, ascending, and which lead-ins it has, u32, 0 for zeros, otherwise their number from 1;
// the segment of the lead-ins of all stretches, in the same order and oldest first, which is missing if there are none.
//
// Ownership: a table refers to the segment's bytes. Thread-safe; nothing here keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

namespace framestow {

// How a frame continues or begins a stretch. Segments store only `kZeros` and `kLeadIns`.
enum class StretchPadding : std::uint8_t {
    kContinues = 0,  // the stretch goes on
    kZeros = 1,      // a stretch begins: zeros come before it
    kLeadIns = 2,    // a stretch begins: its lead-ins come before it
    kUsual = 3,      // a stretch begins: the memory's padding comes before it
};

struct StretchStart {
    StretchPadding padding = StretchPadding::kContinues;
    const std::uint8_t* lead_ins = nullptr;  // of kLeadIns, oldest first; belong to the caller

    bool is_stored() const { return padding == StretchPadding::kZeros || padding == StretchPadding::kLeadIns; }
};

inline constexpr std::size_t kStretchesHeaderBytes = 16;
inline constexpr std::size_t kStretchBytes = 8;  // of a stretch in the table
inline constexpr char kStretchesMark[] = "run1";

struct StretchTable {
    ByteSpan frames;                        // the segment of frames
    const std::uint8_t* entries = nullptr;  // kStretchBytes each
    std::size_t num_stretches = 0;
    ByteSpan lead_ins;  // their segment; empty without lead-ins

    std::size_t place(std::size_t stretch) const { return load_u32(entries + stretch * kStretchBytes); }

    // Returns which lead-ins a stretch has, from 1 on, or 0 for zeros.
    std::size_t lead_ins_of(std::size_t stretch) const { return load_u32(entries + stretch * kStretchBytes + 4); }

    // Returns the number of stretches that have lead-ins.
    std::size_t num_with_lead_ins() const;

    // Returns the stretch that begins at that place, or num_stretches.
    std::size_t find(std::size_t place) const;
};

inline bool has_stretches(ByteSpan segment) {
    return segment.size >= kStretchesHeaderBytes && std::memcmp(segment.bytes + 4, kStretchesMark, 4) == 0;
}

// Returns the segment without its stretches. Checks nothing: the bytes behind the frames may be part of it.
inline ByteSpan without_stretches(ByteSpan segment) {
    return has_stretches(segment)
               ? ByteSpan{segment.bytes + kStretchesHeaderBytes, segment.size - kStretchesHeaderBytes}
               : segment;
}

// Returns the bytes of the segment of frames, as a header of at least kStretchesHeaderBytes names them.
inline std::size_t frame_segment_bytes_of(const std::uint8_t* header) { return load_u32(header + 8); }

// Returns the parts of a segment that has_stretches(), without checking their contents; throws DamagedSegment if they
// do not fit into it.
StretchTable stretch_table(ByteSpan segment);

// Writes the first kStretchesHeaderBytes of a segment whose other bytes are written.
void write_stretches_header(std::uint8_t* segment, std::size_t size, std::size_t frame_segment_bytes,
                            std::size_t num_stretches);

}  // namespace framestow
