// Slots that something came into or left, until somebody has been told of them.
//
// Steps come and leave slot by slot, so runs of slots are kept: a million steps of one stream are one run. Where runs
// become many they are sorted and joined, so they never are more than the slots.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class ChangedSlots {
public:
    void watch(bool is_watching);  // notes nothing before, and forgets everything when it ends

    bool is_empty() const { return runs_.empty(); }

    void add(std::int64_t slot) { add(slot, 1); }

    void add(std::int64_t first, std::int64_t count) {
        if (!is_watching_) {
            return;
        }
        for (std::size_t back = 1; back <= kOpenRuns && back <= runs_.size(); ++back) {
            Run& run = runs_[runs_.size() - back];
            if (run.stop == first) {
                run.stop += count;
                return;
            }
        }
        add_run(first, count);
    }

    // The first `most` of them, ascending, each once.
    std::vector<std::int64_t> first_slots(std::size_t most);

    // Forgets what first_slots gave last; nothing was added since.
    void forget_first();

private:
    static constexpr std::size_t kOpenRuns = 4;  // that are looked at whether they go on: steps come and leave in turn
    static constexpr std::size_t kFewRuns = 1024;

    struct Run {
        std::int64_t first, stop;
    };

    void add_run(std::int64_t first, std::int64_t count);
    void join();

    bool is_watching_ = false;
    std::vector<Run> runs_;
    std::size_t join_at_ = kFewRuns;
    std::size_t num_given_ = 0;
};

}  // namespace framestow
