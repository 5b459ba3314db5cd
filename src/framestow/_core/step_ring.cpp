#include "step_ring.hpp"

#include <algorithm>
#include <cstring>

namespace framestow {
namespace {

constexpr std::size_t kPositionAt = 0;
constexpr std::size_t kRewardAt = 4;
constexpr std::size_t kFlagsAt = 8;
constexpr std::size_t kHistoryAt = 9;
constexpr std::size_t kStreamAt = 10;

template <typename Value>
Value load(const std::uint8_t* bytes) {
    Value value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

template <typename Value>
void store(std::uint8_t* bytes, Value value) {
    std::memcpy(bytes, &value, sizeof value);
}

template <typename Value>
void widen(const std::uint8_t* stored, std::uint8_t* out) {
    store(out, static_cast<std::int64_t>(load<Value>(stored)));
}

}  // namespace

StepRing::StepRing(const RingMemory& memory, const RingRules& rules)
    : memory_(memory),
      rules_(rules),
      stream_bytes_(stream_bytes(memory.num_streams)),
      record_bytes_(record_bytes(memory.num_streams, rules.action.bytes)),
      discount_of_flags_{rules.discount, 0.0F, rules.discount, 0.0F},
      segments_let_go_(memory.num_streams, 0),
      named_in_(memory.num_streams, 0) {}

std::size_t StepRing::stream_bytes(std::size_t num_streams) {
    return num_streams <= 0x100 ? 1 : num_streams <= 0x10000 ? 2 : 4;
}

std::size_t StepRing::record_bytes(std::size_t num_streams, std::size_t action_bytes) {
    return kStreamAt + stream_bytes(num_streams) + action_bytes;
}

void StepRing::begin(const std::int32_t* streams, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        memory_.episode_starts[stream] = ++memory_.newest_positions[stream];
        memory_.is_open[stream] = true;
    }
}

bool StepRing::may_append(const std::int32_t* streams, std::size_t count) {
    ++num_checks_;
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        if (streams[row] < 0 || stream >= memory_.num_streams || !memory_.is_open[stream] ||
            named_in_[stream] == num_checks_) {
            return false;
        }
        named_in_[stream] = num_checks_;
    }
    return true;
}

void StepRing::make_room(std::size_t count, std::vector<Eviction>& evictions) {
    const std::int64_t must_reach =
        next_index_ + static_cast<std::int64_t>(count) - static_cast<std::int64_t>(memory_.capacity);
    for (; oldest_ < must_reach; ++oldest_) {
        const std::uint8_t* leaving = slot(oldest_);
        const std::size_t stream = stream_of(leaving);
        // The next step of the stream starts at least one position later, and looks back stack - 1 frames.
        const std::int64_t before = position_of(leaving, stream) + 2 - rules_.stack;
        if (before / rules_.segment_frames > segments_let_go_[stream]) {
            segments_let_go_[stream] = before / rules_.segment_frames;
            evictions.push_back(Eviction{static_cast<std::int32_t>(stream), before});
        }
    }
}

void StepRing::append(const Steps& steps) {
    for (std::size_t row = 0; row < steps.count; ++row) {
        const auto stream = static_cast<std::size_t>(steps.streams[row]);
        const std::int64_t position = memory_.newest_positions[stream]++;
        const std::int64_t history = std::min(position - memory_.episode_starts[stream], rules_.stack - 1);
        memory_.is_open[stream] = steps.flags[row] == 0;

        std::uint8_t* record = slot(next_index_++);
        store(record + kPositionAt, static_cast<std::uint32_t>(position));  // the low 32 bits: see position_of
        store(record + kRewardAt, steps.rewards[row]);
        record[kFlagsAt] = steps.flags[row];
        record[kHistoryAt] = static_cast<std::uint8_t>(history);
        switch (stream_bytes_) {
            case 1: store(record + kStreamAt, static_cast<std::uint8_t>(stream)); break;
            case 2: store(record + kStreamAt, static_cast<std::uint16_t>(stream)); break;
            default: store(record + kStreamAt, static_cast<std::uint32_t>(stream));
        }
        std::memcpy(record + kStreamAt + stream_bytes_, steps.actions + row * rules_.action.bytes,
                    rules_.action.bytes);
    }
}

void StepRing::resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    const std::size_t action_bytes = rules_.action.is_counted ? sizeof(std::int64_t) : rules_.action.bytes;
    for (std::size_t row = 0; row < count; ++row) {
        const std::uint8_t* record = slot(indices[row]);
        const std::size_t stream = stream_of(record);
        const std::uint8_t flags = record[kFlagsAt];
        out.streams[row] = static_cast<std::int32_t>(stream);
        out.last_positions[row] = position_of(record, stream) + 1;
        out.counts[row] = record[kHistoryAt] + 2;
        out.rewards[row] = load<float>(record + kRewardAt);
        out.discounts[row] = discount_of_flags_[flags & 3];
        out.terminated[row] = (flags & kTerminated) != 0;
        out.truncated[row] = (flags & kTruncated) != 0;
        read_action(record + kStreamAt + stream_bytes_, out.actions + row * action_bytes);
    }
}

void StepRing::restore_span(std::int64_t oldest, std::int64_t next_index) {
    oldest_ = oldest;
    next_index_ = next_index;
}

std::uint8_t* StepRing::slot(std::int64_t index) const {
    return memory_.slots + static_cast<std::size_t>(index) % memory_.capacity * record_bytes_;
}

std::size_t StepRing::stream_of(const std::uint8_t* slot) const {
    switch (stream_bytes_) {
        case 1: return load<std::uint8_t>(slot + kStreamAt);
        case 2: return load<std::uint16_t>(slot + kStreamAt);
        default: return load<std::uint32_t>(slot + kStreamAt);
    }
}

std::int64_t StepRing::position_of(const std::uint8_t* slot, std::size_t stream) const {
    // A stream's held positions span less than 2**32, so the distance to its newest position, taken modulo 2**32 from
    // the low 32 bits that the slot keeps, is the true one.
    const std::int64_t newest = memory_.newest_positions[stream];
    const std::uint32_t distance = static_cast<std::uint32_t>(newest) - load<std::uint32_t>(slot + kPositionAt);
    return newest - static_cast<std::int64_t>(distance);
}

void StepRing::read_action(const std::uint8_t* stored, std::uint8_t* out) const {
    const ActionLayout& action = rules_.action;
    if (!action.is_counted || action.bytes == sizeof(std::int64_t)) {
        std::memcpy(out, stored, action.bytes);
        return;
    }
    switch (action.bytes) {
        case 1: return action.is_signed ? widen<std::int8_t>(stored, out) : widen<std::uint8_t>(stored, out);
        case 2: return action.is_signed ? widen<std::int16_t>(stored, out) : widen<std::uint16_t>(stored, out);
        default: return action.is_signed ? widen<std::int32_t>(stored, out) : widen<std::uint32_t>(stored, out);
    }
}

}  // namespace framestow
