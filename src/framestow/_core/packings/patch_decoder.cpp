#include "patch_decoder.hpp"

#include "../damaged_segment.hpp"
#include "patch_format.hpp"

#if defined(__SSE2__) || defined(_M_X64)
#define FRAMESTOW_SSE2 1
#include <emmintrin.h>
#endif

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kChunk = 16;  // bytes written at once

#ifdef FRAMESTOW_SSE2
alignas(64) constexpr std::uint8_t kMasks[2 * kChunk] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
                                                         255, 255, 255, 255, 255, 0,   0,   0,   0,   0,   0,
                                                         0,   0,   0,   0,   0,   0,   0,   0,   0,   0};
#endif

// Copies `length` bytes, at most kChunk. A load, a blend and a store without a branch: most operations of a game are
// a few bytes long, and a mispredicted length costs more than the three instructions.
inline void copy_short(std::uint8_t* target, const std::uint8_t* source, std::size_t length) {
#ifdef FRAMESTOW_SSE2
    const __m128i mask = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMasks + kChunk - length));
    const __m128i fresh = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    const __m128i kept = _mm_loadu_si128(reinterpret_cast<const __m128i*>(target));
    const __m128i blended = _mm_or_si128(_mm_and_si128(mask, fresh), _mm_andnot_si128(mask, kept));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), blended);
#else
    std::memmove(target, source, length);
#endif
}

// Copies forward where source and target may overlap at a distance of `period` (source = target - period).
inline void copy_from_behind(std::uint8_t* target, std::size_t period, std::size_t length) {
    const std::uint8_t* source = target - period;
    if (period >= length) {
        std::memcpy(target, source, length);
    } else if (period == 1) {
        std::memset(target, *source, length);
    } else {
        for (std::size_t index = 0; index < length; ++index) {
            target[index] = source[index];
        }
    }
}

[[noreturn]] void throw_damaged(const char* what) { throw DamagedSegment(what); }

std::size_t read_varint(const std::uint8_t*& cursor, const std::uint8_t* end) {
    std::size_t value = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        if (cursor >= end) {
            throw_damaged("patch ends within its literal count");
        }
        const std::uint8_t byte = *cursor++;
        value |= static_cast<std::size_t>(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    throw_damaged("literal count of a patch is longer than five bytes");
}

template <bool kSelfCoded>
std::size_t decode(ByteSpan packed, const FrameGeometry& geometry, const std::uint8_t* base, std::uint8_t* frame) {
    const std::size_t row_bytes = geometry.row_bytes;
    const std::size_t pixel_bytes = geometry.pixel_bytes;
    const std::uint8_t* const packed_end = packed.bytes + packed.size;
    const std::uint8_t* literals = packed.bytes;
    const std::size_t num_literals = read_varint(literals, packed_end);
    if (num_literals > static_cast<std::size_t>(packed_end - literals)) {
        throw_damaged("patch has fewer literals than it says");
    }
    const std::uint8_t* cursor = literals + num_literals;
    const std::uint8_t* const literals_end = cursor;
    std::uint8_t* target = frame;
    std::uint8_t* const frame_end = frame + geometry.frame_bytes();

    for (;;) {
        if (cursor >= packed_end) {
            throw_damaged("patch ends without its end mark");
        }
        std::size_t skip = *cursor++;
        if (skip >= kDirectSkips) {
            if (skip == kEnd) {
                break;
            }
            const bool is_wide = skip == kSkip32;
            skip = is_wide ? load_u32(cursor) : kDirectSkips + load_u16(cursor);
            cursor += is_wide ? 4 : 2;
        }
        const unsigned token = *cursor++;
        std::size_t length = (token & kLengthMask) + 1;
        if (length > kDirectLengths) {
            const bool is_wide = length == kLength32 + 1;
            length = is_wide ? load_u32(cursor) : kDirectLengths + 1 + load_u16(cursor);
            cursor += is_wide ? 4 : 2;
        }
        const auto left = static_cast<std::size_t>(frame_end - target);
        if (skip > left || length > left - skip) {
            throw_damaged("operation of a patch reaches past the frame");
        }
        if (kSelfCoded) {
            copy_from_behind(target, row_bytes, skip);
        }
        target += skip;
        const auto source = static_cast<Source>(token >> kSourceShift);
        if (source == Source::kRun) {
            copy_from_behind(target, pixel_bytes, length);
        } else if (source == Source::kUp) {
            if (length <= kChunk && row_bytes >= kChunk) {
                copy_short(target, target - row_bytes, length);
            } else {
                copy_from_behind(target, row_bytes, length);
            }
        } else {
            const std::uint8_t* from = literals;
            if (source == Source::kLiteral) {
                if (length > static_cast<std::size_t>(literals_end - literals)) {
                    throw_damaged("patch uses more literals than it has");
                }
                literals += length;
            } else {
                if (kSelfCoded) {
                    throw_damaged("self-coded frame refers to the base frame");
                }
                from = base + (target - frame);
            }
            if (length <= kChunk) {
                copy_short(target, from, length);
            } else {
                std::memcpy(target, from, length);
            }
        }
        target += length;
    }
    if (kSelfCoded) {
        copy_from_behind(target, row_bytes, static_cast<std::size_t>(frame_end - target));
    }
    return static_cast<std::size_t>(cursor - packed.bytes);
}

}  // namespace

std::size_t decode_self_coded(ByteSpan packed, const FrameGeometry& geometry, FrameBuffer& frame) {
    return decode<true>(packed, geometry, nullptr, frame.frame());
}

std::size_t apply_patch(ByteSpan packed, const FrameGeometry& geometry, const FrameBuffer& base, FrameBuffer& frame) {
    return decode<false>(packed, geometry, base.frame(), frame.frame());
}

}  // namespace framestow
