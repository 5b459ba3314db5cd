#include "patch_encoder.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "../processor.hpp"
#include "colour_planes.hpp"

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
        // Bit i of `here` (and of `next`, where needed) says that that many bytes match from i on.
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

namespace {

constexpr int kWorse = 1;  // continued literals that cost more are never chosen, so the exact excess does not matter

constexpr std::size_t kNumParts = 4;     // walked side by side, since each load waits for the one before
constexpr std::size_t kManyBytes = 256;  // inputs of this size are split
constexpr std::size_t kRunUp = 32;       // bytes after a part; beyond them its state hardly depends on the input

}  // namespace

bool CheapestWay::Excess::operator<(const Excess& other) const {
    return std::tie(matches, literals) < std::tie(other.matches, other.literals);
}

CheapestWay::CheapestWay(int literal_cost, int operation_cost, unsigned possible_matches)
    : literal_cost_(literal_cost), operation_cost_(operation_cost) {
    Excess none{{}, kWorse};
    none.matches.fill(operation_cost);
    state_of(none);
    for (std::size_t number = 0; number < excesses_.size(); ++number) {
        const Excess behind = excesses_[number];
        for (unsigned matches = 0; matches < kNumMatchSets; ++matches) {
            table_.push_back(state_of(before(behind, matches & possible_matches)));
        }
    }
    known_.clear();
    excesses_ = {};
}

// A new match costs an operation and the cheapest way from its end. A match that cannot continue costs as much as a new
// one.
CheapestWay::Excess CheapestWay::before(const Excess& behind, unsigned matches) const {
    const auto is_match = [&](std::size_t kind) { return (matches >> kind & 1U) != 0; };
    const int literals = literal_cost_ + std::min(behind.literals, 0);
    int cheapest = operation_cost_ + literals;
    for (std::size_t kind = 0; kind < kNumMatchKinds; ++kind) {
        cheapest = is_match(kind) ? std::min(cheapest, behind.matches[kind]) : cheapest;
    }
    Excess excess{};
    for (std::size_t kind = 0; kind < kNumMatchKinds; ++kind) {
        excess.matches[kind] = is_match(kind) ? behind.matches[kind] - cheapest : operation_cost_;
    }
    excess.literals = std::min(literals - cheapest, kWorse);
    return excess;
}

CheapestWay::State CheapestWay::state_of(const Excess& excess) {
    if (excesses_.size() * kNumMatchSets > std::numeric_limits<State>::max()) {
        throw std::length_error("more ways than states: there must be fewer kinds of matches, or cheaper operations");
    }
    const auto [found, is_new] = known_.emplace(excess, static_cast<State>(excesses_.size() * kNumMatchSets));
    if (is_new) {
        const auto cheapest = std::find(excess.matches.begin(), excess.matches.end(), 0);
        excesses_.push_back(excess);
        ways_.push_back(Way{static_cast<Kind>(cheapest - excess.matches.begin()), excess.literals <= 0});
    }
    return found->second;
}

void CheapestWay::walk_back(const std::uint8_t* matches, std::size_t size, State* states) const {
    const State* const table = table_.data();
    std::size_t rest = size;  // bytes not walked side by side
    if (size >= kManyBytes) {
        const std::size_t part = size / kNumParts;
        rest = size - kNumParts * part;
        std::array<std::size_t, kNumParts> behind{};
        for (std::size_t byte = part + kRunUp; byte-- > part;) {
            for (std::size_t number = 0; number + 1 < kNumParts; ++number) {
                behind[number] = table[behind[number] + matches[rest + number * part + byte]];
            }
        }
        for (std::size_t byte = part; byte-- > 0;) {
            for (std::size_t number = 0; number < kNumParts; ++number) {
                const std::size_t place = rest + number * part + byte;
                behind[number] = table[behind[number] + matches[place]];
                states[place] = static_cast<State>(behind[number]);
            }
        }
    }
    std::size_t behind = rest < size ? states[rest] : 0;
    for (std::size_t byte = rest; byte-- > 0;) {
        behind = table[behind + matches[byte]];
        states[byte] = static_cast<State>(behind);
    }
}

