#include "step_ring.hpp"

namespace framestow {

StepRing::StepRing(std::uint8_t* slots, std::size_t capacity, const StreamMemory& streams, const StepRules& rules)
    : slots_(slots),
      capacity_(capacity),
      rules_(rules),
      records_(streams, rules),
      courses_(streams, rules.stack),
      segments_let_go_(streams.num_streams, 0) {}

void StepRing::begin(const std::int32_t* streams, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) {
        courses_.begin(static_cast<std::size_t>(streams[row]));
    }
}

void StepRing::make_room(std::size_t count, std::vector<Eviction>& evictions) {
    leave(next_index_ + static_cast<std::int64_t>(count) - static_cast<std::int64_t>(capacity_), evictions);
}

void StepRing::let_go(std::vector<Eviction>& evictions) {
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        std::size_t stream = 0;
        if (needed_from(index, stream) / rules_.segment_frames > segments_let_go_[stream]) {
            leave(index + 1, evictions);
            return;
        }
    }
}

void StepRing::append(const Steps& steps) {
    for (std::size_t row = 0; row < steps.count; ++row) {
        const StepStart start = courses_.advance(static_cast<std::size_t>(steps.streams[row]), steps.flags[row]);
        if (!start.is_readable) {
            lost_.push(next_index_);
        }
        records_.write(slot(next_index_++), steps, row, start.position, start.history);
    }
}

std::size_t StepRing::resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    for (std::size_t row = 0; row < count; ++row) {
        if (!is_held(indices[row])) {
            return row;
        }
        records_.resolve(slot(indices[row]), row, out);
    }
    return count;
}

std::size_t StepRing::lose(std::size_t stream, std::int64_t first, std::int64_t before) {
    courses_.lose(stream, before);
    std::vector<std::int64_t> touched;
    for (std::int64_t index = first_from(stream, first - 1); index < next_index_; index = next_of(stream, index + 1)) {
        if (records_.first_position_of(slot(index), stream) >= before) {
            break;  // windows of a stream begin no earlier than those before them
        }
        touched.push_back(index);
    }
    return lost_.add(touched);
}

void StepRing::forget(const std::vector<std::int64_t>& indices) {
    for (const std::int64_t index : indices) {
        records_.write_lost(slot(index));
    }
}

void StepRing::restore_span(std::int64_t oldest, std::int64_t next_index) {
    oldest_ = oldest;
    next_index_ = next_index;
    lost_ = LostIndices();
}

std::uint8_t* StepRing::slot(std::int64_t index) const {
    return slots_ + static_cast<std::size_t>(index) % capacity_ * records_.bytes();
}

// Position of the first frame of its stream that is still needed once the step has left.
std::int64_t StepRing::needed_from(std::int64_t index, std::size_t& stream) const {
    const std::uint8_t* leaving = slot(index);
    stream = records_.stream_of(leaving);
    // The next step of the stream starts at least one position later, and looks back stack - 1 frames.
    return records_.position_of(leaving, stream) + 2 - rules_.stack;
}

void StepRing::leave(std::int64_t until, std::vector<Eviction>& evictions) {
    for (; oldest_ < until; ++oldest_) {
        std::size_t stream = 0;
        const std::int64_t before = needed_from(oldest_, stream);
        if (before / rules_.segment_frames > segments_let_go_[stream]) {
            segments_let_go_[stream] = before / rules_.segment_frames;
            evictions.push_back(Eviction{static_cast<std::int32_t>(stream), 0, before});
        }
    }
    if (lost_.size() != 0) {
        lost_.drop_before(oldest_);
    }
}

// The first step of the stream at or after `index` that may be drawn; the record of another one may say nothing.
std::int64_t StepRing::next_of(std::size_t stream, std::int64_t index) const {
    while (index < next_index_ && (records_.stream_of(slot(index)) != stream || !is_held(index))) {
        ++index;
    }
    return index;
}

// The first step of the stream that starts at `position` or later, since those of a stream come in order.
std::int64_t StepRing::first_from(std::size_t stream, std::int64_t position) const {
    std::int64_t low = oldest_, high = next_index_;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const std::int64_t index = next_of(stream, middle);
        if (index < next_index_ && records_.position_of(slot(index), stream) < position) {
            low = index + 1;
        } else {
            high = middle;
        }
    }
    return next_of(stream, low);
}

}  // namespace framestow
