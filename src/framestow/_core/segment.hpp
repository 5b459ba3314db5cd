// A packed segment: consecutive frames of one stream as self-contained bytes, in RAM and on disk.
//
// `SegmentWriter` packs frames as they are appended and chooses the packing when it writes the segment: patches, or raw
// frames if patches would save less than a quarter. Writers and scratch are not thread-safe; readers of one segment are
// independent.
//
// Damaged bytes: `unpack_frames` relies on bounds checks (any bytes give frames or DamagedSegment) and needs a padded
// span. `unpack_segment` accepts any span and verifies the checksum first.
#pragma once

#include <vector>

#include "packings/patches.hpp"

namespace framestow {

// Default lengths for a geometry: long enough that base frame and header weigh little, short enough for an open segment
// of large frames.
std::uint32_t default_frames_per_segment(const FrameGeometry& geometry);
std::uint32_t default_group_frames(const FrameGeometry& geometry);

// Throws std::invalid_argument if a segment may not have that many frames.
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

    // Returns the number of bytes that write_to() writes.
    std::size_t packed_bytes() const;
    void write_to(std::uint8_t* target, DecodingScratch& scratch) const;

    // Unpacks the appended frames first .. first + count - 1.
    void unpack(std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const;

    std::size_t nbytes() const { return patches_.nbytes(); }

private:
    bool is_raw_better() const;
    std::size_t raw_bytes() const;

    FrameGeometry geometry_;
    PatchesWriter patches_;
};

// Unpacks frames first .. first + count - 1 of a padded segment; both must be below the header's num_frames.
void unpack_frames(const SegmentHeader& header, ByteSpan padded_segment, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out);

// Packs `num_frames` contiguous frames.
std::vector<std::uint8_t> pack_segment(const FrameGeometry& geometry, const std::uint8_t* frames,
                                       std::uint32_t num_frames);

// Verifies a segment of any origin and unpacks all its frames into `out` (num_frames * frame_bytes).
void unpack_segment(ByteSpan segment, const FrameGeometry& geometry, std::size_t num_frames, std::uint8_t* out);

// Verifies checksum and header; throws DamagedSegment for the first fault.
SegmentHeader verify_segment(ByteSpan segment);

}  // namespace framestow
