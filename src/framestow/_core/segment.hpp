// A packed segment: consecutive frames of one stream as bytes that stand alone, in RAM and on disk.
//
// `SegmentWriter` packs frames as they come and picks the packing when the segment is written out: patches, or raw
// where they would save less than a quarter. Frames are frame_bytes each, only read. Neither writer nor scratch is
// thread-safe; readers of one segment are independent.
//
// Damaged bytes: `unpack_frames` relies on bounds checks alone (any bytes give frames or DamagedSegment) and wants a
// padded span; `unpack_segment` takes any span and verifies the checksum first.
#pragma once

#include <vector>

#include "packings/patches.hpp"

namespace framestow {

// Segment lengths that serve a geometry: long enough for the base frame and the header to weigh little, short enough
// for an open segment of large frames.
std::uint32_t default_frames_per_segment(const FrameGeometry& geometry);
std::uint32_t default_group_frames(const FrameGeometry& geometry);

// Throws std::invalid_argument where a segment may not be that long.
void check_segment_frames(const FrameGeometry& geometry, std::uint64_t num_frames);

class SegmentWriter {
public:
    explicit SegmentWriter(const FrameGeometry& geometry)
        : geometry_(geometry), patches_(geometry, default_group_frames(geometry)) {}

    void begin(const std::uint8_t* base) { patches_.begin(base); }
    void append(const std::uint8_t* frame, PatchEncoder& encoder) { patches_.append(frame, encoder); }
    void finish(SharedOperations& shared_operations) { patches_.finish(shared_operations); }
    void clear() { patches_.clear(); }
    std::uint32_t num_frames() const { return patches_.num_frames(); }

    // Bytes that write_to() writes.
    std::size_t packed_bytes() const;
    void write_to(std::uint8_t* target, DecodingScratch& scratch) const;

    // Frames first .. first + count - 1 of what was appended so far.
    void unpack(std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const;

    std::size_t nbytes() const { return patches_.nbytes(); }

private:
    bool is_raw_better() const;
    std::size_t raw_bytes() const;

    FrameGeometry geometry_;
    PatchesWriter patches_;
};

// Frames first .. first + count - 1 (both within the header's num_frames) of a padded segment.
void unpack_frames(const SegmentHeader& header, ByteSpan padded_segment, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out);

// The segment of `num_frames` frames that lie one after the other.
std::vector<std::uint8_t> pack_segment(const FrameGeometry& geometry, const std::uint8_t* frames,
                                       std::uint32_t num_frames);

// Every frame of a segment of any origin; `out` has room for `num_frames` frames of `geometry`.
void unpack_segment(ByteSpan segment, const FrameGeometry& geometry, std::size_t num_frames, std::uint8_t* out);

// Checksum and header; throws DamagedSegment for the first thing that is wrong.
SegmentHeader verify_segment(ByteSpan segment);

}  // namespace framestow
