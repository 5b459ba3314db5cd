// Which bytes of a frame are those of another frame, or those that stand before them: bit i is byte i.
//
// Compares 16 bytes at a time where SSE2 is there (every x86-64), byte by byte elsewhere; both give the same bits.
// Behind the frame stand zeros, which end every match. Owns its words; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../byte_span.hpp"

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace framestow {

inline unsigned count_trailing_zeros(std::uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return static_cast<unsigned>(__builtin_ctzll(word));
#elif defined(_MSC_VER) && defined(_WIN64)
    unsigned long index = 0;
    _BitScanForward64(&index, word);
    return static_cast<unsigned>(index);
#else
    unsigned count = 0;
    for (; (word & 1U) == 0; word >>= 1) {
        ++count;
    }
    return count;
#endif
}

inline std::uint64_t load_u64(const std::uint8_t* bytes) {
    return load_u32(bytes) | static_cast<std::uint64_t>(load_u32(bytes + 4)) << 32;
}

// How many bytes of `a` and `b` agree from the first on; both hold `size`.
inline std::size_t agreeing_bytes(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
    std::size_t position = 0;
    for (; position + 8 <= size; position += 8) {
        const std::uint64_t difference = load_u64(a + position) ^ load_u64(b + position);
        if (difference != 0) {
            return position + count_trailing_zeros(difference) / 8;
        }
    }
    while (position < size && a[position] == b[position]) {
        ++position;
    }
    return position;
}

class MatchBitmap {
public:
    static constexpr std::size_t kLongMatch = 10;

    explicit MatchBitmap(std::size_t frame_bytes);

    // With another frame, at the same places.
    void compare(const std::uint8_t* frame, const std::uint8_t* other);

    // With the same frame `period` bytes before; bytes before the frame count as zeros.
    void compare_behind(const std::uint8_t* frame, std::size_t period);

    // How many matching bytes follow one another from `position` (at most frame_bytes) on.
    std::size_t match_length(std::size_t position) const {
        const std::uint64_t* word = words_.data() + position / 64;
        const auto shift = static_cast<unsigned>(position % 64);
        const std::uint64_t unequal = ~*word >> shift;
        if (unequal != 0) {
            return count_trailing_zeros(unequal);
        }
        std::size_t length = 64 - shift;
        while (*++word == ~std::uint64_t{0}) {
            length += 64;
        }
        return length + count_trailing_zeros(~*word);
    }

    // The first place from `position` on where kLongMatch bytes match, or from where on all do, or the frame's end.
    std::size_t next_long_match(std::size_t position) const;

    std::size_t nbytes() const { return words_.capacity() * sizeof(std::uint64_t); }

private:
    bool matches(std::size_t position) const { return (words_[position / 64] >> (position % 64) & 1U) != 0; }

    std::size_t frame_bytes_;
    std::vector<std::uint64_t> words_;
};

}  // namespace framestow
