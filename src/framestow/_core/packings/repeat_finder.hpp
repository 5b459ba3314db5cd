// Finds operations of a patch that the segment's body already contains, and writes a repeat instead.
//
// A hash of an operation's first bytes finds earlier operations that begin with them; the longest match of whole
// operations is repeated. Only operations that stand in the body themselves are found, so a repeat never refers to a
// repeat. Deterministic: equal patches in equal order give equal bytes, even if the segment was written out and read in
// between. Owns its tables; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "../pages.hpp"
#include "patch_encoder.hpp"

namespace framestow {

class RepeatFinder {
public:
    // An operation that may be repeated.
    struct Entry {
        std::uint32_t tagged_place;  // its start in the body; above it a byte of its hash
        std::uint32_t earlier;       // previous entry with the same place in the table, or kNone

        std::size_t place() const { return tagged_place & patch_format::kMaxRepeatPlace; }
    };
    // A repeat in the body.
    struct Written {
        std::uint32_t place;
        std::uint32_t entry;  // number of the first repeated operation
    };

    RepeatFinder();

    // Appends the operations and the patch's end mark to `body`.
    void write_patch(const OperationBytes& operations, PagedVector<std::uint8_t>& body);

    // Resets the finder for a new body and frees its memory.
    void clear();

    // Both ascend by place.
    const PagedVector<Entry>& entries() const { return entries_; }
    const PagedVector<Written>& repeats() const { return repeats_; }

    std::size_t nbytes() const;

private:
    struct Repeat {
        std::uint32_t entry = 0;
        std::size_t size = 0;
        std::size_t num_operations = 0;
        bool has_own_keep = false;  // the last operation is repeated without its kept bytes
    };

    Repeat longest_repeat(const OperationBytes& operations, std::size_t first,
                          const PagedVector<std::uint8_t>& body) const;
    void lengthen(const OperationBytes& operations, std::size_t first, std::size_t agreeing, std::uint32_t entry,
                  Repeat& longest) const;
    void write_repeat(const OperationBytes& operations, std::size_t first, const Repeat& repeat,
                      PagedVector<std::uint8_t>& body);
    void remember(std::size_t place, const PagedVector<std::uint8_t>& body);
    void link(std::size_t number, std::uint64_t hash);

    unsigned hash_bits_ = 0;             // grows with the number of entries
    PagedVector<std::uint32_t> newest_;  // per first bits of a hash: its newest entry
    PagedVector<Entry> entries_;         // operations that stand in the body themselves
    PagedVector<Written> repeats_;       // in the body
    std::vector<std::size_t> written_;   // starts of the current patch's operations in the body
};

}  // namespace framestow
