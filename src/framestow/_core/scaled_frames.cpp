#include "scaled_frames.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "checksum.hpp"
#include "processor.hpp"
#include "segment_header.hpp"

#ifdef FRAMESTOW_ASKS_PROCESSOR
#include <cpuid.h>
#endif

namespace framestow {
namespace {

constexpr std::size_t kNumPixels = 256;  // values of a pixel
constexpr std::uint8_t kMagic[4] = {'s', 'c', 'a', '1'};

template <typename Value>
Value load_as(const std::uint8_t* bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

// k / 255 = k / 256 + k / 65280. The first product is exact, and the bits of k / 255 repeat with period 8, so no tie of
// two floats is near: the sum is the nearest float for every k (a test compares all). It is faster than a division.
constexpr float kHead = 1.0F / 256;
constexpr float kTail = 1.0F / 65280;

inline float scaled_float(float pixel) { return pixel * kHead + pixel * kTail; }

struct HalfTables {
    std::array<std::uint16_t, kNumPixels> halves{};
    std::array<std::uint8_t, 0x3C01> pixels{};  // by the bits of a half from 0 to 1

    HalfTables() {
        for (std::size_t pixel = 1; pixel < kNumPixels; ++pixel) {
            int exponent = 0;
            const double fraction = std::frexp(static_cast<double>(pixel) / 255, &exponent);  // in [0.5, 1)
            const auto mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));
            halves[pixel] = static_cast<std::uint16_t>(((exponent + 14) << 10) + mantissa - 1024);
            pixels[halves[pixel]] = static_cast<std::uint8_t>(pixel);
        }
    }
};

const HalfTables& half_tables() {
    static const HalfTables tables;
    return tables;
}

bool halves_to_pixels(const std::uint8_t* floats, std::size_t count, std::uint8_t* pixels) {
    const HalfTables& tables = half_tables();
    bool are_scaled = true;
    for (std::size_t index = 0; index < count; ++index) {
        const auto bits = load_as<std::uint16_t>(floats + 2 * index);
        const std::uint8_t pixel = bits < tables.pixels.size() ? tables.pixels[bits] : 0;
        pixels[index] = pixel;
        are_scaled = are_scaled && tables.halves[pixel] == bits;
    }
    return are_scaled;
}

// Only one float is nearest to k, so its pixel is found by rounding; comparing bits finds all others, NaN too. In
// blocks, so that a frame of other floats is left early.
template <typename Float, typename Bits, typename Scale>
bool floats_to_pixels(const std::uint8_t* floats, std::size_t count, std::uint8_t* pixels, const Scale& scale) {
    constexpr std::size_t kBlock = 256;
    for (std::size_t begin = 0; begin < count; begin += kBlock) {
        const std::size_t end = begin + kBlock < count ? begin + kBlock : count;
        Bits differing = 0;
        for (std::size_t index = begin; index < end; ++index) {
            Float rounded = load_as<Float>(floats + index * sizeof(Float)) * Float{255} + Float{0.5};
            rounded = rounded > Float{0} ? rounded : Float{0};  // NaN becomes 0
            rounded = rounded < Float{255.5} ? rounded : Float{255.5};
            const auto pixel = static_cast<std::int32_t>(rounded);
            const Float scaled = scale(static_cast<Float>(pixel));
            Bits bits;
            std::memcpy(&bits, &scaled, sizeof bits);
            differing |= bits ^ load_as<Bits>(floats + index * sizeof(Float));
            pixels[index] = static_cast<std::uint8_t>(pixel);
        }
        if (differing != 0) {
            return false;
        }
    }
    return true;
}

void to_halves(const std::uint8_t* pixels, std::size_t count, std::uint8_t* floats) {
    const HalfTables& tables = half_tables();
    for (std::size_t index = 0; index < count; ++index) {
        std::memcpy(floats + 2 * index, &tables.halves[pixels[index]], 2);
    }
}

void to_floats(const std::uint8_t* pixels, std::size_t count, std::uint8_t* floats) {
    for (std::size_t index = 0; index < count; ++index) {
        const float scaled = scaled_float(static_cast<float>(pixels[index]));
        std::memcpy(floats + 4 * index, &scaled, 4);
    }
}

void to_doubles(const std::uint8_t* pixels, std::size_t count, std::uint8_t* floats) {
    for (std::size_t index = 0; index < count; ++index) {
        const double scaled = static_cast<double>(pixels[index]) / 255;
        std::memcpy(floats + 8 * index, &scaled, 8);
    }
}

#ifdef FRAMESTOW_ASKS_PROCESSOR

// Clang 14 does not know __builtin_cpu_supports("f16c").
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

__attribute__((target("avx2"))) inline __m256 eight_floats(const std::uint8_t* pixels) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pixels));
    const __m256 values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    return _mm256_add_ps(_mm256_mul_ps(values, _mm256_set1_ps(kHead)), _mm256_mul_ps(values, _mm256_set1_ps(kTail)));
}

