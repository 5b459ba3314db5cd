// Finds a short list of operations that makes one frame of another.
//
// Between long stretches of kept bytes, which a bitmap of the whole frame tells, looks where the other sources match,
// and picks the cheapest sequence of matches and literals (cheapest_way.hpp). Holds scratch for one geometry: not
// thread-safe. Frames are spans of frame_bytes that are only read.
#pragma once

#include <cstdint>
#include <vector>

#include "../frame_geometry.hpp"
#include "cheapest_way.hpp"
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
    // A frame and what its bytes may be copied from; a self-coded one has the last two alone.
    struct Pictures {
        const std::uint8_t* frame;
        const std::uint8_t* previous;
        const std::uint8_t* base;
        std::size_t row_bytes;
        std::size_t pixel_bytes;
        std::size_t frame_bytes;
    };

    template <bool kSelfCoded>
    const OperationBytes& encode(const Pictures& pictures, const CheapestWay& cheapest_way);
    template <bool kSelfCoded>
    static Match long_match(const Pictures& pictures, std::size_t position, std::size_t least);
    template <bool kSelfCoded>
    std::size_t stretch_end(const Pictures& pictures, std::size_t begin) const;
    template <bool kSelfCoded>
    void find_matches(const Pictures& pictures, std::size_t begin, std::size_t end);
    std::size_t match_length(CheapestWay::Kind kind, std::size_t begin, std::size_t end) const;
    void write_stretch(const CheapestWay& cheapest_way, const std::uint8_t* frame, std::size_t begin, std::size_t end);
    void put(patch_format::Source source, std::size_t length, const std::uint8_t* literals);
    void put_keep(std::size_t length);

    FrameGeometry geometry_;
    MatchBitmap kept_;  // equal to the frame that is patched; in a self-coded frame, to the row above
    std::vector<std::uint8_t> matches_;          // of each byte of a stretch: a bit for each source
    std::vector<CheapestWay::State> cheapest_;  // of each byte of a stretch
    OperationBytes operations_;
};

}  // namespace framestow
