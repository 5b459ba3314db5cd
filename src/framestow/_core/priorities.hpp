// Priorities of the steps in slots, and draws in proportion to them (Schaul et al. 2016, the proportional variant):
// a slot's weight is (|priority| + epsilon) ** alpha, and it is drawn with its share of all weights.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sum_tree.hpp"

// Slots that something came into or left, until somebody has been told of them.
//
// Steps come and leave slot by slot, so runs of slots are kept: a million steps of one stream are one run. Where runs
// become many they are sorted and joined, so they never are more than the slots.
//
// Threads: the caller keeps all calls apart.
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


class Priorities {
public:
    Priorities(double alpha, double epsilon);

    const SumTree& tree() const { return tree_; }
    float largest() const { return largest_; }  // weight so far; that of a step which comes. 1 before any
    std::size_t nbytes() const;

    // Gives each slot the largest weight if a step has come into it, 0 where its index says that there is none (-1).
    void take_note(const std::int64_t* slots, const std::int64_t* indices, std::size_t count);

    // Takes new priorities, of any sign; leaves out rows with a negative slot, and where a slot comes twice, the last
    // one counts. `Real` is float or double. False, and nothing is changed, where a weight is not finite.
    template <typename Real>
    bool update(const std::int64_t* slots, const Real* priorities, std::size_t count);

    // Draws a slot for each of the numbers, which lie in 0 to 1, 1 excluded: one from each of `count` equal parts of the
    // sum. `corrections` are (smallest weight / its weight) ** beta, at most 1: what the slot was drawn too often by.
    // There must be a weight above zero.
    void draw(const double* random, std::size_t count, double beta, std::int64_t* slots, float* corrections);

    // Puts back what was told: weights of slots, which must be finite and not negative, and the largest.
    void restore(const std::int64_t* slots, const float* weights, std::size_t count, float largest);

private:
    float weight_of(double magnitude) const;  // infinite where it is too large

    double alpha_;
    double epsilon_;
    SumTree tree_;
    float largest_ = 1.0F;
    std::vector<float> weights_;   // of the call that goes on
    std::vector<double> targets_;
};

}  // namespace framestow
