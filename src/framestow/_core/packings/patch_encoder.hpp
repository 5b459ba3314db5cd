// Encodes a frame as a short list of operations on another frame.
//
// Between long stretches of kept bytes, found in a bitmap of the whole frame, the encoder finds where other sources
// match. CheapestWay then picks the cheapest sequence of matches and literals. Frames are spans of frame_bytes that are
// only read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "../bytes.hpp"
#include "../frame_geometry.hpp"
#include "../processor.hpp"
#include "cheapest_pixels.hpp"
#include "patch_format.hpp"

namespace framestow {

inline std::uint64_t load_u64(const std::uint8_t* bytes) {
    return load_u32(bytes) | static_cast<std::uint64_t>(load_u32(bytes + 4)) << 32;
}

// Returns the length of the common prefix of `a` and `b`, both `size` bytes long.
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

// Which bytes of a frame equal another frame's, or the bytes `period` before them: bit i stands for byte i.
//
// Compares 16 bytes at a time with SSE2 (every x86-64) and byte by byte elsewhere, with equal results. Zeros after the
// frame end every match. Owns its words; not thread-safe.
class MatchBitmap {
public:
    static constexpr std::size_t kLongMatch = 10;  // bytes

    explicit MatchBitmap(std::size_t frame_bytes);

    // Compares with another frame at the same places.
    void compare(const std::uint8_t* frame, const std::uint8_t* other);

    // Compares with the same frame `period` bytes earlier; bytes before the frame count as zeros.
    void compare_behind(const std::uint8_t* frame, std::size_t period);

    // Returns the number of consecutive matching bytes from `position` (at most frame_bytes) on.
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

    // Returns the first place from `position` on with kLongMatch matching bytes, or where all remaining bytes match, or
    // the frame's end.
    std::size_t next_long_match(std::size_t position) const;

    std::size_t nbytes() const { return words_.capacity() * sizeof(std::uint64_t); }

private:
    bool matches(std::size_t position) const { return (words_[position / 64] >> (position % 64) & 1U) != 0; }

    std::size_t frame_bytes_;
    std::vector<std::uint64_t> words_;  // a bit per byte of the frame, and zeros after it
};

// The cheapest operations that write some bytes: dynamic programming from right to left, run as a finite automaton.
//
// An operation costs the same however long its match is. So the best choice at a byte depends only on how much more
// than the cheapest way each matching source, and a continued literal, costs there. These differences are bounded by
// the cost of an operation, which leaves a few hundred states for all pictures. A byte then takes one table load (5
// cycles) instead of a comparison of all choices (17). Storer and Szymanski 1982 call the result optimal parsing.
// Immutable once built: any number of threads may use one.
class CheapestWay {
public:
    // Among equal costs the first one here is preferred. The first four are matches: bit i of a byte's matches says
    // that source i would write it.
    enum Kind : std::uint8_t { kKeep, kBase, kUp, kRun, kLiteral };
    static constexpr std::size_t kNumMatchKinds = 4;

    // A row of the table: everything that matters about the bytes to the right.
    using State = std::uint16_t;

    // The costs of a literal byte and of an operation in a common unit. `possible_matches` has the bits that can be
    // set. Throws std::length_error for 4096 states or more.
    CheapestWay(int literal_cost, int operation_cost, unsigned possible_matches);

    // Sets the state of each of `size` bytes from right to left. Walks parts of long inputs side by side as if no bytes
    // followed them, so choices near a part's end may cost a byte more than the cheapest.
    void walk_back(const std::uint8_t* matches, std::size_t size, State* states) const;

    // Returns the operation that writes the byte, and whether literals that reach it continue instead.
    Kind kind(State state) const { return ways_[state / kNumMatchSets].kind; }
    bool literals_continue(State state) const { return ways_[state / kNumMatchSets].literals_continue; }

private:
    static constexpr std::size_t kNumMatchSets = std::size_t{1} << kNumMatchKinds;

    // Costs relative to the cheapest way from this byte on.
    struct Excess {
        std::array<int, kNumMatchKinds> matches;
        int literals;  // continued ones; at most kWorse
        bool operator<(const Excess& other) const;
    };
    struct Way {
        Kind kind;
        bool literals_continue;
    };

