// The picture behind what moves: for each byte, the value that most frames of a segment agree on.
//
// As the base of the next segment it saves what a frame cannot: where a sprite has gone, what was behind it is one copy
// from the base. Majority by votes in one pass (Boyer and Moore 1981). Owns three frames; not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

namespace framestow {

class Background {
public:
    explicit Background(std::size_t frame_bytes);

    void clear();
    void look_at(const std::uint8_t* frame);

    // Whether it differs from the frames looked at clearly less than the first of them does: in a picture that
    // scrolls or marches it does not.
    bool serves_better_than_first() const;

    const std::uint8_t* frame() const { return candidate_.data(); }
    std::size_t nbytes() const { return candidate_.capacity() + votes_.capacity() + first_.capacity(); }

private:
    std::vector<std::uint8_t> candidate_;
    std::vector<std::uint8_t> votes_;  // for the candidate; at 255 it gains no more
    std::vector<std::uint8_t> first_;
    std::size_t num_looked_at_ = 0;
    std::size_t differing_ = 0;  // bytes unlike the candidate, over all frames
    std::size_t differing_from_first_ = 0;
};

}  // namespace framestow
