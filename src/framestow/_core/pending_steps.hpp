// The steps that wait for those that their n-step returns still lack: at most n - 1 of each stream, its newest.
//
// A step that starts at position p has n steps as soon as the step at p + n - 1 comes, which then takes its place here,
// since both have the same remainder modulo n - 1. Nothing is searched.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace framestow {

class PendingSteps {
public:
    static constexpr std::int64_t kNone = -1;

    PendingSteps(std::size_t num_streams, std::int64_t n_step)
        : num_places_(n_step - 1), waiting_(num_streams * static_cast<std::size_t>(num_places_), kNone) {}

    bool is_unused() const { return num_places_ == 0; }  // a return of one step waits for none

    // A stream's next step, which starts at `position`, waits from now on; kNone instead of its index lets it not.
    // Returns the one that has all its steps now, or kNone.
    std::int64_t exchange(std::size_t stream, std::int64_t position, std::int64_t index) {
        std::int64_t& place = place_of(stream, position);
        const std::int64_t waited = place;
        place = index;
        return waited;
    }

    // The slot of a lost step may give a position below 0: it is far back, where none waits.
    bool contains(std::size_t stream, std::int64_t position, std::int64_t index) const {
        return !is_unused() && position >= 0 && waiting_[offset_of(stream, position)] == index;
    }

    // Lets a step wait no more; nothing happens to one that does not.
    void remove(std::size_t stream, std::int64_t position, std::int64_t index) {
        if (contains(stream, position, index)) {
            place_of(stream, position) = kNone;
        }
    }

    // Empties the places of a stream; calls `use` with what waited there.
    template <typename Use>
    void take(std::size_t stream, Use use) {
        const std::size_t first = stream * static_cast<std::size_t>(num_places_);
        for (std::size_t at = first; at < first + static_cast<std::size_t>(num_places_); ++at) {
            if (waiting_[at] != kNone) {
                use(waiting_[at]);
                waiting_[at] = kNone;
            }
        }
    }

    void clear() { std::fill(waiting_.begin(), waiting_.end(), kNone); }

    std::vector<std::int64_t> indices() const {  // of all that wait, ascending
        std::vector<std::int64_t> ascending;
        std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(ascending),
                     [](std::int64_t index) { return index != kNone; });
        std::sort(ascending.begin(), ascending.end());
        return ascending;
    }

private:
    std::size_t offset_of(std::size_t stream, std::int64_t position) const {
        return stream * static_cast<std::size_t>(num_places_) + static_cast<std::size_t>(position % num_places_);
    }
    std::int64_t& place_of(std::size_t stream, std::int64_t position) { return waiting_[offset_of(stream, position)]; }

    std::int64_t num_places_;  // a stream
    std::vector<std::int64_t> waiting_;
};

}  // namespace framestow
