// Byte spans, little-endian integers, and bit sets in words of 64 bits.
//
// Every number that framestow stores is little-endian on every machine. Ownership: a span owns nothing; its creator
// keeps the bytes alive and unchanged. Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

struct ByteSpan {
    const std::uint8_t* bytes = nullptr;
    std::size_t size = 0;
};

// Decoders may load, but never use, this many bytes after the end of a padded span.
inline constexpr std::size_t kReadPadding = 64;

inline std::uint16_t load_u16(const std::uint8_t* bytes) {
    return static_cast<std::uint16_t>(bytes[0] | (bytes[1] << 8));
}

inline std::uint32_t load_u32(const std::uint8_t* bytes) {
    return static_cast<std::uint32_t>(load_u16(bytes)) | (static_cast<std::uint32_t>(load_u16(bytes + 2)) << 16);
}

inline void store_u16(std::uint8_t* bytes, std::uint32_t value) {
    bytes[0] = static_cast<std::uint8_t>(value & 0xFF);
    bytes[1] = static_cast<std::uint8_t>((value >> 8) & 0xFF);
}

inline void store_u32(std::uint8_t* bytes, std::uint32_t value) {
    store_u16(bytes, value & 0xFFFF);
    store_u16(bytes + 2, value >> 16);
}

inline void append_u32(std::vector<std::uint8_t>& bytes, std::uint32_t value) {
    bytes.resize(bytes.size() + 4);
    store_u32(bytes.data() + bytes.size() - 4, value);
}

// Returns how many of `count` records of `record_bytes` have a number below `wanted`. Each begins with its number, u32;
// the numbers ascend, except in damaged bytes.
inline std::size_t count_below(const std::uint8_t* records, std::size_t count, std::size_t record_bytes,
                               std::size_t wanted) {
    std::size_t first = 0;
    while (count > 0) {
        const std::size_t half = count / 2;
        if (load_u32(records + (first + half) * record_bytes) < wanted) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

constexpr std::size_t kBitsPerWord = 64;

inline bool has_bit(const std::uint64_t* words, std::size_t place) {
    return (words[place / kBitsPerWord] >> (place % kBitsPerWord) & 1) != 0;
}

inline void flip_bit(std::uint64_t* words, std::size_t place) {
    words[place / kBitsPerWord] ^= std::uint64_t{1} << (place % kBitsPerWord);
}

inline std::uint64_t count_bits(std::uint64_t word) {
    word -= (word >> 1) & 0x5555555555555555U;
    word = (word & 0x3333333333333333U) + ((word >> 2) & 0x3333333333333333U);
    return ((word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FU) * 0x0101010101010101U >> 56;
}

inline std::uint64_t count_bits(const std::uint64_t* words, std::size_t num_words) {
    std::uint64_t count = 0;
    for (std::size_t at = 0; at < num_words; ++at) {
        count += count_bits(words[at]);
    }
    return count;
}

// Returns the place of the set bit with `rank` set bits before it. Branchless: the comparisons are unpredictable.
inline std::size_t place_of(const std::uint64_t* words, std::uint64_t rank) {
    std::size_t place = 0;
    for (std::uint64_t count = count_bits(*words); count <= rank; count = count_bits(*++words)) {
        rank -= count;
        place += kBitsPerWord;
    }
    std::uint64_t word = *words;
    for (std::size_t half = kBitsPerWord / 2; half != 0; half /= 2) {
        const std::uint64_t num_lower = count_bits(word & ((std::uint64_t{1} << half) - 1));
        const std::uint64_t is_upper = num_lower <= rank ? 1 : 0;
        rank -= num_lower & (0 - is_upper);
        place += half * static_cast<std::size_t>(is_upper);
        word >>= half * static_cast<std::size_t>(is_upper);
    }
    return place;
}

template <typename Use>
inline void each_bit(const std::uint64_t* words, std::size_t num_words, Use use) {
    for (std::size_t start = 0; start < num_words; ++start) {
        for (std::uint64_t word = words[start], bit = 0; word != 0; word >>= 1, ++bit) {
            if ((word & 1) != 0) {
                use(start * kBitsPerWord + static_cast<std::size_t>(bit));
            }
        }
    }
}

}  // namespace framestow
