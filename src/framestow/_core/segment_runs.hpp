// Runs that bring their own padding, and the segments in which they begin.
//
// A run is consecutive frames of one environment of which every observation is a stack. A window that begins before its
// run's first frame is padded. Usually the memory's padding does, and nothing is stored. A run may instead begin with
// *lead-ins*, the older frames of its first stack, or with zeros.
//
// A segment in which such runs begin (little-endian): u32 CRC-32C of all following bytes, "run1", u32 bytes of the
// segment of frames, u32 number of runs; the segment of frames, as it is without runs; for each run the place of its
// first frame, u32, ascending, and which lead-ins it has, u32, 0 for zeros, otherwise their number from 1; the segment
// of the lead-ins of all runs, in the same order and oldest first, which is missing if there are none.
//
// Ownership: a table refers to the segment's bytes. Thread-safe; nothing here keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

namespace framestow {

// How a frame continues or begins a run. Segments store only `kZeros` and `kLeadIns`.
enum class RunPadding : std::uint8_t {
    kContinues = 0,  // the run goes on
    kZeros = 1,      // a run begins: zeros come before it
    kLeadIns = 2,    // a run begins: its lead-ins come before it
    kUsual = 3,      // a run begins: the memory's padding comes before it
};

struct RunStart {
    RunPadding padding = RunPadding::kContinues;
    const std::uint8_t* lead_ins = nullptr;  // of kLeadIns, oldest first; belong to the caller

    bool is_stored() const { return padding == RunPadding::kZeros || padding == RunPadding::kLeadIns; }
};

inline constexpr std::size_t kRunsHeaderBytes = 16;
inline constexpr std::size_t kRunBytes = 8;  // of a run in the table
inline constexpr char kRunsMark[] = "run1";

struct RunTable {
    ByteSpan frames;                        // the segment of frames
    const std::uint8_t* entries = nullptr;  // kRunBytes each
    std::size_t num_runs = 0;
    ByteSpan lead_ins;  // their segment; empty without lead-ins

    std::size_t place(std::size_t run) const { return load_u32(entries + run * kRunBytes); }

    // Returns which lead-ins a run has, from 1 on, or 0 for zeros.
    std::size_t lead_ins_of(std::size_t run) const { return load_u32(entries + run * kRunBytes + 4); }

    // Returns the number of runs that have lead-ins.
    std::size_t num_with_lead_ins() const;

    // Returns the run that begins at that place, or num_runs.
    std::size_t find(std::size_t place) const;
};

inline bool has_runs(ByteSpan segment) {
    return segment.size >= kRunsHeaderBytes && std::memcmp(segment.bytes + 4, kRunsMark, 4) == 0;
}

// Returns the segment without its runs. Checks nothing: the bytes behind the frames may be part of it.
inline ByteSpan without_runs(ByteSpan segment) {
    return has_runs(segment) ? ByteSpan{segment.bytes + kRunsHeaderBytes, segment.size - kRunsHeaderBytes} : segment;
}

// Returns the bytes of the segment of frames, as a header of at least kRunsHeaderBytes names them.
inline std::size_t frame_segment_bytes_of(const std::uint8_t* header) { return load_u32(header + 8); }

// Returns the parts of a segment that has_runs(), without checking their contents; throws DamagedSegment if they do not
// fit into it.
RunTable run_table(ByteSpan segment);

// Writes the first kRunsHeaderBytes of a segment whose other bytes are written.
void write_runs_header(std::uint8_t* segment, std::size_t size, std::size_t frame_segment_bytes, std::size_t num_runs);

}  // namespace framestow
