// Finds a short list of operations that makes one frame of another.
//
// Compares whole frames into bitmaps; between long stretches of kept bytes, picks the cheapest sequence of matches and
// literals by dynamic programming from the right (the longest match of each source, or literals; Storer and Szymanski
// 1982 call it optimal parsing). Holds scratch for one geometry: not thread-safe. Frames are spans of frame_bytes that
// are only read.
#pragma once

#include <cstdint>
#include <vector>

#include "../frame_geometry.hpp"
#include "match_bitmap.hpp"
#include "patch_format.hpp"

namespace framestow {

// Operations as bytes (patch_format.hpp), without repeats and without the end.
struct OperationBytes {
    struct Place {
        std::uint32_t begin;       // of an operation
        std::uint32_t keep_begin;  // of the number of bytes that it keeps; its end where it keeps none
    };
    std::vector<std::uint8_t> bytes;
    std::vector<Place> places;

    std::size_t end_of(std::size_t operation) const {
        return operation + 1 < places.size() ? places[operation + 1].begin : bytes.size();
    }
};

class PatchEncoder {
public:
    explicit PatchEncoder(const FrameGeometry& geometry);

    // Without any other frame: what decode_self_coded reads. Valid until the next call.
    const OperationBytes& encode_self_coded(const std::uint8_t* frame);

    // As changes of `previous`: what apply_patch reads. Valid until the next call.
    const OperationBytes& encode_patch(const std::uint8_t* frame, const std::uint8_t* previous,
                                       const std::uint8_t* base);

    std::size_t nbytes() const;

private:
    struct Match {
        std::size_t length;
        patch_format::Source source;
    };
    // The cheapest way on from a byte.
    struct Step {
        std::uint64_t cost;     // from here to the end of the stretch
        std::uint32_t length;   // of the operation that begins here, unless literals
        std::uint16_t kind;
        bool literals_go_on;    // the byte after a literal is a literal too
    };

    template <bool kSelfCoded>
    const OperationBytes& encode(const std::uint8_t* frame);
    template <bool kSelfCoded>
    Match longest_match(std::size_t position) const;
    template <bool kSelfCoded>
    std::size_t stretch_end(std::size_t begin) const;
    template <bool kSelfCoded>
    void plan_stretch(std::size_t begin, std::size_t end);
    void write_stretch(const std::uint8_t* frame, std::size_t begin, std::size_t end);
    void put(patch_format::Source source, std::size_t length, const std::uint8_t* literals);
    void put_keep(std::size_t length);

    FrameGeometry geometry_;
    MatchBitmap kept_;  // equal to the frame that is patched; in a self-coded frame, to the row above
    MatchBitmap up_;
    MatchBitmap base_;
    MatchBitmap run_;
    std::vector<Step> steps_;
    OperationBytes operations_;
};

}  // namespace framestow
