#include "changed_slots.hpp"

#include <algorithm>

namespace framestow {

void ChangedSlots::watch(bool is_watching) {
    if (!is_watching) {
        *this = ChangedSlots();
    }
    is_watching_ = is_watching;
}

std::vector<std::int64_t> ChangedSlots::first_slots(std::size_t most) {
    join();
    std::vector<std::int64_t> slots;
    for (const Run& run : runs_) {
        for (std::int64_t slot = run.first; slot < run.stop && slots.size() < most; ++slot) {
            slots.push_back(slot);
        }
    }
    num_given_ = slots.size();
    return slots;
}

void ChangedSlots::forget_first() {
    std::size_t num_runs = 0;
    for (; num_runs < runs_.size() && num_given_ > 0; ++num_runs) {
        Run& run = runs_[num_runs];
        const std::size_t count = static_cast<std::size_t>(run.stop - run.first);
        if (count > num_given_) {
            run.first += static_cast<std::int64_t>(num_given_);
            num_given_ = 0;
            break;
        }
        num_given_ -= count;
    }
    runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(num_runs));
}

void ChangedSlots::add_run(std::int64_t first, std::int64_t count) {
    if (runs_.size() >= join_at_) {
        join();
        join_at_ = std::max(kFewRuns, 2 * runs_.size());
    }
    runs_.push_back(Run{first, first + count});
}

void ChangedSlots::join() {
    std::sort(runs_.begin(), runs_.end(), [](const Run& one, const Run& other) { return one.first < other.first; });
    std::size_t last = 0;
    for (std::size_t next = 1; next < runs_.size(); ++next) {
        if (runs_[next].first <= runs_[last].stop) {
            runs_[last].stop = std::max(runs_[last].stop, runs_[next].stop);
        } else {
            runs_[++last] = runs_[next];
        }
    }
    runs_.resize(std::min(runs_.size(), last + 1));
}

}  // namespace framestow
