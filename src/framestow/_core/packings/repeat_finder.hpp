// Finds operations of a patch that stand in the segment's body already, and writes a repeat in their place.
//
// A hash of the first bytes of every operation leads to where operations with these bytes began before; the longest
// that agrees, whole operations only, is repeated. Only operations that stand in the body themselves are found, so a
// repeat never leads to a repeat. Deterministic: the same patches in the same order give the same bytes, whether or
// not the segment was written out and read in between. Owns its tables; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "patch_encoder.hpp"

namespace framestow {

class RepeatFinder {
public:
    RepeatFinder();

    // Appends the operations, and the end of the patch, to `body`.
    void write_patch(const OperationBytes& operations, std::vector<std::uint8_t>& body);

    // Forgets everything and gives back what it took: the next patch begins a new body.
    void clear();

    std::size_t nbytes() const;

private:
    struct Repeat {
        std::size_t place = 0;
        std::size_t size = 0;
        std::size_t num_operations = 0;
        bool has_own_keep = false;  // the last operation is repeated without what it keeps
    };
    struct Entry {
        std::uint16_t place;    // where the operation begins in the body
        std::uint16_t earlier;  // number of the entry before it with the same hash, or kNone
    };

    Repeat longest_repeat(const OperationBytes& operations, std::size_t first,
                          const std::vector<std::uint8_t>& body) const;
    static void lengthen(const OperationBytes& operations, std::size_t first, std::size_t agreeing, std::size_t place,
                         Repeat& longest);
    static void write_repeat(const OperationBytes& operations, std::size_t first, const Repeat& repeat,
                             std::vector<std::uint8_t>& body);
    void remember(std::size_t place, const std::vector<std::uint8_t>& body);
    void link(std::size_t number, const std::vector<std::uint8_t>& body);

    unsigned hash_bits_ = 0;             // grows with the number of entries
    std::vector<std::uint16_t> newest_;  // for each hash: the newest entry
    std::vector<Entry> entries_;
    std::vector<std::size_t> written_;  // where operations of the current patch stand in the body
};

}  // namespace framestow
