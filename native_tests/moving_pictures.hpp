// Frames for native tests: a small picture moving over stripes, a few random bytes, brighter places, sometimes noise.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "frame_geometry.hpp"

namespace framestow {

inline std::vector<std::uint8_t> moving_pictures(const FrameGeometry& geometry, std::size_t count,
                                                 std::mt19937& random) {
    const std::size_t frame_bytes = geometry.frame_bytes();
    std::vector<std::uint8_t> frames(count * frame_bytes);
    const bool is_noise = random() % 8 == 0;
    std::uint8_t picture[24];
    for (std::uint8_t& byte : picture) {
        byte = static_cast<std::uint8_t>(random());
    }
    const std::size_t speed = random() % 5;
    const std::size_t start = random();
    for (std::size_t index = 0; index < count; ++index) {
        std::uint8_t* const frame = frames.data() + index * frame_bytes;
        for (std::size_t place = 0; place < frame_bytes; ++place) {
            frame[place] = is_noise ? static_cast<std::uint8_t>(random())
                                    : static_cast<std::uint8_t>(place / geometry.row_bytes / 3);
        }
        for (std::size_t row = 0; row < 4; ++row) {
            for (std::size_t column = 0; column < 6; ++column) {
                frame[(start + index * speed + row * geometry.row_bytes + column) % frame_bytes] =
                    picture[row * 6 + column];
            }
        }
        frame[random() % frame_bytes] = static_cast<std::uint8_t>(random());
        const std::size_t reach = random() % 3 * 20;  // some frames are a little brighter in places
        for (std::size_t place = random() % frame_bytes; reach > 0 && place + 3 < frame_bytes && random() % 64 > 0;) {
            const auto brighter = static_cast<std::uint8_t>(random() % reach);
            for (const std::size_t end = place + 3; place < end; ++place) {
                frame[place] = static_cast<std::uint8_t>(frame[place] + brighter + random() % 2);
            }
        }
    }
    return frames;
}

}  // namespace framestow
