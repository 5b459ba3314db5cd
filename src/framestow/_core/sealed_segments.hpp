// Where the sealed segments of one stream lie, by number: ascending, with holes where some were let go.
//
// A number is found at once where there are no holes, by halving otherwise. Entries that were let go stay as gaps until
// they are more than the rest, so what is held bounds the bytes, whatever the order and however long.
//
// Ownership: notes places, owns no bytes. Not thread-safe; finding beside finding is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "segment_files.hpp"

// Who reads since when: what was let go before may be freed once everybody who could see it has left.
//
// Time is counted in retirements. A reading that starts gets the number of the next one; what is retired with a number
// below every ticket that is out is seen by nobody. Thread-safe; calls take a mutex for some nanoseconds, and only
// wait_until_unreferenced() waits for others.
namespace framestow {

class ReadingLedger {
public:
    using Ticket = std::uint64_t;

    Ticket start();
    void stop(Ticket ticket);

    // The number of what is retired now: readings that started before hold this ticket or a lower one.
    Ticket retire();

    // Whatever was retired with a number below this is seen by nobody.
    Ticket oldest() const;

    // Returns when every reading that holds `number` or a lower ticket has stopped.
    void wait_until_unreferenced(Ticket number);

private:
    Ticket oldest_locked() const;

    mutable std::mutex mutex_;
    std::condition_variable one_stopped_;
    std::vector<Ticket> out_;  // as many as there are readers at once: a handful
    Ticket next_ = 0;
    std::size_t num_waiting_ = 0;
};


// Segments that were let go and that older readings may still see, until those have stopped.
//
// Ownership: gives places back to arena and files, which must outlive it. Not thread-safe.

class RetiredSegments {
public:
    using Ticket = ReadingLedger::Ticket;

    // A writer that finds so much retired waits for readings to stop: files do not count in the bytes.
    static constexpr std::size_t kMaxBytes = std::size_t{8} * 1024 * 1024;
    static constexpr std::size_t kMaxSegments = 1024;

    RetiredSegments(SegmentArena& arena, SegmentFiles& files) : arena_(arena), files_(files) {}

    bool is_empty() const { return retired_.empty(); }
    bool can_retire() const { return retired_.size() < kMaxSegments && nbytes_ < kMaxBytes; }
    // What is only moved leaves most of that room to what is let go of.
    bool can_retire_moved() const { return retired_.size() < kMaxSegments / 4 && nbytes_ < kMaxBytes / 4; }
    Ticket oldest() const { return retired_.front().retirement; }

    // Called before anything changes, so that nothing can fail between letting go and retiring.
    void reserve(std::size_t num_segments) { retired_.reserve(retired_.size() + num_segments); }
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


class SealedSegments {
public:
    // Numbers are asked for of a stream that holds a segment.
    bool is_empty() const { return num_stored_ == 0; }
    std::size_t size() const { return num_stored_; }
    std::int64_t first_number() const { return entries_[first_].number; }

    // Nothing where that number is not held. What it points to stays until the next change.
    const SegmentPlace* find(std::int64_t number) const {
        const std::size_t at = lower_bound(number);
        const bool is_stored = at < entries_.size() && entries_[at].number == number && entries_[at].is_stored();
        return is_stored ? &entries_[at].place : nullptr;
    }
    SegmentPlace* find(std::int64_t number) {
        return const_cast<SegmentPlace*>(static_cast<const SealedSegments*>(this)->find(number));
    }

    // Whether a segment is held whose number is at least `first` and below `before`; how many.
    bool holds_any(std::int64_t first, std::int64_t before) const { return next_stored(lower_bound(first)) < lower_bound(before); }
    std::size_t count(std::int64_t first, std::int64_t before) const;

    // All that are held, ascending.
    std::vector<std::int64_t> numbers() const;

    // Called before a segment is allocated, so that nothing can fail between that and noting it.
    void reserve_one();

    // Notes a segment whose number is above all others.
    void add(std::int64_t number, const SegmentPlace& place);

    // Lets go of those from `first` up to `before`, each shown to `visit(number, place)`, the oldest first.
    template <typename Visit>
    void remove(std::int64_t first, std::int64_t before, const Visit& visit) {
        const std::size_t end = lower_bound(before);
        for (std::size_t at = next_stored(lower_bound(first)); at < end; at = next_stored(at + 1)) {
            visit(entries_[at].number, entries_[at].place);
            entries_[at].place = SegmentPlace{};
            --num_stored_;
        }
        first_ = next_stored(first_);
        compact();
    }

    std::size_t nbytes() const { return entries_.capacity() * sizeof(Entry); }

private:
    struct Entry {
        std::int64_t number;
        SegmentPlace place;  // nowhere once it was let go

        bool is_stored() const { return !is_nowhere(place); }
    };

    // Index of the first entry whose number is `number` or more.
    std::size_t lower_bound(std::int64_t number) const {
        if (entries_.empty() || number <= entries_.front().number) {
            return 0;
        }
        if (number > entries_.back().number) {
            return entries_.size();
        }
        const auto distance = static_cast<std::size_t>(number - entries_.front().number);
        return has_all_numbers() ? distance : binary_search(number);
    }

    bool has_all_numbers() const {
        return static_cast<std::size_t>(entries_.back().number - entries_.front().number) + 1 == entries_.size();
    }

    std::size_t next_stored(std::size_t at) const {
        while (at < entries_.size() && !entries_[at].is_stored()) {
            ++at;
        }
        return at;
    }

    std::size_t binary_search(std::int64_t number) const;
    void compact();

    std::vector<Entry> entries_;  // ascending by number
    std::size_t first_ = 0;       // index of the first that is held
    std::size_t num_stored_ = 0;
};

}  // namespace framestow
