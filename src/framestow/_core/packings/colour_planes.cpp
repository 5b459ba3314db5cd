#include "colour_planes.hpp"

#include "../processor.hpp"

namespace framestow {
namespace {

constexpr std::size_t kPlanes = 3;  // red, green, blue

// Where the bytes of a frame stand: those of a pixel `plane_step` apart, those of a plane `pixel_step` apart.
struct Order {
    std::size_t pixel_step;
    std::size_t plane_step;
};

constexpr Order kPixels{kPlanes, 1};  // of a frame with channels last

constexpr Order planes_of(std::size_t num_pixels) { return Order{1, num_pixels}; }

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
                shuffles.bytes[byte / kTaken][read][byte % kTaken] =
                    static_cast<std::uint8_t>(read == plane ? pixel : 128);
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
const bool kHasShuffles = has_byte_shuffles();

// Returns how many pixels it moved: all but the last few.
__attribute__((target("ssse3"))) std::size_t rearrange_by_16(const std::uint8_t* from, Order from_order,
                                                             std::uint8_t* to, Order to_order, std::size_t num_pixels) {
    const bool joins = to_order.plane_step == 1;
    const Shuffles& shuffles = joins ? kJoining : kSplitting;
    const std::size_t read_distance = joins ? from_order.plane_step : kTaken;
    const std::size_t write_distance = joins ? kTaken : to_order.plane_step;
    std::size_t pixel = 0;
    for (; pixel + kTaken <= num_pixels; pixel += kTaken) {
        const std::uint8_t* const source = from + from_order.pixel_step * pixel;
        std::uint8_t* const target = to + to_order.pixel_step * pixel;
        const __m128i read[] = {load_vector(source), load_vector(source + read_distance),
                                load_vector(source + 2 * read_distance)};
        for (std::size_t written = 0; written < kPlanes; ++written) {
            const auto& places = shuffles.bytes[written];
            const __m128i bytes = _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(read[0], load_vector(places[0])),
                                                            _mm_shuffle_epi8(read[1], load_vector(places[1]))),
                                               _mm_shuffle_epi8(read[2], load_vector(places[2])));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(target + written * write_distance), bytes);
        }
    }
    return pixel;
}
#endif

void rearrange(const std::uint8_t* from, Order from_order, std::uint8_t* to, Order to_order, std::size_t num_pixels) {
    std::size_t pixel = 0;
#ifdef FRAMESTOW_ASKS_PROCESSOR
    pixel = kHasShuffles ? rearrange_by_16(from, from_order, to, to_order, num_pixels) : 0;
#endif
    for (; pixel < num_pixels; ++pixel) {
        for (std::size_t plane = 0; plane < kPlanes; ++plane) {
            to[to_order.pixel_step * pixel + to_order.plane_step * plane] =
                from[from_order.pixel_step * pixel + from_order.plane_step * plane];
        }
    }
}

}  // namespace

void join_planes(const std::uint8_t* planes, std::size_t num_pixels, std::uint8_t* pixels) {
    rearrange(planes, planes_of(num_pixels), pixels, kPixels, num_pixels);
}

void split_planes(const std::uint8_t* pixels, std::size_t num_pixels, std::uint8_t* planes) {
    rearrange(pixels, kPixels, planes, planes_of(num_pixels), num_pixels);
}

}  // namespace framestow
