// Views of bytes and little-endian reading and writing.
//
// Ownership: a span owns nothing; whoever made it keeps the bytes alive and unchanged while it is used.
// Threads: plain values. Damaged bytes: nothing is interpreted here.
// Every number that framestow stores is little-endian, whatever the machine is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

struct ByteSpan {
    const std::uint8_t* bytes = nullptr;
    std::size_t size = 0;
};

// Decoders may load (never use) this many bytes past the end of a span that is said to be padded.
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

}  // namespace framestow
