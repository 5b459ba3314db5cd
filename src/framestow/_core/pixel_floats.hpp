// Pixels as a network reads them: float32, the channels of a pixel side by side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framestow {

// Writes pixel * (1 / 255), rounded as a product of two floats, for `num_pixels` pixels of `num_channels` planes, which
// begin `plane_stride` bytes apart; `floats` gets (num_pixels, num_channels). Keeps no state.
void write_pixel_floats(const std::uint8_t* planes, std::ptrdiff_t plane_stride, std::size_t num_channels,
                        std::size_t num_pixels, float* floats);

}  // namespace framestow
