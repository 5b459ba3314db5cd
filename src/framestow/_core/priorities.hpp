// Priorities of the steps in slots, and the slots whose step changed.
//
// Threads: the caller serialises all calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sum_tree.hpp"

namespace framestow {

// Slots that a step entered or left since the last read.
//
// Steps enter and leave slot by slot, so spans of slots are stored: a million steps of one environment are one span.
// Many spans are sorted and merged, so there are never more spans than slots.
class ChangedSlots {
public:
    void watch(bool is_watching);  // off: records nothing and clears the record

    bool is_empty() const { return spans_.empty(); }

    void add(std::int64_t slot) { add(slot, 1); }

    void add(std::int64_t first, std::int64_t count) {
        if (!is_watching_) {
            return;
        }
        for (std::size_t back = 1; back <= kOpenSpans && back <= spans_.size(); ++back) {
            Span& span = spans_[spans_.size() - back];
            if (span.stop == first) {
                span.stop += count;
                return;
            }
        }
        add_span(first, count);
    }

    // Returns the first `most` changed slots, ascending and distinct.
    std::vector<std::int64_t> first_slots(std::size_t most);

    // Removes the slots that first_slots returned last. No slot may have been added since.
    void remove_first();

private:
    static constexpr std::size_t kOpenSpans = 4;    // newest ones may be extended: steps enter and leave alternately
    static constexpr std::size_t kFewSpans = 1024;  // so many are kept without joining them

    struct Span {
        std::int64_t first, stop;
    };

    void add_span(std::int64_t first, std::int64_t count);
    void join();

    bool is_watching_ = false;         // whether changes are recorded
    std::vector<Span> spans_;          // in the order of the changes; ascending and apart after join()
    std::size_t join_at_ = kFewSpans;  // number of spans at which they are joined next
    std::size_t num_given_ = 0;        // slots that first_slots returned last
};

// Priorities of the steps in slots, and draws in proportion to them (Schaul et al. 2016, the proportional variant). A
// slot has the weight (|priority| + epsilon) ** alpha and is drawn with its share of the total weight.
class Priorities {
public:
    Priorities(double alpha, double epsilon);

    const SumTree& tree() const { return tree_; }
    float largest() const { return largest_; }  // weight so far, and the weight of a new step; initially 1
    std::size_t nbytes() const;

    // Gives each slot the largest weight, or 0 if its index is -1 (no step).
    void mark_changed(const std::int64_t* slots, const std::int64_t* indices, std::size_t count);

    // Sets new priorities of any sign; skips rows with a negative slot. The last row of a repeated slot counts. Returns
    // false, and changes nothing, if a weight is not finite. `Real` is float or double.
    template <typename Real>
    bool update(const std::int64_t* slots, const Real* priorities, std::size_t count);

    // Draws one slot from each of `count` equal parts of the total weight, at the random numbers in [0, 1). Writes
    // `corrections` = (smallest weight / weight) ** beta, at most 1. Requires a weight above zero.
    void draw(const double* random, std::size_t count, double beta, std::int64_t* slots, float* corrections);

    // Restores weights, which must be finite and not negative, and the largest weight.
    void restore(const std::int64_t* slots, const float* weights, std::size_t count, float largest);

private:
    float weight_of(double magnitude) const;  // infinite on overflow

    double alpha_;
    double epsilon_;
    SumTree tree_;                // weight of each slot
    float largest_ = 1.0F;        // largest weight so far, which a new step gets
    std::vector<float> weights_;  // scratch of one call
    std::vector<double> targets_;
};

}  // namespace framestow
