#include "colour_planes.hpp"

#include "../processor.hpp"

namespace framestow {
namespace {

constexpr std::size_t kPlanes = 3;

void join_one_by_one(const std::uint8_t* planes, std::size_t begin, std::size_t num_pixels, std::uint8_t* pixels) {
    for (std::size_t pixel = begin; pixel < num_pixels; ++pixel) {
        for (std::size_t plane = 0; plane < kPlanes; ++plane) {
            pixels[kPlanes * pixel + plane] = planes[plane * num_pixels + pixel];
        }
    }
}

void split_one_by_one(const std::uint8_t* pixels, std::size_t begin, std::size_t num_pixels, std::uint8_t* planes) {
    for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        for (std::size_t pixel = begin; pixel < num_pixels; ++pixel) {
            planes[plane * num_pixels + pixel] = pixels[kPlanes * pixel + plane];
        }
    }
}

#ifdef FRAMESTOW_ASKS_PROCESSOR
constexpr std::size_t kTaken = 16;  // pixels at a time: three vectors

// For each of three vectors written, and each of three read: which byte of the second goes where; 128: none.
struct Shuffles {
    alignas(16) std::uint8_t bytes[kPlanes][kPlanes][kTaken];
};

constexpr Shuffles make_shuffles(bool joins) {
    Shuffles shuffles{};
    for (std::size_t byte = 0; byte < kPlanes * kTaken; ++byte) {
        const std::size_t plane = byte % kPlanes, pixel = byte / kPlanes;
        for (std::size_t read = 0; read < kPlanes; ++read) {
            if (joins) {
                shuffles.bytes[byte / kTaken][read][byte % kTaken] = static_cast<std::uint8_t>(read == plane ? pixel : 128);
            } else {
                shuffles.bytes[plane][read][pixel] =
                    static_cast<std::uint8_t>(read == byte / kTaken ? byte % kTaken : 128);
            }
        }
    }
    return shuffles;
}

constexpr Shuffles kJoining = make_shuffles(true);
constexpr Shuffles kSplitting = make_shuffles(false);

inline __m128i load(const std::uint8_t* bytes) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)); }

// Reads three vectors `read_distance` apart and writes three that are `write_distance` apart.
__attribute__((target("ssse3"))) inline void shuffle_16(const std::uint8_t* from, std::size_t read_distance,
                                                        const Shuffles& shuffles, std::uint8_t* to,
                                                        std::size_t write_distance) {
    const __m128i read[] = {load(from), load(from + read_distance), load(from + 2 * read_distance)};
    for (std::size_t written = 0; written < kPlanes; ++written) {
        const auto& places = shuffles.bytes[written];
        const __m128i bytes = _mm_or_si128(
            _mm_or_si128(_mm_shuffle_epi8(read[0], load(places[0])), _mm_shuffle_epi8(read[1], load(places[1]))),
            _mm_shuffle_epi8(read[2], load(places[2])));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + written * write_distance), bytes);
    }
}

__attribute__((target("ssse3"))) std::size_t join_by_16(const std::uint8_t* planes, std::size_t num_pixels,
                                                        std::uint8_t* pixels) {
    std::size_t pixel = 0;
    for (; pixel + kTaken <= num_pixels; pixel += kTaken) {
        shuffle_16(planes + pixel, num_pixels, kJoining, pixels + kPlanes * pixel, kTaken);
    }
    return pixel;
}

__attribute__((target("ssse3"))) std::size_t split_by_16(const std::uint8_t* pixels, std::size_t num_pixels,
                                                         std::uint8_t* planes) {
    std::size_t pixel = 0;
    for (; pixel + kTaken <= num_pixels; pixel += kTaken) {
        shuffle_16(pixels + kPlanes * pixel, kTaken, kSplitting, planes + pixel, num_pixels);
    }
    return pixel;
}

const bool kHasShuffles = [] {
    __builtin_cpu_init();  // this runs before main
    return __builtin_cpu_supports("ssse3") != 0;
}();
#endif

}  // namespace

void join_planes(const std::uint8_t* planes, std::size_t num_pixels, std::uint8_t* pixels) {
    std::size_t joined = 0;
#ifdef FRAMESTOW_ASKS_PROCESSOR
    joined = kHasShuffles ? join_by_16(planes, num_pixels, pixels) : 0;
#endif
    join_one_by_one(planes, joined, num_pixels, pixels);
}

void split_planes(const std::uint8_t* pixels, std::size_t num_pixels, std::uint8_t* planes) {
    std::size_t split = 0;
#ifdef FRAMESTOW_ASKS_PROCESSOR
    split = kHasShuffles ? split_by_16(pixels, num_pixels, planes) : 0;
#endif
    split_one_by_one(pixels, split, num_pixels, planes);
}

}  // namespace framestow
