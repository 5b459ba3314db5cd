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

enum class Source : std::uint8_t { kLiteral = 0, kUp = 1, kBase = 2, kRun = 3 };

inline constexpr std::size_t kNumSources = 4;
inline constexpr std::array<unsigned, kNumSources> kFirstCode = {0, 40, 68, 84};
inline constexpr std::array<std::size_t, kNumSources> kDirectLengths = {40, 28, 16, 16};

inline constexpr unsigned kKeepFlag = 0x80;
inline constexpr unsigned kCodeMask = 0x7F;
inline constexpr unsigned kNothing = 100;
inline constexpr unsigned kFirstRepeat = 101;
inline constexpr unsigned kFirstWide8 = 115;
inline constexpr unsigned kFirstWide16 = 119;
inline constexpr unsigned kRepeatWide8 = 123;
inline constexpr unsigned kReference = 124;
inline constexpr unsigned kRepeatFar = 125;
inline constexpr unsigned kEnd = 127;

inline constexpr std::size_t kDirectKeeps = 254;
inline constexpr unsigned kKeepWide8 = 254;
inline constexpr unsigned kKeepWide16 = 255;

inline constexpr std::size_t kMaxLength = 0xFFFF;  // of one operation, and of its kept bytes
inline constexpr std::size_t kMinRepeatBytes = 4;
inline constexpr std::size_t kDirectRepeats = kFirstWide8 - kFirstRepeat;
inline constexpr std::size_t kMaxRepeatBytes = kMinRepeatBytes + 0xFF;  // what a far repeat can say
inline constexpr std::size_t kMaxNearPlace = 0xFFFF;                    // places beyond it take a far repeat
inline constexpr std::size_t kMaxRepeatPlace = 0xFFFFFF;

inline constexpr std::size_t kReferenceBytes = 2;
inline constexpr std::size_t kMaxReferenceGroup = 0xFF;

}  // namespace framestow::patch_format
