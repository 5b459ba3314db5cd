// The sealed segments of an environment: their places, and the evicted ones that readers may still use.
//
//   SnapshotLedger     the snapshots in progress, and when they started
//   RetiredSegments   evicted segments that an older snapshot may still use
//   SealedSegments    the places of one environment's sealed segments, by number
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "segment_files.hpp"

namespace framestow {

// Counts the snapshots in progress, so that evicted segments are freed after the last reader that may use them.
//
// Time is counted in retirements. A new snapshot gets the number of the next retirement as its ticket. No reader uses
// an object whose retirement number is below every ticket in use. Thread-safe; each call takes a mutex for nanoseconds,
// and only wait_until_unreferenced() waits.
//
// A forked child inherits entries whose threads do not exist there. They keep their segments as in the parent, until a
// writer of the child would wait for one: then it stops the entry.
class SnapshotLedger {
public:
    using Ticket = std::uint64_t;

    // A snapshot in progress. The ledger refers to it, so it stays where it is.
    struct Entry {
        Ticket ticket = 0;
        bool is_inherited = false;  // it started before a fork, and no thread of this process has read with it since
        std::atomic<bool> has_stopped{false};  // a writer of a forked child stops inherited ones
    };

    void start(Entry& entry);

    // Stops a snapshot that has not stopped.
    void stop(Entry& entry);

    // Returns whether a thread may read with the snapshot now; a writer waits for it from then on.
    bool may_read(Entry& entry) { return entry.is_inherited ? renew(entry) : !entry.has_stopped; }

    // Returns the number of a retirement that happens now. Snapshots that started before have this ticket or a lower
    // one.
    Ticket retire();

    // Returns the lowest ticket in use. No reader uses objects retired with a lower number.
    Ticket oldest() const;

    // Waits until every snapshot with `number` or a lower ticket has stopped. Stops those that a forked child
    // inherited.
    void wait_until_unreferenced(Ticket number);

    // Held during a fork, so that the child finds the entries whole.
    std::mutex& mutex() { return mutex_; }
    void renew_in_child();

private:
    bool renew(Entry& entry);
    Ticket oldest_locked() const;

    mutable std::mutex mutex_;
    std::condition_variable one_stopped_;
    std::vector<Entry*> out_;      // the snapshots in progress
    Ticket next_ = 0;              // number of the next retirement
    std::size_t num_waiting_ = 0;  // threads in wait_until_unreferenced()
};

// Evicted segments that older snapshots may still use, until those stop.
//
// Ownership: returns places to the arena and the files, which must outlive it. Not thread-safe.
class RetiredSegments {
public:
    using Ticket = SnapshotLedger::Ticket;

    // Above these limits a writer waits for snapshots to stop. Segments in files do not count as bytes. Of large
    // segments, 16 may be retired.
    static constexpr std::size_t kMaxBytes = std::size_t{8} * 1024 * 1024;
    static constexpr std::size_t kMaxSegments = 1024;
    static constexpr std::size_t kLargeSegments = 16;

    RetiredSegments(SegmentArena& arena, SegmentFiles& files, std::size_t largest_segment)
        : arena_(arena), files_(files), max_bytes_(std::max(kMaxBytes, kLargeSegments * largest_segment)) {}

    bool is_empty() const { return retired_.empty(); }
    bool can_retire() const { return retired_.size() < kMaxSegments && nbytes_ < max_bytes_; }
    // Moves to files may use a quarter of the limits, so that evictions do not wait for them.
    bool can_retire_moved() const { return retired_.size() < kMaxSegments / 4 && nbytes_ < max_bytes_ / 4; }
    Ticket oldest() const { return retired_.front().retirement; }

    // Reserves memory before anything changes, so that nothing can fail between eviction and retirement.
    void reserve(std::size_t num_segments) { retired_.reserve(retired_.size() + num_segments); }
    void add(Ticket retirement, std::size_t env_id, std::int64_t number, const SegmentPlace& place);

    // Frees the segments retired before that ticket.
    void free_before(Ticket ticket);

    // Returns the place that a snapshot with that ticket still uses, or null.
    const SegmentPlace* find(std::size_t env_id, std::int64_t number, Ticket ticket) const;

    std::size_t index_bytes() const { return retired_.capacity() * sizeof(Retired); }

private:
    struct Retired {
        Ticket retirement;
        std::size_t env_id;
        std::int64_t number;
        SegmentPlace place;
    };

    SegmentArena& arena_;
    SegmentFiles& files_;
    std::size_t max_bytes_;         // of retired segments in RAM, before a writer waits
    std::vector<Retired> retired_;  // in the order of retirement
    std::size_t nbytes_ = 0;        // bytes in RAM
};

// The places of one environment's sealed segments by ascending number, with gaps after evictions.
//
// Without gaps a number is found by subtraction, otherwise by binary search. Entries of evicted segments remain until
// they outnumber the others, so the stored segments bound the memory.
//
// Ownership: records places, owns no bytes. Not thread-safe; concurrent finds are safe.
class SealedSegments {
public:
    // The environment must have a segment.
    bool is_empty() const { return num_stored_ == 0; }
    std::size_t size() const { return num_stored_; }
    std::int64_t first_number() const { return entries_[first_].number; }

    // Returns the place of a segment, valid until the next change; null if it is not stored.
    const SegmentPlace* find(std::int64_t number) const {
        const std::size_t at = lower_bound(number);
        const bool is_stored = at < entries_.size() && entries_[at].number == number && entries_[at].is_stored();
        return is_stored ? &entries_[at].place : nullptr;
    }
    SegmentPlace* find(std::int64_t number) {
        return const_cast<SegmentPlace*>(static_cast<const SealedSegments*>(this)->find(number));
    }

    // Whether any, and how many, segments with first <= number < before are stored.
    bool has_any(std::int64_t first, std::int64_t before) const {
        return next_stored(lower_bound(first)) < lower_bound(before);
    }
    std::size_t count(std::int64_t first, std::int64_t before) const;

    // Calls visit(place) for each stored segment.
    template <typename Visit>
    void for_each(const Visit& visit) const {
        for (std::size_t at = next_stored(0); at < entries_.size(); at = next_stored(at + 1)) {
            visit(entries_[at].place);
        }
    }

    // Returns the stored numbers, ascending.
    std::vector<std::int64_t> numbers() const;

    // Reserves memory before a segment is allocated, so that add() cannot fail.
    void reserve_one();

    // Adds a segment whose number is above all others.
    void add(std::int64_t number, const SegmentPlace& place);

    // Removes the segments from `first` up to, excluding, `before`, and calls visit(number, place) for each, oldest
    // first.
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
        SegmentPlace place;  // kNowhere after removal

        bool is_stored() const { return !is_nowhere(place); }
    };

    // Returns the index of the first entry with at least that number.
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
    std::size_t first_ = 0;       // index of the first stored one
    std::size_t num_stored_ = 0;  // entries that were not removed
};

}  // namespace framestow
