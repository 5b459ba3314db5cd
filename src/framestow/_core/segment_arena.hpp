// Room for sealed segments: large blocks, filled from back to front, given back whole.
//
// Segments of all streams are laid into the current block in the order in which they are sealed, and leave in about
// that order, so a block empties as a whole; it then goes back to the operating system. A segment larger than a block
// gets a block of its own. Every segment is padded (kReadPadding) by bytes that nobody writes while it is held.
//
// Where segments leave in another order, blocks get sparse. The arena does not move segments, since others know where
// they are; it says whose segments to move, so that the sparsest block empties (`Sparse`). Whoever does that whenever
// there is one keeps dead_bytes() at or under dead_allowance(); segments that leave at random are moved some ten times then.
//
// Ownership: the arena owns the bytes; a StoredSegment stays valid until it is released. nbytes() counts the pages that
// were written to, which is what the operating system gave: the untouched front of a block costs nothing where blocks
// are mapped, and is counted where they are not. Not thread-safe; reading segments beside one another is.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bytes.hpp"

namespace framestow {

class ArenaBlock;

struct StoredSegment {
    ArenaBlock* block = nullptr;
    std::uint8_t* bytes = nullptr;
    std::size_t size = 0;

    ByteSpan span() const { return ByteSpan{bytes, size}; }
};

struct SegmentOwner {
    std::size_t stream;
    std::int64_t number;
};

class SegmentArena {
public:
    SegmentArena();
    ~SegmentArena();
    SegmentArena(const SegmentArena&) = delete;
    SegmentArena& operator=(const SegmentArena&) = delete;

    // The owner is told by sparsest(), where the segment is still held then.
    StoredSegment allocate(std::size_t size, SegmentOwner owner);
    void release(const StoredSegment& segment);

    std::size_t nbytes() const { return nbytes_; }
    std::size_t live_bytes() const { return live_bytes_; }  // of the segments that are held
    std::size_t dead_bytes() const { return nbytes_ - live_bytes_; }
    std::size_t index_bytes() const;

    // What dead_bytes() may grow to where so many bytes are live, and nbytes() if it is kept to that.
    static std::size_t dead_allowance(std::size_t live_bytes);
    static std::size_t most_bytes(std::size_t live_bytes);

    // The block that wastes most, and who had segments in it: some may have left since.
    struct Sparse {
        const ArenaBlock* block = nullptr;
        std::vector<SegmentOwner> owners;
    };

    // Nothing (no block) where too little is wasted to be worth moving.
    Sparse sparsest() const;

private:
    void open_block(std::size_t wanted_bytes);
    void drop_block(ArenaBlock* block);

    std::vector<std::unique_ptr<ArenaBlock>> blocks_;
    ArenaBlock* current_ = nullptr;
    std::size_t nbytes_ = 0;
    std::size_t live_bytes_ = 0;
};

}  // namespace framestow
