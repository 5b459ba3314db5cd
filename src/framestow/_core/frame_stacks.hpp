// The last `stack` frames of each environment in a ring per environment, and how a stack is padded at an episode's
// start.
//
// Ownership: references the caller's memory, which must stay in place. Threads: the caller serialises all calls.
// Nothing is checked: environments must be in range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "segment_runs.hpp"

namespace framestow {

// The frames of a stack or window before an episode's first frame. All native padding happens here, so the stacks of a
// policy (frame_stacks.cpp) equal the sampled ones (window_reader.cpp). framestow/frames/stacking.py lists which
// library pads in which way.
enum class StackPadding { kFirstFrame, kZeros };

// Fills the first `num_padded` frames at `stack`. Only `kFirstFrame` reads `first_frame`.
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
    std::uint8_t* recent;  // num_envs rings of `stack` frames
    std::int64_t* ages;    // per environment: frames since its episode's first frame, -1 before any frame
    std::size_t num_envs;
    std::size_t stack;  // frames of a ring
    std::size_t frame_bytes;
    StackPadding padding;

    // Starts an episode on each of the environments with its first frame.
    void begin(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count) const;

    void append(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count) const;

    // Adds a frame to each of the environments, which continues or begins a run as `run_starts` says, one for each.
    // A run has stack - 1 lead-ins.
    void advance(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                 const RunStart* run_starts) const;

    // Writes the stacks of all environments, oldest frame first. An environment without an episode gives copies of its
    // ring's first frame.
    void write(std::uint8_t* out) const;
};

}  // namespace framestow
