#include "frame_stacks.hpp"

#include <algorithm>
#include <cstring>

namespace framestow {

void FrameStacks::advance(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                          const StretchStart* stretch_starts) {
    for (std::size_t row = 0; row < count; ++row, frames += frame_bytes_) {
        const auto env_id = static_cast<std::size_t>(env_ids[row]);
        const StretchStart start = stretch_starts == nullptr ? StretchStart{} : stretch_starts[row];
        std::uint8_t* const ring = recent_.data() + env_id * depth_ * frame_bytes_;
        std::int64_t& age = ages_[env_id];
        if (start.padding == StretchPadding::kUsual) {
            age = -1;
        } else if (start.is_stored()) {  // a whole stack: the frame is the newest one
            const std::size_t size = (depth_ - 1) * frame_bytes_;
            if (start.padding == StretchPadding::kZeros) {
                std::memset(ring, 0, size);
            } else if (size > 0) {
                std::memcpy(ring, start.lead_ins, size);
            }
            age = static_cast<std::int64_t>(depth_) - 2;
        }
        const std::size_t place = static_cast<std::size_t>(++age) % depth_;
        std::memcpy(ring + place * frame_bytes_, frames, frame_bytes_);
    }
}

void FrameStacks::write(std::uint8_t* out) const {
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        const auto num_frames = static_cast<std::size_t>(ages_[env_id] + 1);  // of the stretch
        const std::size_t num_stored = std::min(num_frames, depth_);
        pad_stack(out, depth_ - num_stored, frame(env_id, 0), frame_bytes_, padding_);
        out += (depth_ - num_stored) * frame_bytes_;
        for (std::size_t age = num_frames - num_stored; age < num_frames; ++age) {
            std::memcpy(out, frame(env_id, age), frame_bytes_);
            out += frame_bytes_;
        }
    }
}

}  // namespace framestow
