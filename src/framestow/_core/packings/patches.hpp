// Patches: a base frame with groups of patches, in bytes (encoding 1) or, for colour frames, in pixels (2). Encoding 3
// is encoding 2 of frames with channels first: their planes are joined to pixels before they are packed, and split when
// they are unpacked.
//
// The table has one u32 per group: its start in the body. The body has the self-coded base frame (the segment's first),
// then per group its anchor, a patch of the base, and its other frames, each a patch of the frame before. A window is
// read from the base, its group's anchor and the following patches: the base allows long segments, the anchors keep
// reads short. A patch may begin with a reference: then it changes the anchor of an earlier group, which itself is a
// patch of the base.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../frame_geometry.hpp"
#include "../pages.hpp"
#include "../processor.hpp"
#include "../segment_header.hpp"
#include "patch_encoder.hpp"
#include "repeat_finder.hpp"

namespace framestow {

// One frame with margins, so that decoding needs no special cases at the borders.
//
// Before it: at least one row, and 64 bytes, of zeros, which the first row reads as the row above. After it: 64 bytes
// for wide loads and stores. Owns its bytes; not thread-safe; one per decoder.
class FrameBuffer {
public:
    void resize(const FrameGeometry& geometry) {
        const std::size_t front = (static_cast<std::size_t>(geometry.row_bytes) + 127) / 64 * 64;
        const std::size_t wanted = front + geometry.frame_bytes() + kMargin;
        if (front != front_ || wanted != bytes_.size()) {
            bytes_.assign(wanted, 0);
            front_ = front;
        }
    }
    std::uint8_t* frame() { return bytes_.data() + front_; }
    const std::uint8_t* frame() const { return bytes_.data() + front_; }
    std::size_t nbytes() const { return bytes_.capacity(); }

private:
    static constexpr std::size_t kMargin = 64;  // after the frame
    std::vector<std::uint8_t> bytes_;
    std::size_t front_ = 0;  // bytes before the frame
};

// The background of a segment: for each byte, the value that most frames share.
//
// As the next segment's base it saves what a single frame cannot: behind a sprite that moved, the background is one
// copy from the base. Majority vote in one pass (Boyer and Moore 1981). Owns three frames; not thread-safe.
class Background {
public:
    explicit Background(std::size_t frame_bytes);

    void clear();
    void add_frame(const std::uint8_t* frame);

    // Returns whether the background differs clearly less from the added frames than their first one does. It does not
    // in a picture that scrolls.
    bool serves_better_than_first() const;

    const std::uint8_t* frame() const { return candidate_.data(); }
    std::size_t nbytes() const { return candidate_.capacity() + votes_.capacity() + first_.capacity(); }

private:
    std::vector<std::uint8_t> candidate_;  // per byte: the value that has most votes so far
    std::vector<std::uint8_t> votes_;      // for the candidate; saturates at 255
    std::vector<std::uint8_t> first_;      // the first added frame
    std::size_t num_frames_ = 0;
    std::size_t differing_ = 0;             // bytes that differ from the candidate, over all frames
    std::size_t differing_from_first_ = 0;  // likewise, from that frame
};

// Where unpacking a segment stopped, so that its later frames are reached from there. The owner clears `body` before
// the bytes at that address may change.
struct UnpackedUpTo {
    const std::uint8_t* body = nullptr;  // of the segment; null: none
    std::size_t next = 0;                // the frame whose patch is next
    std::size_t place = 0;               // of that patch, if it is not the first of its group
    const void* file = nullptr;          // the segment that was read from a file last: its file and offset
    std::uint64_t offset = 0;
};

struct ReferenceFrame {
    std::size_t group = 0;  // whose anchor it is
    FrameBuffer frame;
};

// The buffers of one decoding thread: the base frame, the frame that is patched, referenced anchors, and those of
// scaled floats.
struct DecodingScratch {
    FrameBuffer base;                          // of the segment
    FrameBuffer frame;                         // the one that patches change, from frame to frame
    std::array<ReferenceFrame, 4> references;  // anchors of the segment that patches refer to
    std::size_t num_references = 0;            // rebuilt since the base; `references` has the last ones
    std::optional<UnpackedUpTo> up_to;         // none: each call starts at the base
    PrefetchQueue next_window;                 // requested while a window is unpacked
    bool writes_past_caches = false;           // whether frames are written past the caches
    std::vector<std::uint8_t> pixels;          // before they become floats
    std::unique_ptr<DecodingScratch> floats;   // of the exact frames among them

    void copy_out(std::uint8_t* out, const std::uint8_t* unpacked, std::size_t size) const {
        if (writes_past_caches) {
            stream_copy(out, unpacked, size);
        } else {
            std::memcpy(out, unpacked, size);
        }
    }
    std::size_t nbytes() const {
        std::size_t total = base.nbytes() + frame.nbytes() + pixels.capacity() + (floats ? floats->nbytes() : 0);
        for (const ReferenceFrame& reference : references) {
            total += reference.frame.nbytes();
        }
        return total;
    }
};

// The header of the same patches as those of frames with channels last: their frames are unpacked as joined().
SegmentHeader as_pixels(const SegmentHeader& header);

// Owns the packed bytes and copies of the base, the last and a few reference frames.
class PatchesWriter final : public PayloadWriter {
public:
    // The encoder is of the same geometry, and used by one writer at a time.
    PatchesWriter(const FrameGeometry& geometry, std::uint32_t group_frames, PatchEncoder& encoder);

    void begin(const std::uint8_t* base) override;
    void append(const std::uint8_t* frame) override;
    void copy_last_frame(std::uint8_t* out) const override;
    void finish() override;
    void clear() override;
    SegmentHeader header() const override;
    Payload payload() const override;
    std::size_t nbytes() const override;

private:
    // An anchor that later patches may refer to.
    struct Reference {
        std::uint8_t group = 0;
        std::uint32_t last_used = 0;  // frame
        std::size_t differing = 0;    // bytes that differ from the base, about
        std::vector<std::uint8_t> frame;
    };

    const Reference* find_reference(const std::uint8_t* frame, std::size_t differing);
    void add_reference(const std::uint8_t* frame, std::size_t differing);

    FrameGeometry given_;     // of the frames that are appended
    FrameGeometry geometry_;  // the same, joined
    std::uint32_t group_frames_;
    PatchEncoder& encoder_;
    std::uint32_t num_frames_ = 0;
    std::vector<std::uint8_t> group_table_;
    PagedVector<std::uint8_t> body_;  // its capacity always includes kReadPadding more bytes
    RepeatFinder repeats_;            // of the operations in body_
    bool has_base_ = false;           // whether base_frame_ is of this segment: set by begin() or by the first frame
    std::vector<std::uint8_t> base_frame_;
    std::vector<std::uint8_t> last_frame_;  // which the next patch changes; joined
    std::vector<Reference> references_;     // a few anchors of this segment
};

}  // namespace framestow
