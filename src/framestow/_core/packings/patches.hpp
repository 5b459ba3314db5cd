// Packing 1: a base frame, then groups of patches.
//
// Payload: one u32 for each group (where it begins in the body), then the body: the self-coded base frame (the
// segment's first), then for each group its anchor, a patch of the base, and its other frames, each a patch of the
// frame before. A window is read from the base, its group's anchor and the patches from there: the base buys long
// segments, the anchors short ways.
//
// `body` and payload must be padded (kReadPadding). `unpack_patches` throws DamagedSegment for any payload that
// cannot be decoded, perhaps after it wrote some frames. `PatchesWriter` packs frames as they come; it owns what it
// packed and copies of the base and the last frame. Neither is thread-safe; several readers with their own scratch
// may read one payload or one idle writer.
#pragma once

#include <vector>

#include "../segment_header.hpp"
#include "frame_buffer.hpp"
#include "patch_encoder.hpp"
#include "repeat_finder.hpp"
#include "shared_operations.hpp"

namespace framestow {

// Where one thread decodes: the base frame, and the frame that is patched.
struct DecodingScratch {
    FrameBuffer base;
    FrameBuffer frame;

    void resize(const FrameGeometry& geometry) {
        base.resize(geometry);
        frame.resize(geometry);
    }
    std::size_t nbytes() const { return base.nbytes() + frame.nbytes(); }
};

inline constexpr std::size_t kOffsetBytes = 4;  // of an entry of the group table

struct PatchesView {
    ByteSpan group_table;
    ByteSpan body;
};

PatchesView view_patches(const SegmentHeader& header, ByteSpan payload);

void unpack_patches(const SegmentHeader& header, const PatchesView& view, std::size_t first, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out);

class PatchesWriter {
public:
    PatchesWriter(const FrameGeometry& geometry, std::uint32_t group_frames);

    // The base frame of a segment is its first frame, unless it is given another before that.
    void begin(const std::uint8_t* base);
    void append(const std::uint8_t* frame, PatchEncoder& encoder);

    // Makes it as it was when new: what a heavy segment took is given back, so nbytes() tells of this segment alone.
    void clear();

    // Arranges what was packed for quick reading; nothing may be appended behind it before clear().
    void finish(SharedOperations& shared_operations);

    SegmentHeader header() const;
    PatchesView view() const;
    std::size_t payload_bytes() const { return group_table_.size() + body_.size(); }
    void copy_payload(std::uint8_t* target) const;
    std::uint32_t num_frames() const { return num_frames_; }
    std::size_t nbytes() const;

private:
    FrameGeometry geometry_;
    std::uint32_t group_frames_;
    std::uint32_t num_frames_ = 0;
    std::vector<std::uint8_t> group_table_;
    std::vector<std::uint8_t> body_;  // capacity always reaches kReadPadding past its size
    RepeatFinder repeats_;
    bool has_base_ = false;
    std::vector<std::uint8_t> base_frame_;
    std::vector<std::uint8_t> last_frame_;
};

}  // namespace framestow
