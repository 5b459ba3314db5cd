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

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "../frame_geometry.hpp"
#include "patch_encoder.hpp"
#include "repeat_finder.hpp"
#include "shared_operations.hpp"
#include "../segment_header.hpp"

// One frame with room around it, for decoding without special cases at the borders.
//
// In front lies at least a row (and 64 bytes) of zeros, which the row above the first row reads; behind lie 64 bytes
// that wide loads and stores may touch. Owns its bytes; not thread-safe; every decoder has its own.
namespace framestow {

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
    static constexpr std::size_t kMargin = 64;
    std::vector<std::uint8_t> bytes_;
    std::size_t front_ = 0;
};


// Packing 0: the frames themselves, one after the other. Chosen where nothing else is smaller.
//
// `unpack_raw` copies frames first .. first + count - 1 to `out` (count * frame_bytes); throws DamagedSegment, before
// anything is written, where the payload has not exactly the frames that the header promises. Thread-safe.

void unpack_raw(const SegmentHeader& header, ByteSpan payload, std::size_t first, std::size_t count,
                std::uint8_t* out);


// The picture behind what moves: for each byte, the value that most frames of a segment agree on.
//
// As the base of the next segment it saves what a frame cannot: where a sprite has gone, what was behind it is one copy
// from the base. Majority by votes in one pass (Boyer and Moore 1981). Owns three frames; not thread-safe.

class Background {
public:
    explicit Background(std::size_t frame_bytes);

    void clear();
    void add_frame(const std::uint8_t* frame);

    // Whether it differs from the frames looked at clearly less than the first of them does: in a picture that
    // scrolls or marches it does not.
    bool serves_better_than_first() const;

    const std::uint8_t* frame() const { return candidate_.data(); }
    std::size_t nbytes() const { return candidate_.capacity() + votes_.capacity() + first_.capacity(); }

private:
    std::vector<std::uint8_t> candidate_;
    std::vector<std::uint8_t> votes_;  // for the candidate; at 255 it gains no more
    std::vector<std::uint8_t> first_;
    std::size_t num_frames_ = 0;
    std::size_t differing_ = 0;  // bytes unlike the candidate, over all frames
    std::size_t differing_from_first_ = 0;
};


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