    Excess before(const Excess& behind, unsigned matches) const;
    State state_of(const Excess& excess);

    int literal_cost_;
    int operation_cost_;
    std::map<Excess, State> known_;  // while the table is built: the first state of each excess
    std::vector<Excess> excesses_;   // of each known one, in the order of its discovery
    std::vector<Way> ways_;          // of each known one: what is written there
    std::vector<State> table_;       // per state, by the matches of the byte before: the next state
};

// Encoded operations, without repeats and without the end mark.
struct OperationBytes {
    struct Place {
        std::uint32_t begin;       // of the operation
        std::uint32_t keep_begin;  // start of its number of kept bytes; its end if it keeps none
    };
    std::vector<std::uint8_t> bytes;  // num_bytes, and room for more
    std::size_t num_bytes = 0;
    std::vector<Place> places;

    std::size_t end_of(std::size_t operation) const {
        return operation + 1 < places.size() ? places[operation + 1].begin : num_bytes;
    }
    void clear() {
        num_bytes = 0;
        places.clear();
    }
    // Sets the fields of the added place one by one: a copy of it would load both at once, before they are stored.
    void add_place(std::size_t begin, std::size_t keep_begin) {
        Place& place = places.emplace_back();
        place.begin = static_cast<std::uint32_t>(begin);
        place.keep_begin = static_cast<std::uint32_t>(keep_begin);
    }
    // Returns where the next `most` bytes are written, at most; num_bytes then tells how many were.
    std::uint8_t* room_for(std::size_t most) {
        if (bytes.size() < num_bytes + most) {
            bytes.resize(2 * (num_bytes + most));
        }
        return bytes.data() + num_bytes;
    }
};

// Holds scratch for one geometry; not thread-safe.
class PatchEncoder {
public:
    explicit PatchEncoder(const FrameGeometry& geometry);

    // Joins the planes of a frame to pixels. Valid until the next call.
    const std::uint8_t* joined(const std::uint8_t* planes);

    // Encodes a frame on its own, for decode_self_coded. Valid until the next call.
    const OperationBytes& encode_self_coded(const std::uint8_t* frame);

    // Encodes a frame as changes of `previous`, for apply_patch. Valid until the next call.
    const OperationBytes& encode_patch(const std::uint8_t* frame, const std::uint8_t* previous,
                                       const std::uint8_t* base);

    std::size_t nbytes() const;

private:
    struct Match {
        std::size_t length;
        patch_format::Source source;
    };
    template <bool kSelfCoded>
    const OperationBytes& encode(const Pictures& pictures, const CheapestWay& cheapest_way);
    template <bool kSelfCoded>
    static Match long_match(const Pictures& pictures, std::size_t position, std::size_t least);
    template <bool kSelfCoded>
    std::size_t stretch_end(const Pictures& pictures, std::size_t begin) const;
    template <bool kSelfCoded>
    void find_matches(const Pictures& pictures, std::size_t begin, std::size_t end);
    std::size_t match_length(CheapestWay::Kind kind, std::size_t begin, std::size_t end) const;
    void write_stretch(const CheapestWay& cheapest_way, const Pictures& pictures, std::size_t begin, std::size_t end);
    const OperationBytes& encode_pixels(const Pictures& pictures, bool is_self_coded);
    std::size_t pixel_stretch_end(std::size_t pixel) const;
    void write_pixels(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end);
    void put(patch_format::Source source, std::size_t length, ByteSpan operands);
    void put_keep(std::size_t length);

    FrameGeometry geometry_;
    const patch_format::Codes& codes_;          // of pixels for colour frames, otherwise of bytes
    MatchBitmap kept_;                          // equal to the patched frame; in a self-coded frame, to the row above
    std::vector<std::uint8_t> matches_;         // per byte of a stretch: one bit per source
    std::vector<CheapestWay::State> cheapest_;  // per byte of a stretch
    CheapestPixels pixels_;                     // of colour frames
    std::vector<std::uint8_t> operands_;        // of one operation
    std::vector<std::uint8_t> joined_;          // of a frame with channels first
    OperationBytes operations_;
};

}  // namespace framestow
