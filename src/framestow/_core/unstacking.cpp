#include "unstacking.hpp"

#include <cstring>

#include "bytes.hpp"

namespace framestow {
namespace {

// The compiler turns a copy or comparison of a fixed number of bytes into single instructions.
template <std::size_t kBytes>
bool pieces_equal(const std::uint8_t* frame, const std::uint8_t* pieces, std::size_t count, std::size_t step) {
    std::uint8_t differences = 0;
    for (std::size_t piece = 0; piece < count; ++piece) {
        for (std::size_t byte = 0; byte < kBytes; ++byte) {
            differences = static_cast<std::uint8_t>(differences |
                                                    (frame[piece * kBytes + byte] ^ pieces[piece * step + byte]));
        }
    }
    return differences == 0;
}

bool pieces_equal(const std::uint8_t* frame, const std::uint8_t* pieces, std::size_t count, std::size_t step,
                  std::size_t piece_bytes) {
    for (std::size_t piece = 0; piece < count; ++piece) {
        if (std::memcmp(frame + piece * piece_bytes, pieces + piece * step, piece_bytes) != 0) {
            return false;
        }
    }
    return true;
}

// Four grey frames along the last axis, the usual case: each pixel is one word, its oldest frame lowest.
constexpr std::size_t kWordFrames = 4;

bool is_pixel_words(const StackedLayout& layout) {
    return layout.piece_bytes == 1 && layout.depth == kWordFrames && layout.frame_bytes > 1;
}

bool words_equal_frame(const std::uint8_t* frame, const std::uint8_t* observation, std::size_t place,
                       std::size_t count) {
    const auto shift = static_cast<unsigned>(8 * place);
    std::uint32_t differences = 0;
    for (std::size_t pixel = 0; pixel < count; ++pixel) {
        differences |= (load_u32(observation + pixel * kWordFrames) >> shift ^ frame[pixel]) & 0xFFU;
    }
    return differences == 0;
}

// Whether frame `place` of `observation` equals `frame`.
bool has_frame(const std::uint8_t* frame, const std::uint8_t* observation, std::size_t place,
               const StackedLayout& layout) {
    const std::uint8_t* const pieces = observation + place * layout.piece_bytes;
    const std::size_t count = layout.frame_bytes / layout.piece_bytes;
    const std::size_t step = layout.depth * layout.piece_bytes;
    if (is_pixel_words(layout)) {
        return words_equal_frame(frame, observation, place, count);
    }
    switch (count == 1 ? 0 : layout.piece_bytes) {
        case 1: return pieces_equal<1>(frame, pieces, count, step);
        case 3: return pieces_equal<3>(frame, pieces, count, step);
        case 4: return pieces_equal<4>(frame, pieces, count, step);
        default: return pieces_equal(frame, pieces, count, step, layout.piece_bytes);
    }
}

bool is_zero_frame(const std::uint8_t* observation, std::size_t place, const StackedLayout& layout) {
    const std::size_t step = layout.depth * layout.piece_bytes;
    std::uint8_t bits = 0;
    for (std::size_t first = 0; first < layout.frame_bytes; first += layout.piece_bytes) {
        const std::uint8_t* const piece = observation + first / layout.piece_bytes * step + place * layout.piece_bytes;
        for (std::size_t byte = 0; byte < layout.piece_bytes; ++byte) {
            bits = static_cast<std::uint8_t>(bits | piece[byte]);
        }
    }
    return bits == 0;
}

}  // namespace

bool shows_newest_frames(const FrameStacks& stacks, std::size_t stream, const std::uint8_t* observation,
                         const StackedLayout& layout) {
    const std::uint8_t* const ring = stacks.recent + stream * stacks.stack * stacks.frame_bytes;
    const auto age = static_cast<std::size_t>(stacks.ages[stream]);
    for (std::size_t place = layout.depth; place-- > 0;) {  // the newest frame first: it differs most often
        const std::size_t steps_back = layout.depth - 1 - place;
        const bool is_padded = steps_back > age;
        if (is_padded && stacks.padding == StackPadding::kZeros) {
            if (!is_zero_frame(observation, place, layout)) {
                return false;
            }
            continue;
        }
        const std::size_t slot = is_padded ? 0 : (age - steps_back) % stacks.stack;
        if (!has_frame(ring + slot * stacks.frame_bytes, observation, place, layout)) {
            return false;
        }
    }
    return true;
}

bool is_shifted(const std::uint8_t* observation, const std::uint8_t* next, const StackedLayout& layout) {
    const std::size_t step = layout.depth * layout.piece_bytes;
    const std::size_t count = layout.frame_bytes / layout.piece_bytes;
    if (is_pixel_words(layout)) {
        std::uint32_t differences = 0;
        for (std::size_t pixel = 0; pixel < count; ++pixel) {
            const std::size_t at = pixel * kWordFrames;
            differences |= (load_u32(observation + at) >> 8 ^ load_u32(next + at)) & 0xFFFFFFU;
        }
        return differences == 0;
    }
    for (std::size_t first = 0; first < count * step; first += step) {
        if (std::memcmp(observation + first + layout.piece_bytes, next + first, step - layout.piece_bytes) != 0) {
            return false;
        }
    }
    return true;
}

void copy_newest_frame(const std::uint8_t* observation, const StackedLayout& layout, std::uint8_t* frame) {
    const std::size_t step = layout.depth * layout.piece_bytes;
    const std::uint8_t* const newest = observation + step - layout.piece_bytes;
    const std::size_t count = layout.frame_bytes / layout.piece_bytes;
    if (is_pixel_words(layout)) {
        for (std::size_t pixel = 0; pixel < count; ++pixel) {
            frame[pixel] = static_cast<std::uint8_t>(load_u32(observation + pixel * kWordFrames) >> 24);
        }
        return;
    }
    for (std::size_t piece = 0; piece < count; ++piece) {
        std::memcpy(frame + piece * layout.piece_bytes, newest + piece * step, layout.piece_bytes);
    }
}

}  // namespace framestow
