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
    for (const Span& span : spans_) {
        for (std::int64_t slot = span.first; slot < span.stop && slots.size() < most; ++slot) {
            slots.push_back(slot);
        }
    }
    num_given_ = slots.size();
    return slots;
}

void ChangedSlots::remove_first() {
    std::size_t num_spans = 0;
    for (; num_spans < spans_.size() && num_given_ > 0; ++num_spans) {
        Span& span = spans_[num_spans];
        const std::size_t count = static_cast<std::size_t>(span.stop - span.first);
        if (count > num_given_) {
            span.first += static_cast<std::int64_t>(num_given_);
            num_given_ = 0;
            break;
        }
        num_given_ -= count;
    }
    spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(num_spans));
}

void ChangedSlots::add_span(std::int64_t first, std::int64_t count) {
    if (spans_.size() >= join_at_) {
        join();
        join_at_ = std::max(kFewSpans, 2 * spans_.size());
    }
    spans_.push_back(Span{first, first + count});
}

void ChangedSlots::join() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& one, const Span& other) { return one.first < other.first; });
    std::size_t last = 0;
    for (std::size_t next = 1; next < spans_.size(); ++next) {
        if (spans_[next].first <= spans_[last].stop) {
            spans_[last].stop = std::max(spans_[last].stop, spans_[next].stop);
        } else {
            spans_[++last] = spans_[next];
        }
    }
    spans_.resize(std::min(spans_.size(), last + 1));
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
