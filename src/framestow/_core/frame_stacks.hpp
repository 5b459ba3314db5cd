// The last `stack` frames of each of n streams, in a ring a stream; younger ones are padded (stack_padding.hpp).
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: none of its own; the caller keeps calls
// apart. Nothing is checked: streams must be known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// What stands before an episode's first frame in a stack or window that reaches further back. Native code pads here
// alone: what a policy sees (frame_stacks.cpp) and what is sampled (window_gather.cpp) cannot differ.
// framestow/frames/stacking.py says who pads in which way.
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


struct FrameStacks {
    std::uint8_t* recent;  // num_streams rings of `stack` frames
    std::int64_t* ages;    // a stream: frames since its episode's first one, -1 before any
    std::size_t num_streams;
    std::size_t stack;
    std::size_t frame_bytes;
    StackPadding padding;

    // Starts an episode on each of the streams with its first frame.
    void begin(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) const;

    void append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) const;

    // Writes the stacks of all streams, oldest frame first; zeros for a stream that never began if its ring is zeros.
    void write(std::uint8_t* out) const;
};

}  // namespace framestow
