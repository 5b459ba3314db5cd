// The last `stack` frames of each of n streams, in a ring a stream; younger ones are padded (stack_padding.hpp).
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: none of its own; the caller keeps calls
// apart. Nothing is checked: streams must be known.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stack_padding.hpp"

namespace framestow {

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
