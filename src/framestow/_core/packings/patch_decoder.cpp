#include "patch_decoder.hpp"

#include "../processor.hpp"
#include "../segment_header.hpp"
#include "patch_format.hpp"

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

constexpr std::size_t kChunk = 16;                // bytes written at once
constexpr std::size_t kPixelChunks = 3 * kChunk;  // at once in a colour frame: most of its direct lengths

// The meaning of an operation's first byte, one table per property.
struct OperationTable {
    std::array<std::uint8_t, 256> length;  // bytes of the frame that it writes
    std::array<std::uint8_t, 256> source;  // patch_format::Source
    std::array<std::uint8_t, 256> quick;   // likewise, or kSpecial for operations outside the fast loop
    std::array<std::uint8_t, 256> taken;   // bytes of the patch that it takes, with literals and one byte of its keep
};

constexpr std::uint8_t kSpecial = 255;  // no source: the slow loop reads the operation
constexpr std::size_t kRunSource = static_cast<std::size_t>(Source::kRun);
constexpr std::size_t kNumPlainSources = kByteCodes.num_sources;  // those that are copied as they are

// Which copies may use chunks, and what lengths count.
enum class Shape : std::uint8_t {
    kBytePixels,    // all; bytes
    kWidePixels,    // all but runs, for a pixel has several bytes; bytes
    kNarrowRows,    // none: a chunk is longer than a row; bytes
    kColour,        // all but runs; pixels
    kNarrowColour,  // none; pixels
};

constexpr bool is_of_pixels(Shape shape) { return shape == Shape::kColour || shape == Shape::kNarrowColour; }
constexpr bool is_narrow(Shape shape) { return shape == Shape::kNarrowRows || shape == Shape::kNarrowColour; }

constexpr OperationTable make_operations(const Codes& codes) {
    OperationTable table{};
    for (unsigned code = 0; code < 256; ++code) {
        table.quick[code] = kSpecial;
        table.taken[code] = 1;
    }
    for (unsigned flag = 0; flag <= 1; ++flag) {
        const unsigned flag_bit = flag * kKeepFlag;
        for (std::size_t source = 0; source < codes.num_sources; ++source) {
            for (std::size_t length = 1; length <= codes.direct_lengths[source]; ++length) {
                const std::size_t code = flag_bit + codes.first[source] + length - 1;
                const std::size_t quick = codes.unit == 1 ? kChunk : kPixelChunks;
                const bool is_quick = source < kNumPlainSources && length * codes.unit <= quick;
                table.length[code] = static_cast<std::uint8_t>(length * codes.unit);
                table.source[code] = static_cast<std::uint8_t>(source);
                table.quick[code] = is_quick ? static_cast<std::uint8_t>(source) : kSpecial;
                table.taken[code] = static_cast<std::uint8_t>(1 + length * codes.operand_bytes[source] + flag);
            }
        }
        table.quick[flag_bit + kNothing] = 0;
        table.taken[flag_bit + kNothing] = static_cast<std::uint8_t>(1 + flag);
    }
    return table;
}

alignas(64) constexpr OperationTable kByteTable = make_operations(kByteCodes);
alignas(64) constexpr OperationTable kPixelTable = make_operations(kPixelCodes);

template <Shape kShape>
inline constexpr const Codes& kCodes = codes_of(is_of_pixels(kShape));
template <Shape kShape>
inline constexpr const OperationTable& kTable = is_of_pixels(kShape) ? kPixelTable : kByteTable;

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

// Ones, then zeros: a load from kPixelChunks - n gives n ones.
struct MaskTable {
    std::uint8_t bytes[2 * kPixelChunks];
};