namespace {

using namespace patch_format;

// Costs in half bytes: a literal costs two. An operation costs its byte and another for the time to read it: 2 % more
// bytes, a tenth less time. In the base frame, which every window reads and each segment has once, it costs five more:
// half a per cent more bytes, a twelfth less time. Never destroyed: a thread may still pack while the process ends.
const CheapestWay& cheapest_way_of_patches() {
    static const auto* const way = new CheapestWay(1, 2, 0b1111);
    return *way;
}

const CheapestWay& cheapest_way_of_base() {
    static const auto* const way = new CheapestWay(1, 6, 1U << CheapestWay::kKeep | 1U << CheapestWay::kRun);
    return *way;
}

constexpr std::size_t kLongMatch = 32;  // matches of this length are taken without a search
constexpr std::size_t kLookEvery = 16;  // distance between searches for a long match

constexpr Source kSources[] = {Source::kLiteral, Source::kBase, Source::kUp, Source::kRun};

constexpr std::size_t number_of(Source source) { return static_cast<std::size_t>(source); }

constexpr std::size_t kManyKeptPixels = 16;  // which divide a frame into stretches

constexpr Source kPixelSources[] = {Source::kLiteral, Source::kBase,     Source::kUp,
                                    Source::kRun,     Source::kNearKept, Source::kNearUp,
                                    Source::kFarKept, Source::kFarUp,    Source::kLiteral};  // of CheapestPixels::Kind

constexpr std::uint8_t kBlack[3] = {0, 0, 0};  // a pixel above the first row

constexpr std::size_t kMostCodeBytes = 3;  // of an operation, without its operands
constexpr std::size_t kOperandChunk = 16;

// Copies the first `size` of `operands`. May write up to kOperandChunk bytes: a chunk takes less time than a call.
void copy_operands(std::uint8_t* target, ByteSpan operands, std::size_t size) {
    if (size <= kOperandChunk && operands.size >= kOperandChunk) {
        std::memcpy(target, operands.bytes, kOperandChunk);
    } else if (size > 0) {
        std::memcpy(target, operands.bytes, size);
    }
}

// Appends what makes the pixel `source` the pixel `frame`.
void append_difference(std::vector<std::uint8_t>& bytes, const std::uint8_t* frame, const std::uint8_t* source,
                       bool is_far) {
    const unsigned green = unsigned{frame[1]} - source[1];
    const unsigned red = unsigned{frame[0]} - source[0] - green;
    const unsigned blue = unsigned{frame[2]} - source[2] - green;
    if (is_far) {
        bytes.push_back(static_cast<std::uint8_t>(green));
        bytes.push_back(static_cast<std::uint8_t>((red + 8) << 4 | ((blue + 8) & 15)));
    } else {
        bytes.push_back(static_cast<std::uint8_t>((green + 8) << 4 | ((red + 2) & 3) << 2 | ((blue + 2) & 3)));
    }
}

}  // namespace

PatchEncoder::PatchEncoder(const FrameGeometry& geometry)
    : geometry_(geometry.joined()),
      codes_(codes_of(geometry_.is_colour())),
      kept_(geometry.frame_bytes()),
      matches_(geometry_.is_colour() ? 0 : geometry.frame_bytes() + sizeof(std::uint64_t)),
      cheapest_(geometry_.is_colour() ? 0 : geometry.frame_bytes() + 1),
      pixels_(geometry_.is_colour() ? geometry_.frame_bytes() / geometry_.pixel_bytes : 0) {}

std::size_t PatchEncoder::nbytes() const {
    return kept_.nbytes() + matches_.capacity() + cheapest_.capacity() * sizeof(CheapestWay::State) + pixels_.nbytes() +
           operands_.capacity() + joined_.capacity() + operations_.bytes.capacity() +
           operations_.places.capacity() * sizeof(OperationBytes::Place);
}

const std::uint8_t* PatchEncoder::joined(const std::uint8_t* planes) {
    joined_.resize(geometry_.frame_bytes());
    join_planes(planes, joined_.size() / 3, joined_.data());
    return joined_.data();
}

const OperationBytes& PatchEncoder::encode_self_coded(const std::uint8_t* frame) {
    kept_.compare_behind(frame, geometry_.row_bytes);
    const Pictures pictures{frame, frame, frame, geometry_.row_bytes, geometry_.pixel_bytes, geometry_.frame_bytes()};
    return geometry_.is_colour() ? encode_pixels(pictures, true) : encode<true>(pictures, cheapest_way_of_base());
}