__attribute__((target("avx2"))) void to_floats_by_eight(const std::uint8_t* pixels, std::size_t count,
                                                        std::uint8_t* floats) {
    const std::size_t whole = count / 8 * 8;
    for (std::size_t index = 0; index < whole; index += 8) {
        _mm256_storeu_ps(reinterpret_cast<float*>(floats + 4 * index), eight_floats(pixels + index));
    }
    to_floats(pixels + whole, count - whole, floats + 4 * whole);
}

// The nearest half of the nearest float is the nearest half of k / 255: no tie is near, for the reason above.
__attribute__((target("avx2,f16c"))) void to_halves_by_eight(const std::uint8_t* pixels, std::size_t count,
                                                             std::uint8_t* floats) {
    const std::size_t whole = count / 8 * 8;
    for (std::size_t index = 0; index < whole; index += 8) {
        const __m128i halves = _mm256_cvtps_ph(eight_floats(pixels + index), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(floats + 2 * index), halves);
    }
    to_halves(pixels + whole, count - whole, floats + 2 * whole);
}

#endif

[[noreturn]] void refuse_parts(ByteSpan segment) {
    throw DamagedSegment("segment of " + std::to_string(segment.size) + " bytes is not a segment of scaled floats");
}

}  // namespace

bool to_pixels(const std::uint8_t* floats, std::size_t count, std::uint32_t float_bytes, std::uint8_t* pixels) {
    if (float_bytes == 2) {
        return halves_to_pixels(floats, count, pixels);
    }
    if (float_bytes == 4) {
        return floats_to_pixels<float, std::uint32_t>(floats, count, pixels, scaled_float);
    }
    return floats_to_pixels<double, std::uint64_t>(floats, count, pixels, [](double pixel) { return pixel / 255; });
}

void from_pixels(const std::uint8_t* pixels, std::size_t count, std::uint32_t float_bytes, std::uint8_t* floats) {
#ifdef FRAMESTOW_ASKS_PROCESSOR
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    static const bool has_halves = has_avx2 && has_f16c();
    if (float_bytes == 4 && has_avx2) {
        return to_floats_by_eight(pixels, count, floats);
    }
    if (float_bytes == 2 && has_halves) {
        return to_halves_by_eight(pixels, count, floats);
    }
#endif
    return float_bytes == 2   ? to_halves(pixels, count, floats)
           : float_bytes == 4 ? to_floats(pixels, count, floats)
                              : to_doubles(pixels, count, floats);
}

ScaledParts scaled_parts(ByteSpan segment) {
    if (segment.size < kScaledHeaderBytes || std::memcmp(segment.bytes + 4, kMagic, sizeof kMagic) != 0) {
        refuse_parts(segment);
    }
    const std::uint64_t pixel_bytes = load_u32(segment.bytes + 8);
    const std::uint64_t num_exact = num_exact_of(segment);
    const std::uint64_t exact_begin = kScaledHeaderBytes + pixel_bytes + num_exact * kPlaceBytes;
    if (exact_begin > segment.size) {
        refuse_parts(segment);
    }
    const std::uint8_t* const pixels = segment.bytes + kScaledHeaderBytes;
    return ScaledParts{ByteSpan{pixels, static_cast<std::size_t>(pixel_bytes)},
                       ExactPlaces{pixels + pixel_bytes, static_cast<std::size_t>(num_exact)},
                       ByteSpan{segment.bytes + exact_begin, segment.size - static_cast<std::size_t>(exact_begin)}};
}

void write_scaled_header(std::uint8_t* segment, std::size_t size, std::size_t pixel_segment_bytes,
                         std::size_t num_exact) {
    std::memcpy(segment + 4, kMagic, sizeof kMagic);
    store_u32(segment + 8, static_cast<std::uint32_t>(pixel_segment_bytes));
    store_u32(segment + 12, static_cast<std::uint32_t>(num_exact));
    store_u32(segment, crc32c(ByteSpan{segment + 4, size - 4}));
}

}  // namespace framestow
