#include "frame_stacks.hpp"

#include <algorithm>
#include <cstring>

namespace framestow {

void FrameStacks::begin(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count) const {
    for (std::size_t row = 0; row < count; ++row) {
        const auto env_id = static_cast<std::size_t>(env_ids[row]);
        ages[env_id] = 0;
        std::memcpy(recent + env_id * stack * frame_bytes, frames + row * frame_bytes, frame_bytes);
    }
}

void FrameStacks::append(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count) const {
    for (std::size_t row = 0; row < count; ++row) {
        const auto env_id = static_cast<std::size_t>(env_ids[row]);
        const std::size_t place = static_cast<std::size_t>(++ages[env_id]) % stack;
        std::memcpy(recent + (env_id * stack + place) * frame_bytes, frames + row * frame_bytes, frame_bytes);
    }
}

void FrameStacks::advance(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                          const RunStart* run_starts) const {
    for (std::size_t row = 0; row < count; ++row) {
        const RunStart& start = run_starts[row];
        if (start.is_stored()) {  // a whole stack: the frame is the newest one
            std::uint8_t* const ring = recent + static_cast<std::size_t>(env_ids[row]) * stack * frame_bytes;
            const std::size_t size = (stack - 1) * frame_bytes;
            if (start.padding == RunPadding::kZeros) {
                std::memset(ring, 0, size);
            } else if (size > 0) {
                std::memcpy(ring, start.lead_ins, size);
            }
            ages[env_ids[row]] = static_cast<std::int64_t>(stack) - 2;
        }
        const bool begins = start.padding == RunPadding::kUsual;
        (this->*(begins ? &FrameStacks::begin : &FrameStacks::append))(env_ids + row, frames + row * frame_bytes, 1);
    }
}

void FrameStacks::write(std::uint8_t* out) const {
    for (std::size_t env_id = 0; env_id < num_envs; ++env_id) {
        const std::uint8_t* const ring = recent + env_id * stack * frame_bytes;
        const auto num_frames = static_cast<std::size_t>(ages[env_id] + 1);  // of the episode
        const std::size_t num_stored = std::min(num_frames, stack);
        // A ring that is not full begins with the episode's first frame.
        pad_stack(out, stack - num_stored, ring, frame_bytes, padding);
        out += (stack - num_stored) * frame_bytes;
        for (std::size_t frame = num_frames - num_stored; frame < num_frames; ++frame) {
            std::memcpy(out, ring + frame % stack * frame_bytes, frame_bytes);
            out += frame_bytes;
        }
    }
}

}  // namespace framestow
