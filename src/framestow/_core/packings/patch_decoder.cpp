#include "patch_decoder.hpp"

#include "patch_format.hpp"
#include "../processor.hpp"
#include "../segment_header.hpp"

// Functions that take and return Progress must be inlined into the loop that calls them. Otherwise it lives in memory,
// where a load of two fields waits for their two stores.
#if defined(__GNUC__) || defined(__clang__)
#define FRAMESTOW_ALWAYS_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define FRAMESTOW_ALWAYS_INLINE __forceinline
#else
#define FRAMESTOW_ALWAYS_INLINE inline
#endif

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kChunk = 16;  // bytes written at once

// The meaning of an operation's first byte, one table per property.
struct OperationTable {
    std::array<std::uint8_t, 256> length;  // bytes of the frame that it writes
    std::array<std::uint8_t, 256> source;  // patch_format::Source, or kSpecial for operations outside the fast loop
    std::array<std::uint8_t, 256> taken;   // bytes of the patch that it takes, with literals and one byte of its keep
};

constexpr std::uint8_t kSpecial = 255;
constexpr std::size_t kRunSource = static_cast<std::size_t>(Source::kRun);

// Which copies may use chunks.
enum class Shape : std::uint8_t {
    kBytePixels,  // all
    kWidePixels,  // all but runs, for a pixel has several bytes
    kNarrowRows,  // none: a chunk is longer than a row
};

constexpr OperationTable make_operations() {
    OperationTable table{};
    for (unsigned code = 0; code < 256; ++code) {
        table.source[code] = kSpecial;
        table.taken[code] = 1;
    }
    for (unsigned flag = 0; flag <= 1; ++flag) {
        const unsigned flag_bit = flag * kKeepFlag;
        for (std::size_t source = 0; source < kNumSources; ++source) {
            const bool is_literal = source == static_cast<std::size_t>(Source::kLiteral);
            for (std::size_t length = 1; length <= kDirectLengths[source]; ++length) {
                const std::size_t code = flag_bit + kFirstCode[source] + length - 1;
                table.length[code] = static_cast<std::uint8_t>(length);
                table.source[code] = length <= kChunk ? static_cast<std::uint8_t>(source) : kSpecial;
                table.taken[code] = static_cast<std::uint8_t>(1 + (is_literal ? length : 0) + flag);
            }
        }
        table.source[flag_bit + kNothing] = 0;
        table.taken[flag_bit + kNothing] = static_cast<std::uint8_t>(1 + flag);
    }
    return table;
}

alignas(64) constexpr OperationTable kTable = make_operations();

struct RunTable {
    std::uint8_t bytes[256 * kChunk];
};

constexpr RunTable make_runs() {
    RunTable runs{};
    for (std::size_t index = 0; index < 256 * kChunk; ++index) {
        runs.bytes[index] = static_cast<std::uint8_t>(index / kChunk);
    }
    return runs;
}

struct MaskTable {
    std::uint8_t bytes[2 * kChunk];
};

constexpr MaskTable make_masks() {
    MaskTable masks{};
    for (std::size_t index = 0; index < kChunk; ++index) {
        masks.bytes[index] = 255;
    }
    return masks;
}

alignas(64) constexpr MaskTable kMasks = make_masks();
alignas(64) constexpr RunTable kRuns = make_runs();  // every byte, kChunk times

[[noreturn]] void throw_damaged(const char* what) { throw DamagedSegment(what); }

inline void copy_chunk(std::uint8_t* target, const std::uint8_t* source) {
    std::uint8_t chunk[kChunk];  // through a register, since source and target may overlap
    std::memcpy(chunk, source, kChunk);
    std::memcpy(target, chunk, kChunk);
}

// Copies `length` bytes, 0 to kChunk. A load, a blend and a store without a branch: most operations of a game are a few
// bytes long, and a mispredicted length costs more than the three instructions.
inline void copy_short(std::uint8_t* target, const std::uint8_t* source, std::size_t length) {
#ifdef FRAMESTOW_SSE2
    const __m128i mask = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kMasks.bytes + kChunk - length));
    const __m128i fresh = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
    const __m128i kept = _mm_loadu_si128(reinterpret_cast<const __m128i*>(target));
    const __m128i blended = _mm_or_si128(_mm_and_si128(mask, fresh), _mm_andnot_si128(mask, kept));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), blended);
