// Finds a short list of operations that makes one frame of another.
//
// Between long stretches of kept bytes, which a bitmap of the whole frame tells, looks where the other sources match,
// and picks the cheapest sequence of matches and literals (cheapest_way.hpp). Holds scratch for one geometry: not
// thread-safe. Frames are spans of frame_bytes that are only read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "../bytes.hpp"
#include "../frame_geometry.hpp"
#include "patch_format.hpp"

// Which bytes of a frame are those of another frame, or those that stand before them: bit i is byte i.
//
// Compares 16 bytes at a time where SSE2 is there (every x86-64), byte by byte elsewhere; both give the same bits.
// Behind the frame stand zeros, which end every match. Owns its words; not thread-safe.
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace framestow {

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

inline std::uint64_t load_u64(const std::uint8_t* bytes) {
    return load_u32(bytes) | static_cast<std::uint64_t>(load_u32(bytes + 4)) << 32;
}

// How many bytes of `a` and `b` agree from the first on; both hold `size`.
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

class MatchBitmap {
public:
    static constexpr std::size_t kLongMatch = 10;

    explicit MatchBitmap(std::size_t frame_bytes);

    // With another frame, at the same places.
    void compare(const std::uint8_t* frame, const std::uint8_t* other);

    // With the same frame `period` bytes before; bytes before the frame count as zeros.
    void compare_behind(const std::uint8_t* frame, std::size_t period);

    // How many matching bytes follow one another from `position` (at most frame_bytes) on.
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

    // The first place from `position` on where kLongMatch bytes match, or from where on all do, or the frame's end.
    std::size_t next_long_match(std::size_t position) const;

    std::size_t nbytes() const { return words_.capacity() * sizeof(std::uint64_t); }

private:
    bool matches(std::size_t position) const { return (words_[position / 64] >> (position % 64) & 1U) != 0; }

    std::size_t frame_bytes_;
    std::vector<std::uint64_t> words_;
};


// Which operations write some bytes most cheaply: dynamic programming from the right, as a walk through an automaton.
//
// An operation costs the same however far its match reaches, so all that the way on from a byte depends on is how much
// dearer than the cheapest way each source is that matches here, and literals that go on. These differences are never
// more than what an operation costs: a few hundred states for all pictures. Stepping over a byte is then one load from
// a table (5 cycles) instead of weighing (17). Storer and Szymanski 1982 call the result optimal parsing. Immutable
// once built: any number of threads may use one.

class CheapestWay {
public:
    // Of equal cost, the one that stands first here is preferred. The first four are matches: bit i of the matches of
    // a byte says that the source i would write it.
    enum Kind : std::uint8_t { kKeep, kBase, kUp, kRun, kLiteral };
    static constexpr std::size_t kNumMatchKinds = 4;

    // Row of the table, and all that is known about the way on from a byte.
    using State = std::uint16_t;

    // In units that divide both: what a literal byte and an operation cost. `possible_matches` has the bits that can
    // be set at all. Throws std::length_error for 4096 states or more.
    CheapestWay(int literal_cost, int operation_cost, unsigned possible_matches);

    // Sets the state of each of `size` bytes, from the right to the left. Walks through parts of many bytes side by
    // side, each as if nothing came behind it: the choices near its end may be a byte dearer than the cheapest.
    void walk_back(const std::uint8_t* matches, std::size_t size, State* states) const;

    // What the byte is to be written by, and whether literals that reach it go on with it nonetheless.
    Kind kind(State state) const { return ways_[state / kNumMatchSets].kind; }
    bool literals_continue(State state) const { return ways_[state / kNumMatchSets].literals_continue; }

private:
    static constexpr std::size_t kNumMatchSets = std::size_t{1} << kNumMatchKinds;

    // Costs beyond that of the cheapest way from this byte on.
    struct Excess {
        std::array<int, kNumMatchKinds> matches;
        int literals;  // those that go on; at most kWorse
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
    std::map<Excess, State> known_;
    std::vector<Excess> excesses_;
    std::vector<Way> ways_;
    std::vector<State> table_;
};


// Operations as bytes (patch_format.hpp), without repeats and without the end.
struct OperationBytes {
    struct Place {
        std::uint32_t begin;       // of an operation
        std::uint32_t keep_begin;  // of the number of bytes that it keeps; its end where it keeps none
    };
    std::vector<std::uint8_t> bytes;
    std::vector<Place> places;

    std::size_t end_of(std::size_t operation) const {
        return operation + 1 < places.size() ? places[operation + 1].begin : bytes.size();
    }
};

class PatchEncoder {
public:
    explicit PatchEncoder(const FrameGeometry& geometry);

    // Without any other frame: what decode_self_coded reads. Valid until the next call.
    const OperationBytes& encode_self_coded(const std::uint8_t* frame);

    // As changes of `previous`: what apply_patch reads. Valid until the next call.
    const OperationBytes& encode_patch(const std::uint8_t* frame, const std::uint8_t* previous,
                                       const std::uint8_t* base);

    std::size_t nbytes() const;

private:
    struct Match {
        std::size_t length;
        patch_format::Source source;
    };
    // A frame and what its bytes may be copied from; a self-coded one has the last two alone.
    struct Pictures {
        const std::uint8_t* frame;
        const std::uint8_t* previous;
        const std::uint8_t* base;
        std::size_t row_bytes;
        std::size_t pixel_bytes;
        std::size_t frame_bytes;
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
    void write_stretch(const CheapestWay& cheapest_way, const std::uint8_t* frame, std::size_t begin, std::size_t end);
    void put(patch_format::Source source, std::size_t length, const std::uint8_t* literals);
    void put_keep(std::size_t length);

    FrameGeometry geometry_;
    MatchBitmap kept_;  // equal to the frame that is patched; in a self-coded frame, to the row above
    std::vector<std::uint8_t> matches_;          // of each byte of a stretch: a bit for each source
    std::vector<CheapestWay::State> cheapest_;  // of each byte of a stretch
    OperationBytes operations_;
};

}  // namespace framestow
