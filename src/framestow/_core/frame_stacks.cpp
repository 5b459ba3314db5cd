#include "frame_stacks.hpp"

#include <algorithm>
#include <cstring>

namespace framestow {

void FrameStacks::begin(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) const {
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        ages[stream] = 0;
        std::memcpy(recent + stream * stack * frame_bytes, frames + row * frame_bytes, frame_bytes);
    }
}

void FrameStacks::append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) const {
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        const std::size_t place = static_cast<std::size_t>(++ages[stream]) % stack;
        std::memcpy(recent + (stream * stack + place) * frame_bytes, frames + row * frame_bytes, frame_bytes);
    }
}

void FrameStacks::write(std::uint8_t* out) const {
    const auto depth = static_cast<std::int64_t>(stack);
    for (std::size_t stream = 0; stream < num_streams; ++stream) {
        for (std::int64_t back = depth - 1; back >= 0; --back) {
            // An age below the stack's depth means that frame 0 is still in the ring: clamping to it is the padding.
            const std::int64_t age = std::max<std::int64_t>(ages[stream] - back, 0);
            const std::size_t place = stream * stack + static_cast<std::size_t>(age % depth);
            std::memcpy(out, recent + place * frame_bytes, frame_bytes);
            out += frame_bytes;
        }
    }
}

}  // namespace framestow
