#include "cheapest_pixels.hpp"

#include <algorithm>

#include "../processor.hpp"

namespace framestow {
namespace {

constexpr std::uint8_t kMost = 255;  // cost of what is impossible

// What a pixel costs from here on, relative to the cheapest way, may be below it by the cost of opening.
constexpr std::uint8_t kCheapest = 8;

struct Pixel {
    std::uint8_t red, green, blue;
    bool operator==(const Pixel& other) const { return red == other.red && green == other.green && blue == other.blue; }
};

inline Pixel pixel_at(const std::uint8_t* bytes) { return Pixel{bytes[0], bytes[1], bytes[2]}; }

// Which of the same, near and far copies of `source` give `pixel`.
inline unsigned likenesses(const Pixel& pixel, const Pixel& source, unsigned same, unsigned near, unsigned far) {
    const auto green = static_cast<std::uint8_t>(pixel.green - source.green);
    const auto red = static_cast<std::uint8_t>(pixel.red - source.red - green);
    const auto blue = static_cast<std::uint8_t>(pixel.blue - source.blue - green);
    const auto is_below = [](unsigned value, unsigned offset, unsigned end) {
        return static_cast<std::uint8_t>(value + offset) < end;
    };
    const bool is_near = is_below(green, 8, 16) && is_below(red, 2, 4) && is_below(blue, 2, 4);
    const bool is_far = is_below(red, 8, 16) && is_below(blue, 8, 16);
    return ((green | red | blue) == 0 ? same : 0U) | (is_near ? near : 0U) | (is_far ? far : 0U);
}

}  // namespace

CheapestPixels::CheapestPixels(std::size_t num_pixels)
    : sources_(num_pixels), kinds_(num_pixels), continuing_(num_pixels) {}

std::size_t CheapestPixels::nbytes() const {
    return sources_.capacity() + kinds_.capacity() * sizeof(Kind) + continuing_.capacity() * sizeof(std::uint16_t);
}

void CheapestPixels::find(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end) {
    find_sources(pictures, is_self_coded, begin, end);
    walk_back(is_self_coded ? kInBase : kInPatches, begin, end);
}

// In a self-coded frame the kept pixels are those of the row above.
void CheapestPixels::find_sources(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end) {
    constexpr Pixel black{0, 0, 0};
    const std::size_t row_pixels = pictures.row_bytes / 3;
    for (std::size_t place = begin; place < end; ++place) {
        const std::uint8_t* const here = pictures.frame + 3 * place;
        const Pixel pixel = pixel_at(here);
        const Pixel above = place < row_pixels ? black : pixel_at(here - pictures.row_bytes);
        unsigned sources = pixel == (place == 0 ? black : pixel_at(here - 3)) ? 1U << kRun : 0U;
        if (is_self_coded) {
            sources |= likenesses(pixel, above, 1U << kKeep, 1U << kNearKept, 1U << kFarKept);
        } else {
            sources |= likenesses(pixel, above, 1U << kUp, 1U << kNearUp, 1U << kFarUp);
            sources |= likenesses(pixel, pixel_at(pictures.previous + 3 * place), 1U << kKeep, 1U << kNearKept,
                                  1U << kFarKept);
            sources |= pixel == pixel_at(pictures.base + 3 * place) ? 1U << kBase : 0U;
        }
        sources_[place] = static_cast<std::uint8_t>(sources);
    }
}

// A pixel's costs are those of writing it and all behind it, if an operation of that kind is open. All are relative to
// opening the cheapest one, which counts as kCheapest.
void CheapestPixels::walk_back(const Costs& opening, std::size_t begin, std::size_t end) {
#ifdef FRAMESTOW_SSE2
    const auto load = [](const Costs& costs) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(costs.data()));
    };
    const __m128i per_pixel = load(kPerPixel);
    const __m128i to_open = load(opening);
    const __m128i bits = load(Costs{1, 2, 4, 8, 16, 32, 64, 128});
    const __m128i cheapest = _mm_set1_epi8(static_cast<char>(kCheapest));
    __m128i costs = _mm_set1_epi8(static_cast<char>(kMost));
    for (std::size_t pixel = end; pixel-- > begin;) {
        const __m128i sources = _mm_and_si128(_mm_set1_epi8(static_cast<char>(sources_[pixel])), bits);
        const __m128i is_possible = _mm_cmpeq_epi8(sources, bits);
        const __m128i written = _mm_adds_epu8(_mm_min_epu8(costs, cheapest), per_pixel);
        const __m128i open = _mm_or_si128(_mm_andnot_si128(is_possible, _mm_set1_epi8(-1)), written);
        const __m128i opened = _mm_adds_epu8(open, to_open);
        __m128i least = _mm_min_epu8(opened, _mm_srli_si128(opened, 8));
        least = _mm_min_epu8(least, _mm_srli_si128(least, 4));
        least = _mm_min_epu8(least, _mm_srli_si128(least, 2));
        least = _mm_min_epu8(least, _mm_srli_si128(least, 1));
        const int value = _mm_cvtsi128_si32(least) & 0xFF;
        const auto is_least =
            static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(opened, _mm_set1_epi8(static_cast<char>(value)))));
        kinds_[pixel] = static_cast<Kind>(count_trailing_zeros(is_least));
        costs = _mm_subs_epu8(open, _mm_set1_epi8(static_cast<char>(value - kCheapest)));
        continuing_[pixel] =
            static_cast<std::uint16_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(costs, cheapest), costs)));
    }
#else
    Costs costs;
    costs.fill(kMost);
    for (std::size_t pixel = end; pixel-- > begin;) {
        int least = 2 * kMost;
        for (std::size_t kind = 0; kind < kNumKinds; ++kind) {
            const bool is_possible = kind == kLiteral || (sources_[pixel] >> kind & 1U) != 0;
            const int open = is_possible ? std::min(costs[kind], kCheapest) + kPerPixel[kind] : kMost;
            costs[kind] = static_cast<std::uint8_t>(open);
            if (open + opening[kind] < least) {
                least = open + opening[kind];
                kinds_[pixel] = static_cast<Kind>(kind);
            }
        }
        unsigned continuing = 0;
        for (std::size_t kind = 0; kind < kNumKinds; ++kind) {
            costs[kind] = static_cast<std::uint8_t>(costs[kind] - (least - kCheapest));
            continuing |= costs[kind] <= kCheapest ? 1U << kind : 0U;
        }
        continuing_[pixel] = static_cast<std::uint16_t>(continuing);
    }
#endif
}

}  // namespace framestow
