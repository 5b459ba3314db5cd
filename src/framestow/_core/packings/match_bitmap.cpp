#include "match_bitmap.hpp"

#include <algorithm>

#if defined(__SSE2__) || defined(_M_X64)
#define FRAMESTOW_SSE2 1
#include <emmintrin.h>
#endif

namespace framestow {
namespace {

constexpr std::size_t kWordBits = 64;

inline std::uint64_t compare_part(const std::uint8_t* a, const std::uint8_t* b, std::size_t count) {
    std::uint64_t word = 0;
    for (std::size_t index = 0; index < count; ++index) {
        word |= static_cast<std::uint64_t>(a[index] == b[index] ? 1 : 0) << index;
    }
    return word;
}

inline std::uint64_t compare_word(const std::uint8_t* a, const std::uint8_t* b) {
#ifdef FRAMESTOW_SSE2
    std::uint64_t word = 0;
    for (unsigned part = 0; part < 4; ++part) {
        const __m128i left = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + 16 * part));
        const __m128i right = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 16 * part));
        const auto bits = static_cast<std::uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(left, right)));
        word |= static_cast<std::uint64_t>(bits) << (16 * part);
    }
    return word;
#else
    return compare_part(a, b, kWordBits);
#endif
}

}  // namespace

// One word more than the frame fills: its zeros end every match.
MatchBitmap::MatchBitmap(std::size_t frame_bytes) : frame_bytes_(frame_bytes), words_(frame_bytes / kWordBits + 2, 0) {}

void MatchBitmap::compare(const std::uint8_t* frame, const std::uint8_t* other) {
    const std::size_t num_whole = frame_bytes_ / kWordBits;
    for (std::size_t word = 0; word < num_whole; ++word) {
        words_[word] = compare_word(frame + word * kWordBits, other + word * kWordBits);
    }
    const std::size_t compared = num_whole * kWordBits;
    words_[num_whole] = compare_part(frame + compared, other + compared, frame_bytes_ - compared);
}

void MatchBitmap::compare_behind(const std::uint8_t* frame, std::size_t period) {
    const std::size_t num_words = (frame_bytes_ + kWordBits - 1) / kWordBits;
    for (std::size_t word = 0; word < num_words; ++word) {
        const std::size_t begin = word * kWordBits;
        const std::size_t end = std::min(begin + kWordBits, frame_bytes_);
        if (begin >= period && end - begin == kWordBits) {
            words_[word] = compare_word(frame + begin, frame + begin - period);
            continue;
        }
        std::uint64_t bits = 0;
        for (std::size_t index = begin; index < end; ++index) {
            const std::uint8_t behind = index >= period ? frame[index - period] : std::uint8_t{0};
            bits |= static_cast<std::uint64_t>(frame[index] == behind ? 1 : 0) << (index - begin);
        }
        words_[word] = bits;
    }
}

std::size_t MatchBitmap::next_long_match(std::size_t position) const {
    static_assert(kLongMatch == 10, "the shifts below add up to one less");
    std::uint64_t wanted = ~std::uint64_t{0} << (position % kWordBits);
    for (std::size_t word = position / kWordBits; word + 1 < words_.size(); ++word) {
        // Bit i of `here` (and `next`, as far as it is needed) says that so many bytes match from i on.
        std::uint64_t here = words_[word];
        std::uint64_t next = words_[word + 1];
        for (const unsigned shift : {1U, 2U, 4U, 2U}) {
            here &= here >> shift | next << (kWordBits - shift);
            next &= next >> shift;
        }
        if ((here & wanted) != 0) {
            return word * kWordBits + count_trailing_zeros(here & wanted);
        }
        wanted = ~std::uint64_t{0};
    }
    std::size_t end = frame_bytes_;
    while (end > position && matches(end - 1)) {
        --end;
    }
    return end;
}

}  // namespace framestow
