// A segment: consecutive frames of one environment as self-contained bytes, in RAM and on disk, and the paddings of the
// stretches that begin in it, if they bring their own (segment_stretches.hpp).
//
// `SegmentWriter` takes frames as they are appended. It packs them as patches, and writes raw frames instead if patches
// would save less than a quarter; or it writes raw frames at once, in place. What it has so far and what stands in a
// segment are both a `SegmentView`, so one reader serves both. Writers and scratch are not thread-safe; readers of one
// segment are independent.
//
// Damaged bytes: `unpack_frames` relies on bounds checks (any bytes give frames or DamagedSegment) and needs a padded
// span. `unpack_segment` accepts any span and verifies the checksum first.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "packings/patches.hpp"
#include "scaled_frames.hpp"
#include "segment_stretches.hpp"

namespace framestow {

// Default lengths for a geometry: long enough that base frame and header weigh little, short enough for an open segment
// of large frames.
std::uint32_t default_frames_per_segment(const FrameGeometry& geometry);
std::uint32_t default_group_frames(const FrameGeometry& geometry);

// Throws std::invalid_argument if a segment may not have that many frames.
void check_segment_frames(const FrameGeometry& geometry, std::uint64_t num_frames);
void check_segment_frames(const FrameFormat& format, std::uint64_t num_frames);  // also if each begins a stretch

// The scratch of appending, shared by all writers of a store.
class FrameEncoder {
public:
    explicit FrameEncoder(const FrameFormat& format);
    FrameEncoder(const FrameEncoder&) = delete;
    FrameEncoder& operator=(const FrameEncoder&) = delete;

    PatchEncoder& pixels();
    PatchEncoder& floats();
    std::uint8_t* converted() { return converted_.data(); }  // one frame of pixels
    std::size_t nbytes() const;

private:
    FrameFormat format_;
    std::optional<PatchEncoder> pixels_;   // from the first writer of patches on
    std::optional<PatchEncoder> floats_;   // from the first exact frame on
    std::vector<std::uint8_t> converted_;  // one frame of pixels, made of floats; empty unless frames are scaled
};

class SegmentWriter;

// A parsed segment of a store, or the frames that a writer has so far.
struct SegmentView {
    SegmentHeader header;                          // of the pixels, if frames are scaled floats
    Payload payload;                               // likewise
    ExactPlaces exact{};                           // of scaled floats
    SegmentHeader exact_header{};                  // of the exact frames, if there are any
    Payload exact_payload{};                       // likewise
    StretchTable stretches{};                      // empty without stretches whose padding is stored
    const SegmentWriter* open_lead_ins = nullptr;  // of a writer; otherwise they are a segment, stretches.lead_ins
};

class SegmentWriter {
public:
    // Chooses how the frames are packed. The encoder must outlive it.
    SegmentWriter(const FrameFormat& format, FrameEncoder& encoder);

    // Sets another base frame than the first one, with planes joined.
    void begin(const std::uint8_t* base) { pixels_->begin(base); }

    // Writes the raw frames into that segment, which has raw_segment_bytes(). Raw writers need it before any frame.
    void begin_raw(std::uint8_t* segment);

    // Says that the next frame begins a stretch whose padding is stored, by a copy of its lead-ins. Does nothing if the
    // format has none.
    void begin_stretch(const StretchStart& start);

    // Appends a frame of format.frame_bytes().
    void append(const std::uint8_t* frame);
    void finish();
    void clear();
    std::uint32_t num_frames() const { return num_frames_; }
    bool has_exact() const { return exact_ != nullptr; }
    bool has_stretches() const { return stretches_ != nullptr; }
    SegmentCounts counts() const;

    // Returns the number of bytes that write_to() writes.
    std::size_t packed_bytes() const;

    // Writes the segment; a raw one may be written to where its frames are.
    void write_to(std::uint8_t* target, DecodingScratch& scratch) const;

    // Returns the frames so far, valid until the next one.
    SegmentView view() const;

    // Returns the bytes that it holds, without itself and the writer of its pixels.
    std::size_t nbytes() const;
    static constexpr std::size_t kPixelWriterBytes = sizeof(PatchesWriter);  // at most

private:
    struct ExactFrames {
        ExactFrames(const FrameGeometry& floats, PatchEncoder& encoder)
            : frames(floats, default_group_frames(floats), encoder) {}
        std::vector<std::uint8_t> places;  // as they stand in a segment
        PatchesWriter frames;
    };

    struct Stretches {
        std::vector<std::uint8_t> entries;        // as they stand in a segment
        std::unique_ptr<SegmentWriter> lead_ins;  // from the first ones on
    };

    void append_pixels(const std::uint8_t* pixels);
    void append_exact(const std::uint8_t* frame);
    std::size_t frame_segment_bytes() const;
    void write_frames(std::uint8_t* target, DecodingScratch& scratch) const;

    FrameFormat format_;
    FrameEncoder& encoder_;
    std::uint32_t num_frames_ = 0;  // appended, exact ones too
    std::unique_ptr<PayloadWriter> pixels_;
    std::unique_ptr<ExactFrames> exact_;    // of scaled floats, from the first one on
    std::unique_ptr<Stretches> stretches_;  // from the first one with a stored padding on
};

// Returns the bytes of a raw segment without exact frames.
std::size_t raw_segment_bytes(const FrameFormat& format, std::size_t num_frames);

// Parses a segment; throws DamagedSegment if it does not fit the format.
SegmentView view_segment(const FrameFormat& format, ByteSpan segment);

// Parses a segment of any origin: verifies all checksums too.
SegmentView view_verified_segment(const FrameFormat& format, ByteSpan segment);

// Unpacks frames first .. first + count - 1, below the header's num_frames, of padded bytes: with the exact frames of
// scaled floats, and as one encoding has them.
void unpack_frames(const FrameFormat& format, const SegmentView& view, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out);
void unpack_frames(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out);

// Returns false, and writes nothing, unless a stretch with a stored padding begins at `place`. Otherwise unpacks the
// last `count` frames before it: zeros, or its lead-ins, of which the oldest is repeated if there are fewer.
bool unpack_padding(const FrameFormat& format, const SegmentView& view, std::size_t place, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out);

SegmentCounts counts_of(const FrameFormat& format, ByteSpan segment);

// Packs `num_frames` contiguous frames.
std::vector<std::uint8_t> pack_segment(const FrameGeometry& geometry, const std::uint8_t* frames,
                                       std::uint32_t num_frames);

// Packs the raw frames of a segment, for files.
std::vector<std::uint8_t> packed_segment(const FrameFormat& format, ByteSpan raw_segment);

// Verifies a segment of any origin and unpacks all its frames into `out` (num_frames * frame_bytes).
void unpack_segment(ByteSpan segment, const FrameGeometry& geometry, std::size_t num_frames, std::uint8_t* out);

// Verifies checksum and header; throws DamagedSegment for the first fault.
SegmentHeader verify_segment(ByteSpan segment);

}  // namespace framestow