#else
    std::memmove(target, source, length);
#endif
}

// Copies forward, any length; a source before the target is at least a chunk before it. memcpy would take a third of
// all time for the usual few dozen bytes.
inline void copy_chunks(std::uint8_t* target, const std::uint8_t* source, std::size_t length) {
    if (length <= kChunk) {
        copy_short(target, source, length);
        return;
    }
    const std::size_t last = length - kChunk;
    for (std::size_t position = 0; position < last; position += kChunk) {
        copy_chunk(target + position, source + position);
    }
    copy_chunk(target + last, source + last);
}

// Repeats the byte before the target.
inline void run_chunks(std::uint8_t* target, std::size_t length) {
    const std::uint8_t* const chunk = kRuns.bytes + kChunk * static_cast<std::size_t>(target[-1]);
    if (length <= kChunk) {
        copy_short(target, chunk, length);
        return;
    }
    const std::size_t last = length - kChunk;
    for (std::size_t position = 0; position < last; position += kChunk) {
        copy_chunk(target + position, chunk);
    }
    copy_chunk(target + last, chunk);
}

// Copies forward from `period` bytes before the target. If both overlap, the copied bytes repeat, so each copy may
// double its source.
inline void copy_from_behind(std::uint8_t* target, std::size_t period, std::size_t length) {
    const std::uint8_t* const source = target - period;
    std::size_t copied = 0;
    while (length - copied > period + copied) {
        std::memcpy(target + copied, source, period + copied);
        copied += period + copied;
    }
    std::memcpy(target + copied, source, length - copied);
}

// The constants of reading a patch: distances from the written frame to the patched frame (`previous_distance`) and to
// the base frame (`base_distance`). In a self-coded frame both lead to the row above.
struct Surroundings {
    ByteSpan body;
    std::size_t row_bytes;
    std::size_t pixel_bytes;
    std::ptrdiff_t base_distance;
    std::uint8_t* frame_end;
};

// The position in the patch and in the frame.
struct Progress {
    const std::uint8_t* cursor;
    const std::uint8_t* limit;      // end of the body, or of the repeated operations
    const std::uint8_t* return_to;  // the place after the repeat being read, or null
    std::uint8_t* target;
    bool keeps_after_repeat;
};

FRAMESTOW_ALWAYS_INLINE void check_room(const Surroundings& around, const Progress& at, std::size_t length) {
    if (length > static_cast<std::size_t>(around.frame_end - at.target)) {
        throw_damaged("operation of a patch reaches past the frame");
    }
}

// Copies from the row above. Beyond one row it would load bytes that it has just stored, which stalls. So each copy
// doubles its source instead.
template <Shape kShape>
FRAMESTOW_ALWAYS_INLINE void write_from_above(std::uint8_t* target, std::size_t row_bytes, std::size_t length) {
    if (kShape == Shape::kNarrowRows || length > row_bytes) {
        copy_from_behind(target, row_bytes, length);
    } else {
        copy_chunks(target, target - row_bytes, length);
    }
}

// Writes the next `length` bytes. The caller has checked that they fit the frame, and literals against the limit.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE void write_long(const Surroundings& around, const Progress& at, Source source,
                                        std::size_t length) {
    switch (source) {
        case Source::kLiteral:
            copy_chunks(at.target, at.cursor, length);
            return;
        case Source::kBase:
            if (!kSelfCoded) {
                copy_chunks(at.target, at.target + around.base_distance, length);
                return;
            }
            [[fallthrough]];
        case Source::kUp:
            write_from_above<kShape>(at.target, around.row_bytes, length);
            return;
        case Source::kRun:
            if (kShape != Shape::kBytePixels) {
                copy_from_behind(at.target, around.pixel_bytes, length);
            } else {
                run_chunks(at.target, length);
            }
            return;
    }
}

// Keeps `length` bytes.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE void keep(const Surroundings& around, std::uint8_t* target, std::size_t length) {
    if (kSelfCoded) {
        write_from_above<kShape>(target, around.row_bytes, length);
    }
}

