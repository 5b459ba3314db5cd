// Splits stacked observations into the frames that a memory stores, compares them with the frames stored before, and
// joins frames again.
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

// Whether the oldest `num_shown` frames of `observation` equal the newest ones of an environment, padded as in
// `stacks`. All of them: it is the environment's current observation. All but one: it is the next one.
bool shows_newest_frames(const FrameStacks& stacks, std::size_t env_id, const std::uint8_t* observation,
                         const StackedLayout& layout, std::size_t num_shown);

// Whether `next` is `observation` without its oldest frame and with any new frame.
bool is_shifted(const std::uint8_t* observation, const std::uint8_t* next, const StackedLayout& layout);

// Whether the older frames of `observation` are copies of its newest one, or zeros, as `padding` fills a stack.
bool is_padded(const std::uint8_t* observation, const StackedLayout& layout, StackPadding padding);

void copy_newest_frame(const std::uint8_t* observation, const StackedLayout& layout, std::uint8_t* frame);

// Writes the depth - 1 older frames, oldest first.
void copy_older_frames(const std::uint8_t* observation, const StackedLayout& layout, std::uint8_t* frames);

// Writes the observation of `depth` frames, oldest first, each `frame_step` bytes after the one before.
void join_frames(const std::uint8_t* frames, std::ptrdiff_t frame_step, const StackedLayout& layout,
                 std::uint8_t* observation);

}  // namespace framestow
