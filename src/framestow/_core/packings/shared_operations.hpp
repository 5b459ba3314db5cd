// Gathers frequently repeated operations in one place after the base frame.
//
// Repeats refer to places all over a segment's body, and each read would wait for memory. Afterwards operations that
// are repeated more than once stand together, most used first, where one prefetch brings them all (prefetch_frames).
// The body still follows patch_format.hpp, so readers need no change. Trusts the body, which a writer of this process
// has just made. Owns its scratch; not thread-safe. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "../bytes.hpp"
#include "patch_format.hpp"

namespace framestow {

class SharedOperations {
public:
    // Rewrites a segment's body and its table of group starts (4 bytes each; the base frame ends where the first group
    // starts). Changes neither if nothing is shared.
    void gather(const patch_format::Codes& codes, std::vector<std::uint8_t>& body,
                std::vector<std::uint8_t>& group_table);

    std::size_t nbytes() const;

private:
    // Repeated operations from `begin` to `end`, which may lie before the last one's kept bytes.
    struct Stretch {
        std::size_t begin;
        std::size_t end;
        std::size_t num_uses;
        std::size_t new_begin;
    };
    struct Move {
        std::size_t from;
        std::size_t to;
    };
    using Bytes = std::vector<std::uint8_t>;

    void find_stretches(const Bytes& body, std::size_t base_end);
    void choose_stretches();
    void copy_stretches(const Bytes& body);
    void rewrite_groups(const Bytes& body, std::size_t base_end, Bytes& group_table);
    std::size_t rewrite_stretch(const Bytes& body, const Stretch& stretch);
    std::size_t rewrite_operation(const Bytes& body, std::size_t position);
    void copy(const Bytes& body, std::size_t begin, std::size_t end);
    std::size_t new_place_of(std::size_t place) const;

    const patch_format::Codes* codes_ = nullptr;  // of the body
    std::vector<Stretch> stretches_;  // ascending by `begin`
    std::vector<Stretch> by_use_;
    std::vector<Move> moves_;  // per operation that stays in its group, ascending by `from`
    Bytes rewritten_;
};

}  // namespace framestow