const OperationBytes& PatchEncoder::encode_patch(const std::uint8_t* frame, const std::uint8_t* previous,
                                                 const std::uint8_t* base) {
    kept_.compare(frame, previous);
    const Pictures pictures{frame, previous, base, geometry_.row_bytes, geometry_.pixel_bytes, geometry_.frame_bytes()};
    return geometry_.is_colour() ? encode_pixels(pictures, false) : encode<false>(pictures, cheapest_way_of_patches());
}

template <bool kSelfCoded>
const OperationBytes& PatchEncoder::encode(const Pictures& pictures, const CheapestWay& cheapest_way) {
    operations_.clear();
    std::size_t position = 0;
    for (;;) {
        const std::size_t kept = kept_.match_length(position);
        if (position + kept == pictures.frame_bytes) {
            return operations_;
        }
        // Kept bytes cost no time to read, so a match must be much longer than the kept bytes.
        const Match match = long_match<kSelfCoded>(pictures, position, kLongMatch + 2 * kept);
        if (match.length > 0) {
            put(match.source, match.length, ByteSpan{});
            position += match.length;
            continue;
        }
        if (kept > 0) {
            put_keep(kept);
            position += kept;
        }
        const std::size_t end = stretch_end<kSelfCoded>(pictures, position);
        find_matches<kSelfCoded>(pictures, position, end);
        cheapest_way.walk_back(matches_.data() + position, end - position, cheapest_.data() + position);
        write_stretch(cheapest_way, pictures, position, end);
        position = end;
    }
}

// Returns the longest match from `position` on with at least `least` bytes, or none.
template <bool kSelfCoded>
PatchEncoder::Match PatchEncoder::long_match(const Pictures& pictures, std::size_t position, std::size_t least) {
    Match longest{0, Source::kRun};
    const std::uint8_t* const here = pictures.frame + position;
    const std::size_t size = pictures.frame_bytes - position;
    const auto add_frame = [&](Source source, const std::uint8_t* there) {
        const std::size_t middle = (least - kLongMatch) / 2;
        const std::size_t last = least - sizeof(std::uint64_t);
        if (load_u64(here) != load_u64(there) || load_u64(here + middle) != load_u64(there + middle) ||
            load_u64(here + last) != load_u64(there + last)) {
            return;
        }
        const std::size_t length = agreeing_bytes(here, there, size);
        if (length >= least && length >= longest.length) {
            longest = Match{length, source};
        }
    };
    if (size < least) {
        return longest;
    }
    if (position >= pictures.pixel_bytes) {
        add_frame(Source::kRun, here - pictures.pixel_bytes);
    }
    if (!kSelfCoded) {
        if (position >= pictures.row_bytes) {
            add_frame(Source::kUp, here - pictures.row_bytes);
        }
        add_frame(Source::kBase, pictures.base + position);
    }
    return longest;
}

// Returns the next place with many kept or matching bytes (matches are searched every kLookEvery bytes), or the frame's
// end.
template <bool kSelfCoded>
std::size_t PatchEncoder::stretch_end(const Pictures& pictures, std::size_t begin) const {
    const std::size_t end = kept_.next_long_match(begin);
    for (std::size_t look = begin + kLookEvery; look < end; look += kLookEvery) {
        if (long_match<kSelfCoded>(pictures, look, kLongMatch).length > 0) {
            return look;
        }
    }
    return end;
}

