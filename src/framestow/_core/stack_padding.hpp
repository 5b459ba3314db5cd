// What stands before an episode's first frame in a stack or window that reaches further back. Native code pads here
// alone: what a policy sees (frame_stacks.cpp) and what is sampled (window_gather.cpp) cannot differ.
// framestow/frames/stacking.py says who pads in which way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace framestow {

enum class StackPadding { kFirstFrame, kZeros };

// Fills the first `num_padded` frames at `stack`; only `kFirstFrame` reads `first_frame`, which is not one of them.
inline void pad_stack(std::uint8_t* stack, std::size_t num_padded, const std::uint8_t* first_frame,
                      std::size_t frame_bytes, StackPadding padding) {
    if (padding == StackPadding::kZeros) {
        std::memset(stack, 0, num_padded * frame_bytes);
        return;
    }
    for (std::size_t place = 0; place < num_padded; ++place) {
        std::memcpy(stack + place * frame_bytes, first_frame, frame_bytes);
    }
}

}  // namespace framestow
