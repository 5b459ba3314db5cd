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
#include "../pages.hpp"
#include "patch_format.hpp"
#include "repeat_finder.hpp"

namespace framestow {

class SharedOperations {
public:
    // Rewrites a segment's body and its table of group starts (4 bytes each; the base frame ends where the first group
    // starts). `finder` wrote the patches. Changes neither if nothing is shared.
    void read(const patch_format::Codes& codes, const RepeatFinder& finder, PagedVector<std::uint8_t>& body,
              std::vector<std::uint8_t>& group_table);

private:
    // Repeated operations from `begin` to `end`, which may lie before the last one's kept bytes.
    struct Stretch {
        std::size_t begin;
        std::size_t end;
        std::size_t num_uses;
        std::size_t new_begin;  // where it stands in the new body
        bool moves;             // whether it is copied behind the base frame
    };
    // The repeats that begin with one entry of the finder.
    struct Uses {
        std::size_t num_repeats = 0;
        std::size_t most_bytes = 0;  // of the longest of them
        std::size_t stretch = 0;     // its number in stretches_
    };
    using Bytes = PagedVector<std::uint8_t>;

    void find_stretches(const RepeatFinder& finder, const Bytes& body, std::size_t base_end);
    void choose_stretches();
    void copy_stretches(const Bytes& body);
    void rewrite_groups(const RepeatFinder& finder, const Bytes& body, std::size_t base_end,
                        std::vector<std::uint8_t>& group_table);
    std::size_t rewrite_stretch(const Bytes& body, const Stretch& stretch);
    void copy(const Bytes& body, std::size_t begin, std::size_t end);

    const patch_format::Codes* codes_ = nullptr;  // of the body
    PagedVector<Uses> uses_;                      // of each entry that is repeated
    PagedVector<std::uint32_t> uses_of_;          // per entry of the finder: 1 + the number of its uses, or 0
    PagedVector<Stretch> stretches_;              // ascending by `begin`
    PagedVector<std::size_t> moved_;              // numbers of stretches
    Bytes rewritten_;                             // the new body, until it replaces the old one
};

}  // namespace framestow
