// Every kind of bytes that code with vector instructions computes. Compiled twice: as namespace framestow, and as
// namespace framestow_portable beside a core without these instructions.
#include <cstdint>
#include <random>
#include <vector>

#include "area_shrinker.hpp"
#include "checksum.hpp"
#include "moving_pictures.hpp"
#include "scaled_frames.hpp"
#include "segment.hpp"

namespace framestow {
namespace {

void add_segments(std::vector<std::vector<std::uint8_t>>& all, std::mt19937& random) {
    const FrameGeometry geometries[] = {{1, 1, 1},    {1, 7, 1},   {5, 15, 1},  {5, 16, 1},         {9, 17, 1},
                                        {8, 24, 3},   {12, 63, 3}, {3, 300, 1}, {64, 64, 1},        {84, 84, 1},
                                        {84, 252, 3}, {20, 45, 3}, {20, 48, 3}, {252, 84, 1, true}, {9, 7, 1, true}};
    for (const FrameGeometry& geometry : geometries) {
        for (const std::uint32_t count : {1U, 7U, 90U}) {
            const std::vector<std::uint8_t> frames = moving_pictures(geometry, count, random);
            all.push_back(pack_segment(geometry, frames.data(), count));
            std::vector<std::uint8_t> unpacked(frames.size());
            unpack_segment(ByteSpan{all.back().data(), all.back().size()}, geometry, count, unpacked.data());
            all.push_back(unpacked);
        }
    }
}

void add_shrunk_pictures(std::vector<std::vector<std::uint8_t>>& all, std::mt19937& random) {
    const PictureSize sizes[][2] = {
        {{210, 160}, {84, 84}}, {{250, 160}, {84, 84}}, {{40, 33}, {7, 32}}, {{9, 50}, {4, 3}}};
    for (const auto& [input, output] : sizes) {
        AreaShrinker shrinker(input, output);
        std::vector<std::uint8_t> picture(input.height * input.width), frame(output.height * output.width);
        std::vector<std::uint32_t> rows;
        for (std::uint32_t row = 0; row < input.height; ++row) {
            rows.push_back(row);
        }
        for (int time = 0; time < 20; ++time) {
            for (std::uint8_t& pixel : picture) {
                pixel = static_cast<std::uint8_t>(random());
            }
            shrinker.shrink(picture.data(), rows, frame.data());
            all.push_back(frame);
        }
    }
}

// Sizes around whole registers; every pixel occurs.
void add_scaled_floats(std::vector<std::vector<std::uint8_t>>& all) {
    for (const std::uint32_t float_bytes : {2U, 4U, 8U}) {
        for (const std::size_t count : {0U, 1U, 7U, 8U, 9U, 31U, 256U, 259U, 7056U}) {
            std::vector<std::uint8_t> pixels(count), back(count), floats(count * float_bytes);
            for (std::size_t place = 0; place < count; ++place) {
                pixels[place] = static_cast<std::uint8_t>(place);
            }
            from_pixels(pixels.data(), count, float_bytes, floats.data());
            const bool are_scaled = to_pixels(floats.data(), count, float_bytes, back.data());
            back.push_back(are_scaled ? 1 : 0);
            all.push_back(floats);
            all.push_back(back);
        }
    }
}

void add_checksums(std::vector<std::vector<std::uint8_t>>& all) {
    std::vector<std::uint8_t> checksums;
    for (const std::vector<std::uint8_t>& bytes : all) {
        checksums.resize(checksums.size() + 4);
        store_u32(checksums.data() + checksums.size() - 4, crc32c(ByteSpan{bytes.data(), bytes.size()}));
    }
    all.push_back(checksums);
}

}  // namespace

std::vector<std::vector<std::uint8_t>> computed_bytes() {
    std::mt19937 random(1);
    std::vector<std::vector<std::uint8_t>> all;
    add_segments(all, random);
    add_shrunk_pictures(all, random);
    add_scaled_floats(all);
    add_checksums(all);
    return all;
}

}  // namespace framestow
