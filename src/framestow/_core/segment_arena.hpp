// Memory for sealed segments: large blocks that are filled from back to front and freed whole.
//
// Segments of all environments go into the current block in the order of sealing, and are evicted in roughly that
// order. So a block empties as a whole and returns to the operating system. A segment larger than a block gets its own
// block. Every segment is followed by kReadPadding bytes that nobody writes while it is stored.
//
// Eviction in another order leaves sparse blocks. The arena cannot move segments, because others hold their addresses.
// `sparsest()` names the segments whose move empties the sparsest block. A caller that moves them whenever it can keeps
// dead_bytes() within dead_allowance(); random eviction then moves each segment about ten times.
//
// Ownership: the arena owns the bytes; a StoredSegment stays valid until it is released. nbytes() counts the pages that
// were written. Unwritten pages of a block count only on systems without mapped blocks. Not thread-safe; concurrent
// reads of segments are safe.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bytes.hpp"

namespace framestow {

class ArenaBlock;

struct StoredSegment {
    ArenaBlock* block = nullptr;  // that the bytes are of
    std::uint8_t* bytes = nullptr;
    std::size_t size = 0;

    ByteSpan span() const { return ByteSpan{bytes, size}; }
};

struct SegmentOwner {
    std::size_t env_id;
    std::int64_t number;
};

class SegmentArena {
public:
    explicit SegmentArena(std::size_t least_block_bytes);
    ~SegmentArena();
    SegmentArena(const SegmentArena&) = delete;
    SegmentArena& operator=(const SegmentArena&) = delete;

    // sparsest() returns the owner if the segment is still stored then.
    StoredSegment allocate(std::size_t size, SegmentOwner owner);
    void release(const StoredSegment& segment);

    std::size_t nbytes() const { return nbytes_; }
    std::size_t live_bytes() const { return live_bytes_; }  // of the stored segments
    std::size_t dead_bytes() const { return nbytes_ - live_bytes_; }
    std::size_t index_bytes() const;

    // Upper bounds of dead_bytes() and nbytes() for that many live bytes, if sparse blocks are emptied.
    std::size_t dead_allowance(std::size_t live_bytes) const;
    std::size_t most_bytes(std::size_t live_bytes) const;

    // The same for segments of that size, which together have `more_bytes` beyond it. Large ones have a block each and
    // waste at most a page or two.
    std::size_t most_bytes_of(std::size_t num_segments, std::size_t size, std::size_t more_bytes) const;

    // Pages of a large segment that are not touched while only its first `written` bytes are.
    static std::size_t untouched_bytes(const StoredSegment& segment, std::size_t written);

    // The block with most dead bytes, and the owners of its segments; some may have been evicted.
    struct Sparse {
        const ArenaBlock* block = nullptr;
        std::vector<SegmentOwner> owners;
    };

    // Returns no block if too little memory is dead.
    Sparse sparsest() const;

private:
    std::size_t block_bytes(std::size_t live_bytes) const;
    void open_block(std::size_t wanted_bytes);
    void release_block(ArenaBlock* block);

    std::size_t least_block_bytes_;                    // blocks grow with the live bytes, from this size on
    std::vector<std::unique_ptr<ArenaBlock>> blocks_;  // every block with a stored segment, and current_
    ArenaBlock* current_ = nullptr;  // block that small segments are appended to; null: the next one opens a block
    std::size_t nbytes_ = 0;
    std::size_t live_bytes_ = 0;  // of the stored segments
};

}  // namespace framestow
