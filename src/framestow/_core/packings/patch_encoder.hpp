// Finds a short patch from one frame to another.
//
// Compares whole frames into bitmaps, 64 bytes a word, so that the length of every match is a count of trailing
// ones; then takes, from left to right, the longest match or a run of literals. Holds scratch for one geometry: not
// thread-safe. Frames are spans of frame_bytes that are only read; the patch is appended to `packed`.
#pragma once

#include <cstdint>
#include <vector>

#include "../frame_geometry.hpp"

namespace framestow {

class PatchEncoder {
public:
    explicit PatchEncoder(const FrameGeometry& geometry);

    // Without any other frame: what decode_self_coded reads.
    void encode_self_coded(const std::uint8_t* frame, std::vector<std::uint8_t>& packed);

    // As changes of `previous`: what apply_patch reads.
    void encode_patch(const std::uint8_t* frame, const std::uint8_t* previous, const std::uint8_t* base,
                      std::vector<std::uint8_t>& packed);

    std::size_t nbytes() const;

private:
    using Bitmap = std::vector<std::uint64_t>;  // bit i: byte i matches; zeros behind the frame end every match

    void compare_with_frame(const std::uint8_t* frame, const std::uint8_t* other, Bitmap& equal) const;
    void compare_with_behind(const std::uint8_t* frame, std::size_t period, Bitmap& equal) const;
    template <bool kSelfCoded>
    void encode(const std::uint8_t* frame, std::vector<std::uint8_t>& packed);
    template <bool kSelfCoded>
    std::size_t literals_end(std::size_t begin) const;
    void put_operation(std::size_t skip, unsigned source, std::size_t length);

    FrameGeometry geometry_;
    Bitmap kept_;  // equal to the frame that is patched; in a self-coded frame, to the row above
    Bitmap up_;
    Bitmap run_;
    Bitmap base_;
    std::vector<std::uint8_t> literals_;
    std::vector<std::uint8_t> operations_;
};

}  // namespace framestow
