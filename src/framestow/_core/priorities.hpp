// Priorities of the steps in slots, and draws in proportion to them (Schaul et al. 2016, the proportional variant):
// a slot's weight is (|priority| + epsilon) ** alpha, and it is drawn with its share of all weights.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sum_tree.hpp"

namespace framestow {

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