constexpr MaskTable make_masks() {
    MaskTable masks{};
    for (std::size_t index = 0; index < kPixelChunks; ++index) {
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

// What a target has where the next operation writes, in a register if there are any.
#ifdef FRAMESTOW_SSE2
using NextChunk = __m128i;
inline NextChunk load_next(const std::uint8_t* target) { return load_vector(target); }
#else
struct NextChunk {};
inline NextChunk load_next(const std::uint8_t*) { return {}; }
#endif

// Copies `length` bytes, 0 to kChunk, to a target that has `chunk`; returns what `next_target` has. A load, a blend and
// a store without a branch: most operations of a game are a few bytes long, and a mispredicted length costs more than
// the three instructions. The next target is loaded before the store: a load of bytes that were just stored in part
// waits.
inline NextChunk copy_short_onto(NextChunk chunk, std::uint8_t* target, const std::uint8_t* source, std::size_t length,
                                 const std::uint8_t* next_target) {
#ifdef FRAMESTOW_SSE2
    const __m128i mask = load_vector(kMasks.bytes + kPixelChunks - length);
    const __m128i fresh = load_vector(source);
    const __m128i blended = _mm_or_si128(_mm_and_si128(mask, fresh), _mm_andnot_si128(mask, chunk));
    const NextChunk next = load_next(next_target);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), blended);
    return next;
#else
    std::memmove(target, source, length);
    static_cast<void>(next_target);
    return chunk;
#endif
}

inline void copy_short(std::uint8_t* target, const std::uint8_t* source, std::size_t length) {
    copy_short_onto(load_next(target), target, source, length, target);
}

// copy_short of 0 to kPixelChunks bytes. A source before the target is at least that much before it.
inline void copy_pixel_chunks(std::uint8_t* target, const std::uint8_t* source, std::size_t length) {
#ifdef FRAMESTOW_SSE2
    for (std::size_t chunk = 0; chunk < kPixelChunks; chunk += kChunk) {
        const __m128i mask = load_vector(kMasks.bytes + kPixelChunks - length + chunk);
        const __m128i fresh = load_vector(source + chunk);
        const __m128i kept = load_vector(target + chunk);
        const __m128i blended = _mm_or_si128(_mm_and_si128(mask, fresh), _mm_andnot_si128(mask, kept));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(target + chunk), blended);
    }
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

// Writes pixels: those of the source, each changed by the code of one byte (near) or two (far) for it.
void add_pixels(std::uint8_t* target, const std::uint8_t* source, const std::uint8_t* codes, std::size_t num_pixels,
                bool is_far) {
    for (std::size_t pixel = 0; pixel < num_pixels; ++pixel, target += 3, source += 3, codes += is_far ? 2 : 1) {
        const int green = is_far ? codes[0] : (codes[0] >> 4) - 8;
        const int red = is_far ? (codes[1] >> 4) - 8 : (codes[0] >> 2 & 3) - 2;
        const int blue = is_far ? (codes[1] & 15) - 8 : (codes[0] & 3) - 2;
        target[0] = static_cast<std::uint8_t>(source[0] + green + red);
        target[1] = static_cast<std::uint8_t>(source[1] + green);
        target[2] = static_cast<std::uint8_t>(source[2] + green + blue);
    }
}

#ifdef FRAMESTOW_ASKS_PROCESSOR
// How five codes become fifteen differences: where green and the others are in the codes, and what they mean there.
struct CodeVectors {
    alignas(16) std::uint8_t places_of_green[16];
    alignas(16) std::uint8_t places_of_others[16];
    alignas(16) std::uint8_t red[16];   // by its nibble
    alignas(16) std::uint8_t blue[16];  // by its nibble
    int green_shift, red_shift;
    std::uint8_t green_mask, green_offset;
};

