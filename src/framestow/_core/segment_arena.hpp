// Room for sealed segments: large blocks, filled from back to front, given back whole.
//
// Segments of all streams are laid into the current block in the order in which they are sealed, and leave in about
// that order, so a block empties as a whole; it then goes back to the operating system (one empty block is kept for
// the next segments). A segment larger than a block gets a block of its own. Every segment is padded
// (kReadPadding) by bytes that nobody writes while it is held.
//
// Ownership: the arena owns the bytes; a StoredSegment stays valid until it is released. nbytes() counts the pages that
// were written to, which is what the operating system gave: the untouched front of a block costs nothing where blocks
// are mapped, and is counted where they are not. Not thread-safe; reading segments beside one another is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "byte_span.hpp"

namespace framestow {

class ArenaBlock;

struct StoredSegment {
    ArenaBlock* block = nullptr;
    std::uint8_t* bytes = nullptr;
    std::size_t size = 0;

    ByteSpan span() const { return ByteSpan{bytes, size}; }
};

class SegmentArena {
public:
    SegmentArena();
    ~SegmentArena();
    SegmentArena(const SegmentArena&) = delete;
    SegmentArena& operator=(const SegmentArena&) = delete;

    StoredSegment allocate(std::size_t size);
    void release(const StoredSegment& segment);

    std::size_t nbytes() const { return nbytes_; }
    std::size_t index_bytes() const;

private:
    void open_block(std::size_t wanted_bytes);
    void drop_block(ArenaBlock* block);

    std::vector<std::unique_ptr<ArenaBlock>> blocks_;
    std::unique_ptr<ArenaBlock> spare_;
    ArenaBlock* current_ = nullptr;
    std::size_t nbytes_ = 0;
};

}  // namespace framestow
