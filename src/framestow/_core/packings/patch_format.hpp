// The bytes of a patch: one frame as changes of another. docs/packing.md draws it.
//
// A patch is operations, then kEnd. Each operation writes the next bytes of the frame, from left to right and top to
// bottom, and may be followed by a number of bytes to keep. Bytes that remain at the end are kept. The low 7 bits of an
// operation's first byte give its kind and length, the top bit says whether kept bytes follow:
//
//   0..39     literal   1..40 bytes, which follow
//   40..67    up        1..28 bytes of the row above, as already rebuilt
//   68..83    base      1..16 bytes at the same place of the segment's base frame; not in a self-coded frame
//   84..99    run       1..16 bytes, each equal to the one a pixel before it
//   100       nothing   (only keeps)
//   101..114  repeat    the 4..17 bytes of operations at the place that follows (2 bytes: from the body's start)
//   115..118  literal, up, base, run of the longest direct length + 1 + the byte that follows
//   119..122  literal, up, base, run of the length in the 2 bytes that follow
//   123       repeat    18 + the byte that follows bytes, at the place in the 2 bytes after it
//   124       reference: the patch changes the anchor of the group in the byte that follows, not the usual frame; only
//             as a patch's first operation
//   125       repeat    4 + the byte that follows bytes, at the place in the 3 bytes after it
//   127       the end
//
// Those are the codes of encoding 1, which counts bytes. Encoding 2 is for frames of 3-byte pixels: every length, and
// every number of kept bytes, counts whole pixels. It has four more sources and no lengths of two bytes:
//
//   0..15     literal    1..16 pixels, which follow
//   16..31    up         1..16 pixels of the row above
//   32..39    base       1..8
//   40..47    run        1..8
//   48..61    near kept  1..14 pixels: those of the patched frame, changed by the byte that follows for each
//   62..75    near up    1..14 pixels: those of the row above, changed likewise
//   76..87    far kept   1..12 pixels, changed by the two bytes that follow for each
//   88..99    far up     1..12 likewise, of the row above
//   115..122  those eight, of the longest direct length + 1 + the byte that follows
//
// A near byte is 16 (green + 8) + 4 (red + 2) + (blue + 2), where green is what the second byte of the pixel grows by,
// and red and blue how much more than green the first and the third do. Far bytes are green, and 16 (red + 8) +
// (blue + 8). Sums are modulo 256. In a self-coded frame the patched frame is the row above.
//
// The number of kept bytes comes last: 0..253 means 1..254, 254 and a byte mean 255 + that byte, 255 and two bytes mean
// that number. Kept bytes come from the patched frame; in a self-coded frame, from the row above.
//
// Repeated operations contain no repeat and no end. They are parts of an earlier patch, such as the rows of a sprite
// that reappears elsewhere. They may end within an operation, before its kept bytes: then the repeat has its own
// number. Rows above the first are zeros, and so is the pixel before the first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace framestow::patch_format {

enum class Source : std::uint8_t {
    kLiteral = 0,
    kUp = 1,
    kBase = 2,
    kRun = 3,
    kNearKept = 4,  // from here on of pixels only
    kNearUp = 5,
    kFarKept = 6,
    kFarUp = 7,
};

inline constexpr std::size_t kMostSources = 8;

// What the codes of one encoding mean.
struct Codes {
    std::size_t unit;         // bytes that a length counts
    std::size_t num_sources;  // those in use, from the first on
    std::size_t max_length;   // of one operation
    // Code of the shortest operation of each source, and the code after the last one.
    std::array<unsigned, kMostSources + 1> first;
    std::array<std::size_t, kMostSources> direct_lengths;  // lengths of each source that a code says alone
    std::array<std::size_t, kMostSources> operand_bytes;   // that follow for each unit of a length
};

inline constexpr Codes kByteCodes = {
    1, 4, 0xFFFF, {0, 40, 68, 84, 100, 100, 100, 100, 100}, {40, 28, 16, 16, 0, 0, 0, 0}, {1, 0, 0, 0, 0, 0, 0, 0}};
inline constexpr Codes kPixelCodes = {
    3, 8, 0x100, {0, 16, 32, 40, 48, 62, 76, 88, 100}, {16, 16, 8, 8, 14, 14, 12, 12}, {3, 0, 0, 0, 1, 1, 2, 2}};

inline constexpr const Codes& codes_of(bool is_of_pixels) { return is_of_pixels ? kPixelCodes : kByteCodes; }

inline constexpr unsigned kKeepFlag = 0x80;  // a number of kept bytes follows the operation
inline constexpr unsigned kCodeMask = 0x7F;
inline constexpr unsigned kNothing = 100;
inline constexpr unsigned kFirstRepeat = 101;
inline constexpr unsigned kFirstWide8 = 115;
inline constexpr unsigned kFirstWide16 = 119;  // of bytes only
inline constexpr unsigned kRepeatWide8 = 123;
inline constexpr unsigned kReference = 124;
inline constexpr unsigned kRepeatFar = 125;
inline constexpr unsigned kEnd = 127;

inline constexpr std::size_t kDirectKeeps = 254;  // most kept bytes that one byte says
inline constexpr unsigned kKeepWide8 = 254;
inline constexpr unsigned kKeepWide16 = 255;

inline constexpr std::size_t kMaxKept = 0xFFFF;
inline constexpr std::size_t kMinRepeatBytes = 4;  // of operations; fewer are no longer than their repeat
inline constexpr std::size_t kDirectRepeats = kFirstWide8 - kFirstRepeat;
inline constexpr std::size_t kMaxRepeatBytes = kMinRepeatBytes + 0xFF;  // what a far repeat can say
inline constexpr std::size_t kMaxNearPlace = 0xFFFF;                    // places beyond it take a far repeat
inline constexpr std::size_t kMaxRepeatPlace = 0xFFFFFF;

inline constexpr std::size_t kReferenceBytes = 2;        // the code and the group
inline constexpr std::size_t kMaxReferenceGroup = 0xFF;  // later groups are not referred to

}  // namespace framestow::patch_format
