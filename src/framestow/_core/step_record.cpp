#include "step_record.hpp"

#include <cstring>

namespace framestow {
namespace {

constexpr std::size_t kPositionAt = 0;
constexpr std::size_t kRewardAt = 4;
constexpr std::size_t kFlagsAt = 8;
constexpr std::size_t kHistoryAt = 9;
constexpr std::size_t kStreamAt = 10;
constexpr std::int64_t kFarBack = std::int64_t{1} << 31;  // frames

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

StepRecords::StepRecords(const StreamMemory& streams, const StepRules& rules)
    : streams_(streams),
      action_(rules.action),
      stream_bytes_(stream_bytes(streams.num_streams)),
      record_bytes_(record_bytes(streams.num_streams, rules.action.bytes)),
      discount_of_flags_{rules.discount, 0.0F, rules.discount, 0.0F} {}

std::size_t StepRecords::stream_bytes(std::size_t num_streams) {
    return num_streams <= 0x100 ? 1 : num_streams <= 0x10000 ? 2 : 4;
}

std::size_t StepRecords::record_bytes(std::size_t num_streams, std::size_t action_bytes) {
    return kStreamAt + stream_bytes(num_streams) + action_bytes;
}

void StepRecords::write(std::uint8_t* record, const Steps& steps, std::size_t row, std::int64_t position,
                        std::int64_t history, std::uint8_t more_flags) const {
    const auto stream = static_cast<std::uint32_t>(steps.streams[row]);
    store(record + kPositionAt, static_cast<std::uint32_t>(position));  // the low 32 bits: see position_of
    store(record + kRewardAt, steps.rewards[row]);
    record[kFlagsAt] = static_cast<std::uint8_t>(steps.flags[row] | more_flags);
    record[kHistoryAt] = static_cast<std::uint8_t>(history);
    switch (stream_bytes_) {
        case 1: store(record + kStreamAt, static_cast<std::uint8_t>(stream)); break;
        case 2: store(record + kStreamAt, static_cast<std::uint16_t>(stream)); break;
        default: store(record + kStreamAt, stream);
    }
    std::memcpy(record + kStreamAt + stream_bytes_, steps.actions + row * action_.bytes, action_.bytes);
}

void StepRecords::write_lost(std::uint8_t* record) const {
    std::memset(record, 0, record_bytes_);
    store(record + kPositionAt, static_cast<std::uint32_t>(streams_.newest_positions[0] - kFarBack));
}

std::size_t StepRecords::stream_of(const std::uint8_t* record) const {
    switch (stream_bytes_) {
        case 1: return load<std::uint8_t>(record + kStreamAt);
        case 2: return load<std::uint16_t>(record + kStreamAt);
        default: return load<std::uint32_t>(record + kStreamAt);
    }
}

std::int64_t StepRecords::position_of(const std::uint8_t* record, std::size_t stream) const {
    // A stream's held positions span less than 2**32, so the distance to its newest position, taken modulo 2**32 from
    // the low 32 bits that the slot keeps, is the true one.
    const std::int64_t newest = streams_.newest_positions[stream];
    const std::uint32_t distance = static_cast<std::uint32_t>(newest) - load<std::uint32_t>(record + kPositionAt);
    return newest - static_cast<std::int64_t>(distance);
}

std::int64_t StepRecords::first_position_of(const std::uint8_t* record, std::size_t stream) const {
    return position_of(record, stream) - record[kHistoryAt];
}

bool StepRecords::is_taken(const std::uint8_t* record) { return (record[kFlagsAt] & kTaken) != 0; }

void StepRecords::resolve(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const {
    const std::size_t stream = stream_of(record);
    const std::uint8_t flags = record[kFlagsAt];
    out.streams[row] = static_cast<std::int32_t>(stream);
    out.last_positions[row] = position_of(record, stream) + 1;
    out.counts[row] = record[kHistoryAt] + 2;
    out.rewards[row] = load<float>(record + kRewardAt);
    out.discounts[row] = discount_of_flags_[flags & 3];
    out.terminated[row] = (flags & kTerminated) != 0;
    out.truncated[row] = (flags & kTruncated) != 0;
    const std::size_t action_bytes = action_.is_counted ? sizeof(std::int64_t) : action_.bytes;
    read_action(record + kStreamAt + stream_bytes_, out.actions + row * action_bytes);
}

void StepRecords::read_action(const std::uint8_t* stored, std::uint8_t* out) const {
    if (!action_.is_counted || action_.bytes == sizeof(std::int64_t)) {
        std::memcpy(out, stored, action_.bytes);
        return;
    }
    switch (action_.bytes) {
        case 1: return action_.is_signed ? widen<std::int8_t>(stored, out) : widen<std::uint8_t>(stored, out);
        case 2: return action_.is_signed ? widen<std::int16_t>(stored, out) : widen<std::uint16_t>(stored, out);
        default: return action_.is_signed ? widen<std::int32_t>(stored, out) : widen<std::uint32_t>(stored, out);
    }
}

}  // namespace framestow
