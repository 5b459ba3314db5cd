#include "unstacking.hpp"

#include <cstring>

#include "bytes.hpp"
#include "processor.hpp"

namespace framestow {
namespace {

// The compiler turns a copy or comparison of a fixed number of bytes into single instructions.
template <std::size_t kBytes>
bool pieces_equal(const std::uint8_t* frame, const std::uint8_t* pieces, std::size_t count, std::size_t step) {
    std::uint8_t differences = 0;
    for (std::size_t piece = 0; piece < count; ++piece) {
        for (std::size_t byte = 0; byte < kBytes; ++byte) {
            differences =
                static_cast<std::uint8_t>(differences | (frame[piece * kBytes + byte] ^ pieces[piece * step + byte]));
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

// Compares the oldest `num_shown` frames, oldest first, in one pass: half the time of one for each.
bool words_equal_frames(const std::uint8_t* const (&frames)[kWordFrames], const std::uint8_t* observation,
                        std::size_t count, std::size_t num_shown) {
    std::size_t pixel = 0;
#ifdef FRAMESTOW_SSE2
    const auto load = [](const std::uint8_t* bytes) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    };
    __m128i differences = _mm_setzero_si128();
    for (; pixel + 16 <= count; pixel += 16) {
        const __m128i first = load(frames[0] + pixel), second = load(frames[1] + pixel);
        const __m128i third = load(frames[2] + pixel), fourth = load(frames[3] + pixel);
        const __m128i low_old = _mm_unpacklo_epi8(first, second), high_old = _mm_unpackhi_epi8(first, second);
        const __m128i low_new = _mm_unpacklo_epi8(third, fourth), high_new = _mm_unpackhi_epi8(third, fourth);
        const __m128i words[] = {_mm_unpacklo_epi16(low_old, low_new), _mm_unpackhi_epi16(low_old, low_new),
                                 _mm_unpacklo_epi16(high_old, high_new), _mm_unpackhi_epi16(high_old, high_new)};
        for (std::size_t part = 0; part < 4; ++part) {
            const __m128i shown = load(observation + pixel * kWordFrames + 16 * part);
            differences = _mm_or_si128(differences, _mm_xor_si128(words[part], shown));
        }
    }
    const __m128i shown = _mm_set1_epi32(static_cast<int>(0xFFFFFFFFU >> 8 * (kWordFrames - num_shown)));
    differences = _mm_and_si128(differences, shown);
    if (_mm_movemask_epi8(_mm_cmpeq_epi8(differences, _mm_setzero_si128())) != 0xFFFF) {
        return false;
    }
#endif
    for (std::size_t place = 0; place < num_shown; ++place) {
        if (!words_equal_frame(frames[place] + pixel, observation + pixel * kWordFrames, place, count - pixel)) {
            return false;
        }
    }
    return true;
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
        case 1:
            return pieces_equal<1>(frame, pieces, count, step);
        case 3:
            return pieces_equal<3>(frame, pieces, count, step);
        case 4:
            return pieces_equal<4>(frame, pieces, count, step);
        default:
            return pieces_equal(frame, pieces, count, step, layout.piece_bytes);
    }
}

// Copies pieces of a fixed number of bytes, which the compiler turns into single instructions.
template <std::size_t kBytes>
void join_pieces(const std::uint8_t* frames, std::ptrdiff_t frame_step, std::size_t depth, std::size_t count,
                 std::uint8_t* out) {
    for (std::size_t piece = 0; piece < count; ++piece) {
        const std::uint8_t* from = frames + piece * kBytes;
        for (std::size_t frame = 0; frame < depth; ++frame, from += frame_step, out += kBytes) {
            std::memcpy(out, from, kBytes);
        }
    }
}

// Pixels of three bytes are copied as four: the next piece overwrites the fourth, and the last pixel is copied alone.
void join_colours(const std::uint8_t* frames, std::ptrdiff_t frame_step, std::size_t depth, std::size_t count,
                  std::uint8_t* out) {
    constexpr std::size_t kBytes = 3;
    for (std::size_t pixel = 0; pixel + 1 < count; ++pixel) {
        const std::uint8_t* from = frames + pixel * kBytes;
        for (std::size_t frame = 0; frame < depth; ++frame, from += frame_step, out += kBytes) {
            std::memcpy(out, from, kBytes + 1);
        }
    }
    join_pieces<kBytes>(frames + (count - 1) * kBytes, frame_step, depth, 1, out);
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

bool shows_newest_frames(const FrameStacks& stacks, std::size_t env_id, const std::uint8_t* observation,
                         const StackedLayout& layout, std::size_t num_shown) {
    const auto age = static_cast<std::size_t>(stacks.age(env_id));
    const auto frame_at = [&](std::size_t place) {
        const std::size_t steps_back = num_shown - 1 - place;
        return stacks.frame(env_id, steps_back > age ? 0 : age - steps_back);
    };
    if (is_pixel_words(layout) && num_shown + 1 >= kWordFrames && age + 1 >= num_shown) {
        const std::uint8_t* const any = stacks.frame(env_id, 0);  // in the place of the frame that is not compared
        return words_equal_frames({frame_at(0), frame_at(1), frame_at(2), num_shown == kWordFrames ? frame_at(3) : any},
                                  observation, layout.frame_bytes, num_shown);
    }
    for (std::size_t place = num_shown; place-- > 0;) {  // the newest frame first: it differs most often
        const bool is_zero = num_shown - 1 - place > age && stacks.padding() == StackPadding::kZeros;
        if (is_zero ? !is_zero_frame(observation, place, layout)
                    : !has_frame(frame_at(place), observation, place, layout)) {
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

bool is_padded(const std::uint8_t* observation, const StackedLayout& layout, StackPadding padding) {
    const std::size_t step = layout.depth * layout.piece_bytes;
    for (std::size_t place = 0; place + 1 < layout.depth; ++place) {
        if (padding == StackPadding::kZeros) {
            if (!is_zero_frame(observation, place, layout)) {
                return false;
            }
            continue;
        }
        const std::size_t size = layout.frame_bytes / layout.piece_bytes * step;
        for (std::size_t first = 0; first < size; first += step) {
            const std::uint8_t* const pieces = observation + first;
            if (std::memcmp(pieces + place * layout.piece_bytes, pieces + step - layout.piece_bytes,
                            layout.piece_bytes) != 0) {
                return false;
            }
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

void copy_older_frames(const std::uint8_t* observation, const StackedLayout& layout, std::uint8_t* frames) {
    for (std::size_t place = 0; place + 1 < layout.depth; ++place) {
        for (std::size_t first = 0; first < layout.frame_bytes;
             first += layout.piece_bytes, frames += layout.piece_bytes) {
            std::memcpy(frames, observation + first * layout.depth + place * layout.piece_bytes, layout.piece_bytes);
        }
    }
}

void join_frames(const std::uint8_t* frames, std::ptrdiff_t frame_step, const StackedLayout& layout,
                 std::uint8_t* observation) {
    const std::size_t count = layout.frame_bytes / layout.piece_bytes;
    switch (layout.piece_bytes) {
        case 1:
            return join_pieces<1>(frames, frame_step, layout.depth, count, observation);
        case 3:
            return join_colours(frames, frame_step, layout.depth, count, observation);
        case 4:
            return join_pieces<4>(frames, frame_step, layout.depth, count, observation);
        case 12:
            return join_pieces<12>(frames, frame_step, layout.depth, count, observation);
        default:
            for (std::size_t piece = 0; piece < count; ++piece) {
                const std::uint8_t* from = frames + piece * layout.piece_bytes;
                for (std::size_t frame = 0; frame < layout.depth; ++frame, from += frame_step) {
                    std::memcpy(observation, from, layout.piece_bytes);
                    observation += layout.piece_bytes;
                }
            }
    }
}

}  // namespace framestow
