// Where the sealed segments of one stream lie, by number: ascending, with holes where some were let go.
//
// A number is found at once where there are no holes, by halving otherwise. Entries that were let go stay as gaps until
// they are more than the rest, so what is held bounds the bytes, whatever the order and however long.
//
// Ownership: notes places, owns no bytes. Not thread-safe; finding beside finding is.
#pragma once

#include <cstdint>
#include <vector>

#include "segment_place.hpp"

namespace framestow {

class SealedSegments {
public:
    // Numbers are asked for of a stream that holds a segment.
    bool is_empty() const { return num_held_ == 0; }
    std::size_t size() const { return num_held_; }
    std::int64_t first_number() const { return entries_[first_].number; }

    // Nothing where that number is not held. What it points to stays until the next change.
    const SegmentPlace* find(std::int64_t number) const {
        const std::size_t at = lower_bound(number);
        const bool is_held = at < entries_.size() && entries_[at].number == number && entries_[at].is_held();
        return is_held ? &entries_[at].place : nullptr;
    }
    SegmentPlace* find(std::int64_t number) {
        return const_cast<SegmentPlace*>(static_cast<const SealedSegments*>(this)->find(number));
    }

    // Whether a segment is held whose number is at least `first` and below `before`; how many.
    bool holds_any(std::int64_t first, std::int64_t before) const { return next_held(lower_bound(first)) < lower_bound(before); }
    std::size_t count(std::int64_t first, std::int64_t before) const;

    // All that are held, ascending.
    std::vector<std::int64_t> numbers() const;

    // Called before a segment is allocated, so that nothing can fail between that and noting it.
    void make_room_for_one();

    // Notes a segment whose number is above all others.
    void add(std::int64_t number, const SegmentPlace& place);

    // Lets go of those from `first` up to `before`, each shown to `visit(number, place)`, the oldest first.
    template <typename Visit>
    void let_go(std::int64_t first, std::int64_t before, const Visit& visit) {
        const std::size_t end = lower_bound(before);
        for (std::size_t at = next_held(lower_bound(first)); at < end; at = next_held(at + 1)) {
            visit(entries_[at].number, entries_[at].place);
            entries_[at].place = SegmentPlace{};
            --num_held_;
        }
        first_ = next_held(first_);
        close_gaps();
    }

    std::size_t nbytes() const { return entries_.capacity() * sizeof(Entry); }

private:
    struct Entry {
        std::int64_t number;
        SegmentPlace place;  // nowhere once it was let go

        bool is_held() const { return !is_nowhere(place); }
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
        return has_all_numbers() ? distance : halved(number);
    }

    bool has_all_numbers() const {
        return static_cast<std::size_t>(entries_.back().number - entries_.front().number) + 1 == entries_.size();
    }

    std::size_t next_held(std::size_t at) const {
        while (at < entries_.size() && !entries_[at].is_held()) {
            ++at;
        }
        return at;
    }

    std::size_t halved(std::int64_t number) const;
    void close_gaps();

    std::vector<Entry> entries_;  // ascending by number
    std::size_t first_ = 0;       // index of the first that is held
    std::size_t num_held_ = 0;
};

}  // namespace framestow