// Reads the number of kept bytes, given its first byte, and keeps them.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress read_keep(const Surroundings& around, Progress at) {
    std::size_t length = *at.cursor;
    if (length == kKeepWide16) {
        length = load_u16(at.cursor + 1);
        at.cursor += 3;
    } else if (length == kKeepWide8) {
        length = kDirectKeeps + 1 + at.cursor[1];
        at.cursor += 2;
    } else {
        ++length;
        ++at.cursor;
    }
    check_room(around, at, length);
    keep<kSelfCoded, kShape>(around, at.target, length);
    at.target += length;
    return at;
}

template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress read_wide(const Surroundings& around, Progress at, unsigned code) {
    const bool keeps = (code & kKeepFlag) != 0;
    code &= kCodeMask;
    const bool is_wide16 = code >= kFirstWide16;
    const unsigned index = code - (is_wide16 ? kFirstWide16 : kFirstWide8);
    const std::size_t length = is_wide16 ? load_u16(at.cursor + 1) : kDirectLengths[index] + 1 + at.cursor[1];
    at.cursor += is_wide16 ? 3 : 2;
    check_room(around, at, length);
    const auto source = static_cast<Source>(index);
    const bool is_literal = source == Source::kLiteral;
    if (is_literal && (at.cursor > at.limit || length > static_cast<std::size_t>(at.limit - at.cursor))) {
        throw_damaged("patch has fewer literals than it says");
    }
    write_long<kSelfCoded, kShape>(around, at, source, length);
    at.cursor += is_literal ? length : 0;
    at.target += length;
    // At the limit of repeated operations, the repeat gives the kept bytes of the last one.
    return keeps && at.cursor < at.limit ? read_keep<kSelfCoded, kShape>(around, at) : at;
}

FRAMESTOW_ALWAYS_INLINE Progress enter_repeat(const Surroundings& around, Progress at, unsigned code) {
    const auto [size, place, nbytes] = read_repeat(at.cursor, code & kCodeMask);
    // A patch's end mark follows everything that may be repeated. So the byte after the limit, which the last operation
    // may take, is part of the body.
    if (at.return_to != nullptr || place > around.body.size || size >= around.body.size - place) {
        throw_damaged("patch repeats operations that are not there");
    }
    at.return_to = at.cursor + nbytes;
    at.cursor = around.body.bytes + place;
    at.limit = at.cursor + size;
    at.keeps_after_repeat = (code & kKeepFlag) != 0;
    return at;
}

// At the limit: continues after the repeat, if one is being read. The last operation may have taken one byte after the
// limit for its kept bytes.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress leave_repeat(const Surroundings& around, const Progress& at) {
    const std::uint8_t* const body_end = around.body.bytes + around.body.size;
    if (at.return_to == nullptr || at.cursor > at.limit + 1 || at.return_to >= body_end) {
        throw_damaged("patch ends without its end mark");
    }
    const Progress after{at.return_to, body_end, nullptr, at.target, false};
    return at.keeps_after_repeat ? read_keep<kSelfCoded, kShape>(around, after) : after;
}

// Reads an operation whose first byte gives its length.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress read_direct(const Surroundings& around, Progress at, unsigned code) {
    const bool keeps = (code & kKeepFlag) != 0;
    const unsigned bare_code = code & kCodeMask;
    std::size_t source = kNumSources;
    while (source > 0 && bare_code < kFirstCode[source - 1]) {
        --source;
    }
    --source;
    const std::size_t length = kTable.length[code];
    check_room(around, at, length);
    const std::uint8_t* const end = at.cursor + kTable.taken[code];
    ++at.cursor;
    write_long<kSelfCoded, kShape>(around, at, static_cast<Source>(source), length);
    at.target += length;
    at.cursor = keeps ? end - 1 : end;
    return keeps && at.cursor < at.limit ? read_keep<kSelfCoded, kShape>(around, at) : at;
}

// Reads any operation except the end.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress read_any(const Surroundings& around, const Progress& at, unsigned code) {
    const unsigned bare_code = code & kCodeMask;
    if (bare_code <= kNothing) {
        return read_direct<kSelfCoded, kShape>(around, at, code);
    }
    if (bare_code < kFirstWide8 || bare_code == kRepeatWide8 || bare_code == kRepeatFar) {
        return enter_repeat(around, at, code);
    }
    if (bare_code > kRepeatWide8) {
        throw_damaged("patch has a code that no writer writes");
    }
    return read_wide<kSelfCoded, kShape>(around, at, code);
}