constexpr CodeVectors make_code_vectors(bool is_far) {
    CodeVectors vectors{};
    for (std::size_t lane = 0; lane < 15; ++lane) {
        const std::size_t pixel = lane / 3;
        vectors.places_of_green[lane] = static_cast<std::uint8_t>(is_far ? 2 * pixel : pixel);
        vectors.places_of_others[lane] = static_cast<std::uint8_t>(is_far ? 2 * pixel + 1 : pixel);
    }
    for (unsigned nibble = 0; nibble < 16; ++nibble) {
        vectors.red[nibble] = static_cast<std::uint8_t>(is_far ? nibble - 8 : nibble / 4 - 2);
        vectors.blue[nibble] = static_cast<std::uint8_t>(is_far ? nibble - 8 : nibble % 4 - 2);
    }
    vectors.green_shift = is_far ? 0 : 4;
    vectors.red_shift = is_far ? 4 : 0;
    vectors.green_mask = is_far ? 255 : 15;
    vectors.green_offset = is_far ? 0 : 8;
    return vectors;
}

constexpr CodeVectors kCodeVectors[2] = {make_code_vectors(false), make_code_vectors(true)};
alignas(16) constexpr std::uint8_t kRedLanes[16] = {255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 0};
alignas(16) constexpr std::uint8_t kBlueLanes[16] = {0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0, 0, 255, 0};

// add_pixels, five at a time. Reads and writes back up to 16 bytes beyond. A source before the target is at least 48
// bytes before it.
__attribute__((target("ssse3"))) void add_pixels_by_five(std::uint8_t* target, const std::uint8_t* source,
                                                         const std::uint8_t* codes, std::size_t num_pixels,
                                                         bool is_far) {
    constexpr std::size_t step = 5;
    const CodeVectors& vectors = kCodeVectors[is_far ? 1 : 0];
    const __m128i nibble = _mm_set1_epi8(15);
    const __m128i green_shift = _mm_cvtsi32_si128(vectors.green_shift);
    const __m128i red_shift = _mm_cvtsi32_si128(vectors.red_shift);
    const __m128i green_mask = _mm_set1_epi8(static_cast<char>(vectors.green_mask));
    const __m128i green_offset = _mm_set1_epi8(static_cast<char>(vectors.green_offset));
    __m128i before = load_vector(target);
    __m128i from = load_vector(source);
    for (;;) {
        const __m128i taken = load_vector(codes);
        const __m128i greens = _mm_shuffle_epi8(taken, load_vector(vectors.places_of_green));
        const __m128i others = _mm_shuffle_epi8(taken, load_vector(vectors.places_of_others));
        const __m128i green = _mm_sub_epi8(_mm_and_si128(_mm_srl_epi16(greens, green_shift), green_mask), green_offset);
        const __m128i red =
            _mm_shuffle_epi8(load_vector(vectors.red), _mm_and_si128(_mm_srl_epi16(others, red_shift), nibble));
        const __m128i blue = _mm_shuffle_epi8(load_vector(vectors.blue), _mm_and_si128(others, nibble));
        const __m128i added =
            _mm_or_si128(_mm_and_si128(red, load_vector(kRedLanes)), _mm_and_si128(blue, load_vector(kBlueLanes)));
        const __m128i sum = _mm_add_epi8(from, _mm_add_epi8(green, added));
        const std::size_t length = 3 * (num_pixels < step ? num_pixels : step);
        const __m128i mask = load_vector(kMasks.bytes + kPixelChunks - length);
        const __m128i blended = _mm_xor_si128(before, _mm_and_si128(_mm_xor_si128(before, sum), mask));
        // The next bytes are loaded before these are stored: a load of what was just stored would wait.
        before = load_vector(target + 3 * step);
        from = load_vector(source + 3 * step);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(target), blended);
        if (num_pixels <= step) {
            return;
        }
        num_pixels -= step;
        target += 3 * step;
        source += 3 * step;
        codes += is_far ? 2 * step : step;
    }
}
#endif

using AddPixels = void (*)(std::uint8_t* target, const std::uint8_t* source, const std::uint8_t* codes,
                           std::size_t num_pixels, bool is_far);

AddPixels quickest_add_pixels() {
#ifdef FRAMESTOW_ASKS_PROCESSOR
    if (has_byte_shuffles()) {
        return add_pixels_by_five;
    }
#endif
    return add_pixels;
}

