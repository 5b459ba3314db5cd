// Gathers the operations that are repeated again and again in one place, right behind the base frame.
//
// Repeats lead all over a segment's body, and each would wait for memory. After this, what is repeated more than once
// stands together, the most used first, where one look ahead brings it all (window_gather.cpp). The body still is what
// patch_format.hpp says: a reader need not know. Trusts the body, which a writer of this process has just made.
// Owns its scratch; not thread-safe. Deterministic.
#pragma once

#include <cstdint>
#include <vector>

#include "../bytes.hpp"

namespace framestow {

class SharedOperations {
public:
    // Rewrites the body of a segment and the table of where its groups begin (4 bytes each; the base frame ends where
    // the first one begins), or leaves both as they are where nothing is shared.
    void gather(std::vector<std::uint8_t>& body, std::vector<std::uint8_t>& group_table);

    std::size_t nbytes() const;

private:
    // Operations that are repeated, from `begin` to `end`: it may end before what the last one keeps.
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

    std::vector<Stretch> stretches_;  // by their begin
    std::vector<Stretch> by_use_;
    std::vector<Move> moves_;  // of each operation that stays in its group, by `from`
    Bytes rewritten_;
};

}  // namespace framestow
