// The last `stack` frames of each environment in a ring per environment, and how a stack is padded at an episode's
// start.
//
// Threads: the caller serialises all calls. Nothing is checked: environments must be in range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "segment_stretches.hpp"

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

class FrameStacks {
public:
    // `depth`: frames of a stack. All frames are zeros at first.
    FrameStacks(std::size_t num_envs, std::size_t depth, std::size_t frame_bytes, StackPadding padding)
        : depth_(depth),
          frame_bytes_(frame_bytes),
          padding_(padding),
          recent_(num_envs * depth * frame_bytes),
          ages_(num_envs, -1) {}

    std::size_t num_envs() const { return ages_.size(); }
    std::size_t depth() const { return depth_; }
    std::size_t frame_bytes() const { return frame_bytes_; }
    StackPadding padding() const { return padding_; }
    std::size_t nbytes() const { return recent_.size() + ages_.size() * sizeof(std::int64_t); }

    // Returns the frames of an environment's stretch since its first one, -1 before any frame.
    std::int64_t age(std::size_t env_id) const { return ages_[env_id]; }

    // Returns the frame of that age, one of the newest `depth`. While the stack has any padding, the first frame of the
    // ring is that of its stretch.
    const std::uint8_t* frame(std::size_t env_id, std::size_t age) const {
        return recent_.data() + (env_id * depth_ + age % depth_) * frame_bytes_;
    }

    // Adds a frame to each of the environments. `stretch_starts`: how each continues or begins a stretch, with its
    // depth - 1 lead-ins; null: all go on.
    void advance(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                 const StretchStart* stretch_starts);

    // Counts frames that have left the stack before it is seen.
    void skip(std::size_t env_id, bool begins_stretch) { ages_[env_id] = begins_stretch ? 0 : ages_[env_id] + 1; }

    // Writes the stacks of all environments, oldest frame first. An environment without frames gives zeros.
    void write(std::uint8_t* out) const;

private:
    std::size_t depth_;
    std::size_t frame_bytes_;
    StackPadding padding_;
    std::vector<std::uint8_t> recent_;  // per environment a ring of `depth` frames
    std::vector<std::int64_t> ages_;    // per environment
};

}  // namespace framestow