// Reads one patch; returns the place after it.
//
// The time depends on the number of instructions and on mispredicted operations. So most operations take one path
// without branches on source, length or kept bytes.
template <bool kSelfCoded, Shape kShape>
std::size_t read_patch(const Surroundings& around, std::uint8_t* frame, std::size_t place) {
    const std::ptrdiff_t row_distance = -static_cast<std::ptrdiff_t>(around.row_bytes);
    const std::ptrdiff_t base_distance = around.base_distance;
    const std::uint8_t* const frame_end = around.frame_end;
    const std::uint8_t* cursor = around.body.bytes + place;
    const std::uint8_t* limit = around.body.bytes + around.body.size;
    const std::uint8_t* return_to = nullptr;
    std::uint8_t* target = frame;
    bool keeps_after_repeat = false;
    // The variables stay in registers because no function sees their address.
    const auto progress = [&] { return Progress{cursor, limit, return_to, target, keeps_after_repeat}; };
    const auto go_on = [&](const Progress& at) {
        cursor = at.cursor;
        limit = at.limit;
        return_to = at.return_to;
        target = at.target;
        keeps_after_repeat = at.keeps_after_repeat;
    };
    if (cursor >= limit) {
        throw_damaged("patch ends without its end mark");
    }
    for (;;) {
        const std::size_t code = *cursor;
        const std::size_t source = kTable.source[code];
        const std::uint8_t* const next = cursor + kTable.taken[code];
        const std::size_t length = kTable.length[code];
        const std::size_t kept = (std::size_t{next[-1]} + 1) & (std::size_t{0} - (code >> 7));
        const bool is_slow_run = kShape == Shape::kWidePixels && source == kRunSource;
        if (kShape == Shape::kNarrowRows || is_slow_run || source == kSpecial || next >= limit || kept > kDirectKeeps ||
            length + kept > static_cast<std::size_t>(frame_end - target)) {
            if (code == kEnd) {
                break;
            }
            go_on(read_any<kSelfCoded, kShape>(around, progress(), static_cast<unsigned>(code)));
            while (cursor >= limit) {
                go_on(leave_repeat<kSelfCoded, kShape>(around, progress()));
            }
            continue;
        }
        const std::uint8_t* const origins[kNumSources] = {
            cursor + 1, target + row_distance, target + base_distance,
            kRuns.bytes + kChunk * std::size_t{target[-1]}};
        const std::uint8_t* const from = origins[source];
        if (kSelfCoded) {
            copy_chunk(target, from);  // the next operation overwrites the excess bytes
        } else {
            copy_short(target, from, length);
        }
        keep<kSelfCoded, kShape>(around, target + length, kept);
        cursor = next;
        target += length + kept;
    }
    if (return_to != nullptr) {
        throw_damaged("repeated operations contain the end of a patch");
    }
    keep<kSelfCoded, kShape>(around, target, static_cast<std::size_t>(frame_end - target));
    return static_cast<std::size_t>(cursor + 1 - around.body.bytes);
}

template <bool kSelfCoded>
std::size_t decode(const Surroundings& around, std::uint8_t* frame, std::size_t place) {
    if (around.row_bytes < kChunk) {
        return read_patch<kSelfCoded, Shape::kNarrowRows>(around, frame, place);
    }
    return around.pixel_bytes == 1 ? read_patch<kSelfCoded, Shape::kBytePixels>(around, frame, place)
                                   : read_patch<kSelfCoded, Shape::kWidePixels>(around, frame, place);
}

}  // namespace

std::size_t decode_self_coded(ByteSpan body, std::size_t place, const FrameGeometry& geometry, FrameBuffer& frame) {
    const std::ptrdiff_t row_distance = -static_cast<std::ptrdiff_t>(geometry.row_bytes);
    const Surroundings around{body, geometry.row_bytes, geometry.pixel_bytes, row_distance,
                              frame.frame() + geometry.frame_bytes()};
    return decode<true>(around, frame.frame(), place);
}

std::size_t apply_patch(ByteSpan body, std::size_t place, const FrameGeometry& geometry, const FrameBuffer& base,
                        FrameBuffer& frame) {
    const Surroundings around{body, geometry.row_bytes, geometry.pixel_bytes, base.frame() - frame.frame(),
                              frame.frame() + geometry.frame_bytes()};
    return decode<false>(around, frame.frame(), place);
}

}  // namespace framestow
