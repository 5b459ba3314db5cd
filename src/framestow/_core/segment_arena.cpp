#include "segment_arena.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "pages.hpp"

namespace framestow {
namespace {

constexpr std::size_t kMostBlockBytes = std::size_t{1024} * 1024;

// Fractions of all live bytes: what may be dead before a block is emptied, and the size of a block. Less is not worth a
// move.
constexpr std::size_t kPartOfLive = 32;

// Dead bytes of a block that emptying cannot recover, since its last page and padding are never full.
constexpr std::size_t kLeastWaste = 2 * kPageBytes + kReadPadding;

}  // namespace

class ArenaBlock {
public:
    ArenaBlock(std::size_t block_bytes, std::size_t place_in_list)
        : place(place_in_list), bytes(take_pages(block_bytes)), size(block_bytes) {
        clear();
    }
    ~ArenaBlock() { return_pages(bytes, size); }
    ArenaBlock(const ArenaBlock&) = delete;
    ArenaBlock& operator=(const ArenaBlock&) = delete;

    // Takes the bytes before the last ones taken; there must be enough. A decoder may load the first bytes after a
    // segment, so those must not belong to the next segment, which may be written at the same time.
    std::uint8_t* take(std::size_t num_bytes, SegmentOwner owner) {
        owners.push_back(owner);
        num_free -= num_bytes;
        live_bytes += num_bytes;
        ++num_live;
        return bytes + num_free;
    }

    // Resets the block; the padding after its first segment is never written.
    void clear() {
        num_free = size - kReadPadding;
        owners.clear();
    }

    std::size_t dead_bytes() const { return touched - live_bytes; }

    // Records that all taken bytes are written; returns how many bytes of new pages that touches.
    std::size_t touch() {
        const std::size_t wanted = size - untouched_before(num_free);
        const std::size_t added = wanted > touched ? wanted - touched : 0;
        touched += added;
        return added;
    }

    std::size_t place;  // in the arena's list
    std::uint8_t* const bytes;
    const std::size_t size;
    std::size_t num_free;     // bytes before the taken ones
    std::size_t touched = 0;  // bytes of pages ever written to
    std::size_t live_bytes = 0;
    std::size_t num_live = 0;
    std::vector<SegmentOwner> owners;  // of all taken bytes
};

SegmentArena::SegmentArena(std::size_t least_block_bytes) : least_block_bytes_(least_block_bytes) {}
SegmentArena::~SegmentArena() = default;

std::size_t SegmentArena::block_bytes(std::size_t live_bytes) const {
    return std::min(std::max(live_bytes / kPartOfLive, least_block_bytes_), kMostBlockBytes);
}

std::size_t SegmentArena::index_bytes() const {
    std::size_t bytes = blocks_.capacity() * sizeof(std::unique_ptr<ArenaBlock>) + blocks_.size() * sizeof(ArenaBlock);
    for (const auto& block : blocks_) {
        bytes += block->owners.capacity() * sizeof(SegmentOwner);
    }
    return bytes;
}

std::size_t SegmentArena::dead_allowance(std::size_t live_bytes) const {
    return live_bytes / kPartOfLive + block_bytes(live_bytes);
}

std::size_t SegmentArena::most_bytes(std::size_t live_bytes) const {
    return live_bytes + dead_allowance(live_bytes) + block_bytes(live_bytes);  // the current one may be empty
}

std::size_t SegmentArena::most_bytes_of(std::size_t num_segments, std::size_t size, std::size_t more_bytes) const {
    return size > kMostBlockBytes / 2 ? num_segments * (size + kLeastWaste) + more_bytes
                                      : most_bytes(num_segments * size + more_bytes);
}

std::size_t SegmentArena::untouched_bytes(const StoredSegment& segment, std::size_t written) {
    if (segment.size <= kMostBlockBytes / 2) {
        return 0;
    }
    // A huge page may be a small one where the system has none to give: count it whole, as an upper bound.
    const std::size_t in_huge =
        std::min((written + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes, huge_bytes(segment.size));
    return untouched_before(segment.size - std::max(written, in_huge));
}

StoredSegment SegmentArena::allocate(std::size_t size, SegmentOwner owner) {
    if (current_ == nullptr || current_->num_free < size) {
        open_block(size + kReadPadding);
    }
    const StoredSegment segment{current_, current_->take(size, owner), size};
    nbytes_ += current_->touch();
    live_bytes_ += size;
    return segment;
}

void SegmentArena::open_block(std::size_t wanted_bytes) {
    const std::size_t size = round_to_pages(std::max(wanted_bytes, block_bytes(live_bytes_)));
    blocks_.push_back(std::make_unique<ArenaBlock>(size, blocks_.size()));
    ArenaBlock* const before = std::exchange(current_, blocks_.back().get());
    if (before != nullptr && before->num_live == 0) {
        release_block(before);
    }
}

void SegmentArena::release(const StoredSegment& segment) {
    ArenaBlock* const block = segment.block;
    --block->num_live;
    block->live_bytes -= segment.size;
    live_bytes_ -= segment.size;
    if (block->num_live > 0) {
        return;
    }
    if (block == current_ && block->size <= kMostBlockBytes) {
        block->clear();
        return;
    }
    if (block == current_) {
        current_ = nullptr;
    }
    release_block(block);
}

void SegmentArena::release_block(ArenaBlock* block) {
    const std::unique_ptr<ArenaBlock> released = std::move(blocks_[block->place]);
    if (released->place + 1 != blocks_.size()) {
        blocks_.back()->place = released->place;
        blocks_[released->place] = std::move(blocks_.back());
    }
    blocks_.pop_back();
    nbytes_ -= released->touched;
}

SegmentArena::Sparse SegmentArena::sparsest() const {
    if (dead_bytes() <= dead_allowance(live_bytes_)) {
        return {};
    }
    const ArenaBlock* most_wasted = nullptr;
    for (const auto& block : blocks_) {
        if (block.get() != current_ && (most_wasted == nullptr || block->dead_bytes() > most_wasted->dead_bytes())) {
            most_wasted = block.get();
        }
    }
    if (most_wasted == nullptr ||
        most_wasted->dead_bytes() <= std::max(kLeastWaste, most_wasted->touched / kPartOfLive)) {
        return {};
    }
    return Sparse{most_wasted, most_wasted->owners};
}

}  // namespace framestow