// Sets a bit for each source that can write a byte (CheapestWay::Kind).
template <bool kSelfCoded>
void PatchEncoder::find_matches(const Pictures& pictures, std::size_t begin, std::size_t end) {
    const std::uint8_t* const frame = pictures.frame;
    const std::uint8_t* const previous = pictures.previous;
    const std::uint8_t* const base = pictures.base;
    const std::size_t row_bytes = pictures.row_bytes;
    const std::size_t pixel_bytes = pictures.pixel_bytes;
    std::uint8_t* const matches = matches_.data();
    const auto matches_of = [=](std::size_t byte, std::uint8_t above, std::uint8_t before) {
        const std::uint8_t value = frame[byte];
        const unsigned run = value == before ? 1U << CheapestWay::kRun : 0U;
        if (kSelfCoded) {
            return static_cast<std::uint8_t>(run | (value == above ? 1U << CheapestWay::kKeep : 0U));
        }
        return static_cast<std::uint8_t>(run | (value == above ? 1U << CheapestWay::kUp : 0U) |
                                         (value == previous[byte] ? 1U << CheapestWay::kKeep : 0U) |
                                         (value == base[byte] ? 1U << CheapestWay::kBase : 0U));
    };
    std::size_t byte = begin;
    for (; byte < std::min(end, row_bytes); ++byte) {
        matches[byte] = matches_of(byte, 0, byte < pixel_bytes ? std::uint8_t{0} : frame[byte - pixel_bytes]);
    }
#ifdef FRAMESTOW_SSE2
    for (; byte < end && byte + sizeof(__m128i) <= pictures.frame_bytes; byte += sizeof(__m128i)) {
        const __m128i values = load_vector(frame + byte);
        const auto bits = [&](CheapestWay::Kind kind, const std::uint8_t* source) {
            return _mm_and_si128(_mm_cmpeq_epi8(values, load_vector(source)),
                                 _mm_set1_epi8(static_cast<char>(1 << kind)));
        };
        const __m128i run = bits(CheapestWay::kRun, frame + byte - pixel_bytes);
        const __m128i up = bits(kSelfCoded ? CheapestWay::kKeep : CheapestWay::kUp, frame + byte - row_bytes);
        __m128i all = _mm_or_si128(run, up);
        if (!kSelfCoded) {
            all = _mm_or_si128(all, bits(CheapestWay::kKeep, previous + byte));
            all = _mm_or_si128(all, bits(CheapestWay::kBase, base + byte));
        }
        _mm_storeu_si128(reinterpret_cast<__m128i*>(matches + byte), all);  // also behind the end, which is set later
    }
#endif
    for (; byte < end; ++byte) {
        matches[byte] = matches_of(byte, frame[byte - row_bytes], frame[byte - pixel_bytes]);
    }
}

std::size_t PatchEncoder::match_length(CheapestWay::Kind kind, std::size_t begin, std::size_t end) const {
    const std::uint64_t all = std::uint64_t{0x0101010101010101} << kind;
    for (std::size_t byte = begin; byte < end; byte += sizeof(all)) {
        const std::uint64_t unequal = ~load_u64(matches_.data() + byte) & all;
        if (unequal != 0) {
            return std::min(byte + count_trailing_zeros(unequal) / 8, end) - begin;
        }
    }
    return end - begin;
}

void PatchEncoder::write_stretch(const CheapestWay& cheapest_way, const Pictures& pictures, std::size_t begin,
                                 std::size_t end) {
    for (std::size_t position = begin; position < end;) {
        const CheapestWay::Kind kind = cheapest_way.kind(cheapest_[position]);
        std::size_t length = 1;
        if (kind == CheapestWay::kLiteral) {
            while (position + length < end && cheapest_way.literals_continue(cheapest_[position + length])) {
                ++length;
            }
            put(Source::kLiteral, length, ByteSpan{pictures.frame + position, pictures.frame_bytes - position});
        } else {
            length = match_length(kind, position, end);
            if (kind == CheapestWay::kKeep) {
                put_keep(length);
            } else {
                put(kSources[kind], length, ByteSpan{});
            }
        }
        position += length;
    }
}

const OperationBytes& PatchEncoder::encode_pixels(const Pictures& pictures, bool is_self_coded) {
    operations_.clear();
    const std::size_t num_pixels = pictures.frame_bytes / pictures.pixel_bytes;
    for (std::size_t pixel = 0;;) {
        const std::size_t kept = kept_.match_length(pixel * pictures.pixel_bytes) / pictures.pixel_bytes;
        if (pixel + kept == num_pixels) {
            return operations_;
        }
        if (kept > 0) {
            put_keep(kept);
            pixel += kept;
        }
        const std::size_t end = pixel_stretch_end(pixel);
        pixels_.find(pictures, is_self_coded, pixel, end);
        write_pixels(pictures, is_self_coded, pixel, end);
        pixel = end;
    }
}

// Returns the next pixel with many kept ones, or the end of the frame or of what is not kept of it.
std::size_t PatchEncoder::pixel_stretch_end(std::size_t pixel) const {
    const std::size_t unit = geometry_.pixel_bytes;
    std::size_t end = kept_.next_long_match(pixel * unit);
    for (;;) {
        const std::size_t length = kept_.match_length(end);
        if (length >= kManyKeptPixels * unit || end + length == geometry_.frame_bytes()) {
            return (end + unit - 1) / unit;
        }
        end = kept_.next_long_match(end + length);
    }
}

