// One frame with room around it, for decoding without special cases at the borders.
//
// In front lies at least a row (and 64 bytes) of zeros, which the row above the first row reads; behind lie 64 bytes
// that wide loads and stores may touch. Owns its bytes; not thread-safe; every decoder has its own.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "../frame_geometry.hpp"

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

}  // namespace framestow
