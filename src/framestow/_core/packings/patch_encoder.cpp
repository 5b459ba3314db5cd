#include "patch_encoder.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "../byte_span.hpp"
#include "patch_format.hpp"

#if defined(__SSE2__) || defined(_M_X64)
#define FRAMESTOW_SSE2 1
#include <emmintrin.h>
#endif
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kWordBits = 64;
constexpr std::size_t kWorthwhileSkip = 3;   // equal bytes that pay for the two bytes of another operation
constexpr std::size_t kWorthwhileMatch = 4;  // the same for a match that interrupts literals

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

// Bit i: a[i] == b[i], for 64 bytes.
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
    std::uint64_t word = 0;
    for (unsigned index = 0; index < kWordBits; ++index) {
        word |= static_cast<std::uint64_t>(a[index] == b[index] ? 1 : 0) << index;
    }
    return word;
#endif
}

inline std::uint64_t compare_part(const std::uint8_t* a, const std::uint8_t* b, std::size_t count) {
    std::uint64_t word = 0;
    for (std::size_t index = 0; index < count; ++index) {
        word |= static_cast<std::uint64_t>(a[index] == b[index] ? 1 : 0) << index;
    }
    return word;
}

// How many set bits follow one another from `position` on.
inline std::size_t match_length(const std::vector<std::uint64_t>& equal, std::size_t position) {
    std::size_t word_index = position / kWordBits;
    const auto shift = static_cast<unsigned>(position % kWordBits);
    std::uint64_t unequal = ~equal[word_index] >> shift;
    if (unequal != 0) {
        return count_trailing_zeros(unequal);
    }
    std::size_t length = kWordBits - shift;
    while (equal[++word_index] == ~std::uint64_t{0}) {
        length += kWordBits;
    }
    return length + count_trailing_zeros(~equal[word_index]);
}

void append_number(std::vector<std::uint8_t>& target, std::size_t value, std::size_t num_bytes) {
    for (std::size_t index = 0; index < num_bytes; ++index) {
        target.push_back(static_cast<std::uint8_t>((value >> (8 * index)) & 0xFF));
    }
}

void append_varint(std::vector<std::uint8_t>& target, std::size_t value) {
    for (; value >= 0x80; value >>= 7) {
        target.push_back(static_cast<std::uint8_t>((value & 0x7F) | 0x80));
    }
    target.push_back(static_cast<std::uint8_t>(value));
}

}  // namespace

PatchEncoder::PatchEncoder(const FrameGeometry& geometry) : geometry_(geometry) {
    // One word more than the frame fills: its zeros end every match.
    const std::size_t num_words = geometry.frame_bytes() / kWordBits + 2;
    for (Bitmap* bitmap : {&kept_, &up_, &run_, &base_}) {
        bitmap->assign(num_words, 0);
    }
}

std::size_t PatchEncoder::nbytes() const {
    return 4 * kept_.capacity() * sizeof(std::uint64_t) + literals_.capacity() + operations_.capacity();
}

void PatchEncoder::compare_with_frame(const std::uint8_t* frame, const std::uint8_t* other, Bitmap& equal) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    const std::size_t num_whole = frame_bytes / kWordBits;
    for (std::size_t word = 0; word < num_whole; ++word) {
        equal[word] = compare_word(frame + word * kWordBits, other + word * kWordBits);
    }
    const std::size_t done = num_whole * kWordBits;
    equal[num_whole] = compare_part(frame + done, other + done, frame_bytes - done);
}

// Bytes before the frame count as zeros.
void PatchEncoder::compare_with_behind(const std::uint8_t* frame, std::size_t period, Bitmap& equal) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    const std::size_t num_words = (frame_bytes + kWordBits - 1) / kWordBits;
    for (std::size_t word = 0; word < num_words; ++word) {
        const std::size_t begin = word * kWordBits;
        const std::size_t end = std::min(begin + kWordBits, frame_bytes);
        if (begin >= period && end - begin == kWordBits) {
            equal[word] = compare_word(frame + begin, frame + begin - period);
            continue;
        }
        std::uint64_t bits = 0;
        for (std::size_t index = begin; index < end; ++index) {
            const std::uint8_t behind = index >= period ? frame[index - period] : std::uint8_t{0};
            bits |= static_cast<std::uint64_t>(frame[index] == behind ? 1 : 0) << (index - begin);
        }
        equal[word] = bits;
    }
}