void PatchEncoder::write_pixels(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end) {
    const std::size_t unit = pictures.pixel_bytes;
    const std::size_t row = pictures.row_bytes / unit;
    for (std::size_t pixel = begin; pixel < end;) {
        const CheapestPixels::Kind kind = pixels_.kind(pixel);
        std::size_t length = 1;
        while (pixel + length < end && pixels_.continues(pixel + length, kind)) {
            ++length;
        }
        const std::uint8_t* const here = pictures.frame + pixel * unit;
        const Source source = kPixelSources[kind];
        if (kind == CheapestPixels::kKeep) {
            put_keep(length);
        } else if (codes_.operand_bytes[number_of(source)] == 0 || source == Source::kLiteral) {
            put(source, length, ByteSpan{here, pictures.frame_bytes - pixel * unit});
        } else {
            const bool is_far = source == Source::kFarKept || source == Source::kFarUp;
            const bool is_up = is_self_coded || source == Source::kNearUp || source == Source::kFarUp;
            operands_.clear();
            for (std::size_t index = 0; index < length; ++index) {
                const std::uint8_t* const there = !is_up                ? pictures.previous + (pixel + index) * unit
                                                  : pixel + index < row ? kBlack
                                                                        : here + index * unit - pictures.row_bytes;
                append_difference(operands_, here + index * unit, there, is_far);
            }
            put(source, length, ByteSpan{operands_.data(), operands_.size()});
        }
        pixel += length;
    }
}

// Writes operations of `length` bytes, or pixels; `operands` begin with those that its source takes.
void PatchEncoder::put(Source source, std::size_t length, ByteSpan operands) {
    const std::size_t direct = codes_.direct_lengths[number_of(source)];
    while (length > 0) {
        const std::size_t taken = std::min(length, codes_.max_length);
        const std::size_t num_operands = taken * codes_.operand_bytes[number_of(source)];
        const std::size_t begin = operations_.num_bytes;
        std::uint8_t* at = operations_.room_for(kMostCodeBytes + num_operands + kOperandChunk);
        if (taken <= direct) {
            *at++ = static_cast<std::uint8_t>(codes_.first[number_of(source)] + taken - 1);
        } else if (taken - direct - 1 <= 0xFF) {
            *at++ = static_cast<std::uint8_t>(kFirstWide8 + number_of(source));
            *at++ = static_cast<std::uint8_t>(taken - direct - 1);
        } else {
            *at++ = static_cast<std::uint8_t>(kFirstWide16 + number_of(source));
            store_u16(at, static_cast<std::uint32_t>(taken));
            at += 2;
        }
        copy_operands(at, operands, num_operands);
        operands = ByteSpan{operands.bytes + num_operands, operands.size - num_operands};
        operations_.num_bytes = static_cast<std::size_t>(at - operations_.bytes.data()) + num_operands;
        operations_.add_place(begin, operations_.num_bytes);
        length -= taken;
    }
}

// Extends the last operation by kept bytes, or adds an operation that only keeps.
void PatchEncoder::put_keep(std::size_t length) {
    while (length > 0) {
        const std::size_t taken = std::min(length, kMaxKept);
        std::uint8_t* at = operations_.room_for(1 + kMostCodeBytes);
        const std::vector<OperationBytes::Place>& places = operations_.places;
        const bool can_join = !places.empty() && places.back().keep_begin == operations_.num_bytes;
        if (!can_join) {
            *at++ = static_cast<std::uint8_t>(kNothing);
            operations_.add_place(operations_.num_bytes, operations_.num_bytes + 1);
        }
        operations_.bytes[places.back().begin] |= static_cast<std::uint8_t>(kKeepFlag);
        if (taken <= kDirectKeeps) {
            *at++ = static_cast<std::uint8_t>(taken - 1);
        } else if (taken - kDirectKeeps - 1 <= 0xFF) {
            *at++ = static_cast<std::uint8_t>(kKeepWide8);
            *at++ = static_cast<std::uint8_t>(taken - kDirectKeeps - 1);
        } else {
            *at++ = static_cast<std::uint8_t>(kKeepWide16);
            store_u16(at, static_cast<std::uint32_t>(taken));
            at += 2;
        }
        operations_.num_bytes = static_cast<std::size_t>(at - operations_.bytes.data());
        length -= taken;
    }
}

}  // namespace framestow
