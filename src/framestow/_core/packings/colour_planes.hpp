// Three planes of a colour frame, (3, H, W), and its pixels, (H, W, 3): the same bytes in another order.
//
// 16 pixels at a time with SSSE3, one by one elsewhere. The arrays have 3 * num_pixels bytes and do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framestow {

void join_planes(const std::uint8_t* planes, std::size_t num_pixels, std::uint8_t* pixels);
void split_planes(const std::uint8_t* pixels, std::size_t num_pixels, std::uint8_t* planes);

}  // namespace framestow
