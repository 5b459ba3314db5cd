#include "priorities.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

namespace {

// Smallest weight of a priority above 0, and largest weight of all.
constexpr float kSmallest = std::numeric_limits<float>::min();
constexpr float kGreatest = std::numeric_limits<float>::max();

// The weights of a batch. Single precision takes a quarter of the time and matches the stored weights.
float power(float base, double exponent) {
    return exponent == 1.0   ? base
           : exponent == 0.5 ? std::sqrt(base)
           : exponent == 0.0 ? 1.0F
                             : std::pow(base, static_cast<float>(exponent));
}

}  // namespace

Priorities::Priorities(double alpha, double epsilon) : alpha_(alpha), epsilon_(epsilon) {}

std::size_t Priorities::nbytes() const {
    return tree_.nbytes() + weights_.capacity() * sizeof(float) + targets_.capacity() * sizeof(double);
}

void Priorities::mark_changed(const std::int64_t* slots, const std::int64_t* indices, std::size_t count) {
    std::vector<float> weights(count);
    for (std::size_t row = 0; row < count; ++row) {
        weights[row] = indices[row] < 0 ? 0.0F : largest_;
    }
    tree_.set(slots, weights.data(), count);
}

template <typename Real>
bool Priorities::update(const std::int64_t* slots, const Real* priorities, std::size_t count) {
    weights_.resize(count);
    for (std::size_t row = 0; row < count; ++row) {
        weights_[row] = weight_of(std::abs(static_cast<double>(priorities[row])) + epsilon_);
        if (!(weights_[row] <= kGreatest)) {
            return false;
        }
    }
    tree_.set(slots, weights_.data(), count);
    for (std::size_t row = 0; row < count; ++row) {
        if (slots[row] >= 0) {  // from the tree, since a later row may have replaced this one
            largest_ = std::max(largest_, tree_.weight(static_cast<std::size_t>(slots[row])));
        }
    }
    return true;
}

template bool Priorities::update(const std::int64_t*, const float*, std::size_t);
template bool Priorities::update(const std::int64_t*, const double*, std::size_t);

void Priorities::draw(const double* random, std::size_t count, double beta, std::int64_t* slots, float* corrections) {
    targets_.resize(count);
    const double part = tree_.total() / static_cast<double>(count);
    for (std::size_t row = 0; row < count; ++row) {
        targets_[row] = (static_cast<double>(row) + random[row]) * part;
    }
    tree_.find(targets_.data(), count, slots, corrections);
    for (std::size_t row = 0; row < count; ++row) {
        corrections[row] = power(tree_.smallest() / corrections[row], beta);
    }
}

void Priorities::restore(const std::int64_t* slots, const float* weights, std::size_t count, float largest) {
    tree_.set(slots, weights, count);
    largest_ = largest;
}

// A positive priority keeps a positive weight: only a priority of zero is never drawn.
float Priorities::weight_of(double magnitude) const {
    if (magnitude == 0.0) {
        return 0.0F;
    }
    if (magnitude >= static_cast<double>(kSmallest) && magnitude <= static_cast<double>(kGreatest)) {
        return std::max(power(static_cast<float>(magnitude), alpha_), kSmallest);
    }
    const double weight = std::pow(magnitude, alpha_);
    return weight <= static_cast<double>(kGreatest) ? std::max(static_cast<float>(weight), kSmallest)
                                                    : std::numeric_limits<float>::infinity();
}

}  // namespace framestow
