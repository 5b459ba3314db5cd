// Splits stacked observations into the frames that a memory stores, and compares them with the frames stored before.
//
// Ownership: references the caller's memory. Threads: the caller serialises calls with those that change the stacks.
// Nothing is checked: environments must be in range, and every observation has `depth` frames.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame_stacks.hpp"

namespace framestow {

// How the bytes of an observation belong to its frames, oldest first. Along the first axis, each frame is one piece:
// piece_bytes == frame_bytes. Along the last axis, the pieces alternate: (H, W, depth) of uint8 has pieces of one byte.
struct StackedLayout {
    std::size_t frame_bytes;
    std::size_t depth;        // frames of an observation
    std::size_t piece_bytes;  // bytes of one frame that lie together
};

// Whether `observation` equals the newest `depth` frames of an environment with an open episode, padded as in `stacks`.
bool shows_newest_frames(const FrameStacks& stacks, std::size_t env_id, const std::uint8_t* observation,
                         const StackedLayout& layout);

// Whether `next` is `observation` without its oldest frame and with any new frame.
bool is_shifted(const std::uint8_t* observation, const std::uint8_t* next, const StackedLayout& layout);

void copy_newest_frame(const std::uint8_t* observation, const StackedLayout& layout, std::uint8_t* frame);

}  // namespace framestow