const AddPixels kAddPixels = quickest_add_pixels();

// The constants of reading a patch: distances from the written frame to the patched frame (`previous_distance`) and to
// the base frame (`base_distance`). In a self-coded frame both lead to the row above.
struct Surroundings {
    ByteSpan body;
    std::size_t row_bytes;  // of the frame; the row above is so far behind the target
    std::size_t pixel_bytes;
    std::ptrdiff_t base_distance;
    std::uint8_t* frame_end;  // nothing is written from here on
};

// The position in the patch and in the frame.
struct Progress {
    const std::uint8_t* cursor;     // next byte of the patch
    const std::uint8_t* limit;      // end of the body, or of the repeated operations
    const std::uint8_t* return_to;  // the place after the repeat being read, or null
    std::uint8_t* target;           // next byte of the frame
    bool keeps_after_repeat;        // whether the repeat being read has its own number of kept bytes
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
    if (is_narrow(kShape) || length > row_bytes) {
        copy_from_behind(target, row_bytes, length);
    } else {
        copy_chunks(target, target - row_bytes, length);
    }
}

// Writes the next `length` bytes. The caller has checked that they fit the frame, and literals against the limit.
template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE void write_long(const Surroundings& around, const Progress& at, Source source,
                                        std::size_t length) {
    if (is_of_pixels(kShape) && source >= Source::kNearKept) {
        // One path for all four, since the next one cannot be predicted.
        const bool is_up = kSelfCoded || source == Source::kNearUp || source == Source::kFarUp;
        const std::uint8_t* const from = at.target - (around.row_bytes & (std::size_t{0} - std::size_t{is_up}));
        const AddPixels add = is_narrow(kShape) ? add_pixels : kAddPixels;
        add(at.target, from, at.cursor, length / kCodes<kShape>.unit, source >= Source::kFarKept);
        return;
    }
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
        default:
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
    length *= kCodes<kShape>.unit;
    check_room(around, at, length);
    keep<kSelfCoded, kShape>(around, at.target, length);
    at.target += length;
    return at;
}

