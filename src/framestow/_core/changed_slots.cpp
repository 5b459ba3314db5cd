#include "changed_slots.hpp"

#include <algorithm>

namespace framestow {

void ChangedSlots::watch(bool is_watching) {
    is_watching_ = is_watching;
    runs_ = std::vector<Run>();
    join_at_ = kFewRuns;
}

std::vector<std::int64_t> ChangedSlots::slots() {
    join();
    std::vector<std::int64_t> slots;
    std::size_t count = 0;
    for (const Run& run : runs_) {
        count += static_cast<std::size_t>(run.stop - run.first);
    }
    slots.reserve(count);
    for (const Run& run : runs_) {
        for (std::int64_t slot = run.first; slot < run.stop; ++slot) {
            slots.push_back(slot);
        }
    }
    return slots;
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