void PatchEncoder::encode_self_coded(const std::uint8_t* frame, std::vector<std::uint8_t>& packed) {
    compare_with_behind(frame, geometry_.row_bytes, kept_);
    compare_with_behind(frame, geometry_.pixel_bytes, run_);
    encode<true>(frame, packed);
}

void PatchEncoder::encode_patch(const std::uint8_t* frame, const std::uint8_t* previous, const std::uint8_t* base,
                                std::vector<std::uint8_t>& packed) {
    compare_with_frame(frame, previous, kept_);
    compare_with_behind(frame, geometry_.row_bytes, up_);
    compare_with_behind(frame, geometry_.pixel_bytes, run_);
    compare_with_frame(frame, base, base_);
    encode<false>(frame, packed);
}

void PatchEncoder::put_operation(std::size_t skip, unsigned source, std::size_t length) {
    if (skip < kDirectSkips) {
        operations_.push_back(static_cast<std::uint8_t>(skip));
    } else if (skip - kDirectSkips <= 0xFFFF) {
        operations_.push_back(kSkip16);
        append_number(operations_, skip - kDirectSkips, 2);
    } else {
        operations_.push_back(kSkip32);
        append_number(operations_, skip, 4);
    }
    const unsigned kind = source << kSourceShift;
    if (length <= kDirectLengths) {
        operations_.push_back(static_cast<std::uint8_t>(kind | static_cast<unsigned>(length - 1)));
    } else if (length - kDirectLengths - 1 <= 0xFFFF) {
        operations_.push_back(static_cast<std::uint8_t>(kind | kLength16));
        append_number(operations_, length - kDirectLengths - 1, 2);
    } else {
        operations_.push_back(static_cast<std::uint8_t>(kind | kLength32));
        append_number(operations_, length, 4);
    }
}

// Where literals that begin at `begin` end best: at the first place from which another operation pays.
template <bool kSelfCoded>
std::size_t PatchEncoder::literals_end(std::size_t begin) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    std::size_t position = begin + 1;
    for (; position < frame_bytes; ++position) {
        const std::size_t kept = match_length(kept_, position);
        if (kept >= kWorthwhileSkip || position + kept == frame_bytes) {
            break;
        }
        std::size_t longest = match_length(run_, position);
        if (!kSelfCoded) {
            longest = std::max({longest, match_length(up_, position), match_length(base_, position)});
        }
        if (longest >= kWorthwhileMatch) {
            break;
        }
    }
    return position;
}

template <bool kSelfCoded>
void PatchEncoder::encode(const std::uint8_t* frame, std::vector<std::uint8_t>& packed) {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    literals_.clear();
    operations_.clear();
    std::size_t written = 0;  // the end of the last operation
    for (;;) {
        const std::size_t position = written + match_length(kept_, written);
        if (position >= frame_bytes) {
            break;
        }
        auto source = Source::kRun;
        std::size_t length = match_length(run_, position);
        if (!kSelfCoded) {
            const std::size_t up = match_length(up_, position);
            if (up > length) {
                source = Source::kUp;
                length = up;
            }
            const std::size_t base = match_length(base_, position);
            if (base > length) {
                source = Source::kBase;
                length = base;
            }
        }
        if (length < 2) {
            source = Source::kLiteral;
            const std::size_t end = literals_end<kSelfCoded>(position);
            literals_.insert(literals_.end(), frame + position, frame + end);
            length = end - position;
        }
        put_operation(position - written, static_cast<unsigned>(source), length);
        written = position + length;
    }
    append_varint(packed, literals_.size());
    packed.insert(packed.end(), literals_.begin(), literals_.end());
    packed.insert(packed.end(), operations_.begin(), operations_.end());
    packed.push_back(kEnd);
}

}  // namespace framestow