template <bool kSelfCoded, Shape kShape>
FRAMESTOW_ALWAYS_INLINE Progress read_wide(const Surroundings& around, Progress at, unsigned code) {
    const bool keeps = (code & kKeepFlag) != 0;
    code &= kCodeMask;
    constexpr const Codes& codes = kCodes<kShape>;
    const bool is_wide16 = !is_of_pixels(kShape) && code >= kFirstWide16;
    const unsigned source = code - (is_wide16 ? kFirstWide16 : kFirstWide8);
    const std::size_t count = is_wide16 ? load_u16(at.cursor + 1) : codes.direct_lengths[source] + 1 + at.cursor[1];
    const std::size_t length = count * codes.unit;
    const std::size_t operands = count * codes.operand_bytes[source];
    at.cursor += is_wide16 ? 3 : 2;
    check_room(around, at, length);
    if (operands > 0 && (at.cursor > at.limit || operands > static_cast<std::size_t>(at.limit - at.cursor))) {
        throw_damaged("patch has fewer literals than it says");
    }
    write_long<kSelfCoded, kShape>(around, at, static_cast<Source>(source), length);
    at.cursor += operands;
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
    const auto source = static_cast<Source>(kTable<kShape>.source[code]);
    const std::size_t length = kTable<kShape>.length[code];
    check_room(around, at, length);
    const std::uint8_t* const end = at.cursor + kTable<kShape>.taken[code];
    ++at.cursor;
    write_long<kSelfCoded, kShape>(around, at, source, length);
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
    NextChunk chunk = load_next(target);
    for (;;) {
        const std::size_t code = *cursor;
        const std::size_t source = kTable<kShape>.quick[code];
        const std::uint8_t* const next = cursor + kTable<kShape>.taken[code];
        const std::size_t length = kTable<kShape>.length[code];
        const std::size_t unit = kCodes<kShape>.unit;
        // The last of repeated operations may end before its number of kept bytes, at the limit.
        const std::size_t keeps = (code >> 7) & (next <= limit ? 1U : 0U);
        const std::size_t kept = (unit * next[-1] + unit) & (std::size_t{0} - keeps);
        const bool is_slow_run = kShape != Shape::kBytePixels && source == kRunSource;
        if (is_narrow(kShape) || is_slow_run || source == kSpecial || next > limit + 1 || kept > unit * kDirectKeeps ||
            length + kept > static_cast<std::size_t>(frame_end - target)) {
            if (code == kEnd) {
                break;
            }
            go_on(read_any<kSelfCoded, kShape>(around, progress(), static_cast<unsigned>(code)));
        } else {
            const std::uint8_t* const origins[kNumPlainSources] = {cursor + 1, target + row_distance,
                                                                   target + base_distance,
                                                                   kRuns.bytes + kChunk * std::size_t{target[-1]}};
            const std::uint8_t* const from = origins[source];
            std::uint8_t* const next_target = target + length + kept;
            if (is_of_pixels(kShape)) {
                copy_pixel_chunks(target, from, length);
            } else if (kSelfCoded) {
                copy_chunk(target, from);  // the next operation overwrites the excess bytes
            } else {
                chunk = copy_short_onto(chunk, target, from, length, next_target);
            }
            keep<kSelfCoded, kShape>(around, target + length, kept);
            cursor = next;
            target = next_target;
            if (cursor < limit) {
                continue;
            }
        }
        while (cursor >= limit) {
            go_on(leave_repeat<kSelfCoded, kShape>(around, progress()));
        }
        chunk = load_next(target);
    }
    if (return_to != nullptr) {
        throw_damaged("repeated operations contain the end of a patch");
    }
    keep<kSelfCoded, kShape>(around, target, static_cast<std::size_t>(frame_end - target));
    return static_cast<std::size_t>(cursor + 1 - around.body.bytes);
}

template <bool kSelfCoded>
std::size_t decode(const SegmentHeader& header, const Surroundings& around, std::uint8_t* frame, std::size_t place) {
    if (header.encoding == Encoding::kPixelPatches) {
        return around.row_bytes < kPixelChunks ? read_patch<kSelfCoded, Shape::kNarrowColour>(around, frame, place)
                                               : read_patch<kSelfCoded, Shape::kColour>(around, frame, place);
    }
    if (around.row_bytes < kChunk) {
        return read_patch<kSelfCoded, Shape::kNarrowRows>(around, frame, place);
    }
    return around.pixel_bytes == 1 ? read_patch<kSelfCoded, Shape::kBytePixels>(around, frame, place)
                                   : read_patch<kSelfCoded, Shape::kWidePixels>(around, frame, place);
}

}  // namespace

std::size_t decode_self_coded(const SegmentHeader& header, ByteSpan body, std::size_t place, FrameBuffer& frame) {
    const FrameGeometry& geometry = header.geometry;
    const std::ptrdiff_t row_distance = -static_cast<std::ptrdiff_t>(geometry.row_bytes);
    const Surroundings around{body, geometry.row_bytes, geometry.pixel_bytes, row_distance,
                              frame.frame() + geometry.frame_bytes()};
    return decode<true>(header, around, frame.frame(), place);
}

std::size_t apply_patch(const SegmentHeader& header, ByteSpan body, std::size_t place, const FrameBuffer& base,
                        FrameBuffer& frame) {
    const FrameGeometry& geometry = header.geometry;
    const Surroundings around{body, geometry.row_bytes, geometry.pixel_bytes, base.frame() - frame.frame(),
                              frame.frame() + geometry.frame_bytes()};
    return decode<false>(header, around, frame.frame(), place);
}

}  // namespace framestow
