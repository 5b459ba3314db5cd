// Where the sealed segments of one stream lie, by number: ascending, with holes where some were let go.
//
// A number is found at once where there are no holes, by halving otherwise. Entries that were let go stay as gaps until
// they are more than the rest, so what is held bounds the bytes, whatever the order and however long.
//
// Ownership: notes places, owns no bytes. Not thread-safe; finding beside finding is.
#pragma once

#include <cstdint>
#include <vector>

#include "segment_arena.hpp"

namespace framestow {

class SealedSegments {
public:
    // Numbers are asked for of a stream that holds a segment.
    bool is_empty() const { return num_held_ == 0; }
    std::size_t size() const { return num_held_; }
    std::int64_t first_number() const { return entries_[first_].number; }

    // Nothing where that number is not held. What it points to stays until the next change.
    const StoredSegment* find(std::int64_t number) const {
        const std::size_t place = lower_bound(number);
        return place < entries_.size() && entries_[place].number == number && entries_[place].is_held
                   ? &entries_[place].segment
                   : nullptr;
    }

    // Whether a segment is held whose number is at least `first` and below `before`; how many.
    bool holds_any(std::int64_t first, std::int64_t before) const { return next_held(lower_bound(first)) < lower_bound(before); }
    std::size_t count(std::int64_t first, std::int64_t before) const;

    // All that are held, ascending.
    std::vector<std::int64_t> numbers() const;

    // Called before a segment is allocated, so that nothing can fail between that and noting it.
    void make_room_for_one();

    // Notes a segment whose number is above all others.
    void add(std::int64_t number, const StoredSegment& segment);

    // Lets go of those from `first` up to `before`, each shown to `visit(number, segment)`, the oldest first.
    template <typename Visit>
    void let_go(std::int64_t first, std::int64_t before, const Visit& visit) {
        const std::size_t end = lower_bound(before);
        for (std::size_t place = next_held(lower_bound(first)); place < end; place = next_held(place + 1)) {
            visit(entries_[place].number, entries_[place].segment);
            entries_[place].is_held = false;
            --num_held_;
        }
        first_ = next_held(first_);
        close_gaps();
    }

    std::size_t nbytes() const { return entries_.capacity() * sizeof(Entry); }

private:
    struct Entry {
        std::int64_t number;
        StoredSegment segment;
        bool is_held;
    };

    // The first place whose number is `number` or more.
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

    std::size_t next_held(std::size_t place) const {
        while (place < entries_.size() && !entries_[place].is_held) {
            ++place;
        }
        return place;
    }

    std::size_t halved(std::int64_t number) const;
    void close_gaps();

    std::vector<Entry> entries_;  // ascending by number
    std::size_t first_ = 0;       // place of the first that is held
    std::size_t num_held_ = 0;
};

}  // namespace framestow
