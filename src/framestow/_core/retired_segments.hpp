// Segments that were let go and that older readings may still see, until those have stopped.
//
// Ownership: gives places back to arena and files, which must outlive it. Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "reading_ledger.hpp"
#include "segment_files.hpp"
#include "segment_place.hpp"

namespace framestow {

class RetiredSegments {
public:
    using Ticket = ReadingLedger::Ticket;

    // A writer that finds so much retired waits for readings to stop: files do not count in the bytes.
    static constexpr std::size_t kMaxBytes = std::size_t{8} * 1024 * 1024;
    static constexpr std::size_t kMaxSegments = 1024;

    RetiredSegments(SegmentArena& arena, SegmentFiles& files) : arena_(arena), files_(files) {}

    bool is_empty() const { return retired_.empty(); }
    bool has_room() const { return retired_.size() < kMaxSegments && nbytes_ < kMaxBytes; }
    // What is only moved leaves most of that room to what is let go of.
    bool has_room_for_moved() const { return retired_.size() < kMaxSegments / 4 && nbytes_ < kMaxBytes / 4; }
    Ticket oldest() const { return retired_.front().retirement; }

    // Called before anything changes, so that nothing can fail between letting go and retiring.
    void make_room_for(std::size_t num_segments) { retired_.reserve(retired_.size() + num_segments); }
    void add(Ticket retirement, std::size_t stream, std::int64_t number, const SegmentPlace& place);

    // Frees what was retired before that ticket.
    void free_before(Ticket ticket);

    // What a reading of that ticket still sees, or nothing.
    const SegmentPlace* find(std::size_t stream, std::int64_t number, Ticket ticket) const;

    std::size_t index_bytes() const { return retired_.capacity() * sizeof(Retired); }

private:
    struct Retired {
        Ticket retirement;
        std::size_t stream;
        std::int64_t number;
        SegmentPlace place;
    };

    SegmentArena& arena_;
    SegmentFiles& files_;
    std::vector<Retired> retired_;  // in the order of their retirement
    std::size_t nbytes_ = 0;        // in RAM
};

}  // namespace framestow
