// The bytes of a patch: one frame as changes of another. docs/codec.md draws it.
//
//   patch      = num_literals (varint) · literals · operations · end (0xFF)
//   operation  = skip · kind and length · [length extension]
//   skip       = 0..252, or 253 and 2 bytes (253 + value), or 254 and 4 bytes (value)
//   kind and length = kind in the top 2 bits, code in the low 6: length code + 1 for code 0..61,
//                     62 and 2 bytes (63 + value), or 63 and 4 bytes (value)
//
// An operation leaves `skip` bytes as they are in the frame that is patched (in a self-coded frame: copies them from
// the row above) and then writes `length` bytes from its source. Rows above the first are zeros, and so is the pixel
// before the first. Literals stand before the operations so that both are read without waiting for each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framestow::patch_format {

enum class Source : std::uint8_t {
    kLiteral = 0,  // the next literals
    kRun = 1,      // the pixel just before, repeated
    kUp = 2,       // the same columns of the row above, as already rebuilt
    kBase = 3,     // the same place of the segment's base frame; not in a self-coded frame
};

inline constexpr std::uint8_t kEnd = 0xFF;
inline constexpr std::uint8_t kSkip32 = 254;
inline constexpr std::uint8_t kSkip16 = 253;
inline constexpr std::size_t kDirectSkips = 253;
inline constexpr unsigned kLength32 = 63;
inline constexpr unsigned kLength16 = 62;
inline constexpr std::size_t kDirectLengths = 62;
inline constexpr unsigned kSourceShift = 6;
inline constexpr unsigned kLengthMask = 0x3F;

}  // namespace framestow::patch_format
