#include "step_record.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace framestow {
namespace {

constexpr std::size_t kPositionAt = 0;
constexpr std::size_t kRewardAt = 4;
constexpr std::size_t kFlagsAt = 8;
constexpr std::size_t kHistoryAt = 9;
constexpr std::size_t kEnvIdAt = 10;
constexpr std::int64_t kFarBack = std::int64_t{1} << 31;  // frames
constexpr std::int64_t kFarthest = std::int64_t{1}
                                   << 30;  // frames between an environment's newest and any that a slot names

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

// At least one integer, which is what most actions have.
template <typename Value>
void widen(const std::uint8_t* stored, const std::uint8_t* end, std::uint8_t* out) {
    do {
        store(out, static_cast<std::int64_t>(load<Value>(stored)));
        stored += sizeof(Value);
        out += sizeof(std::int64_t);
    } while (stored != end);
}

}  // namespace

StepRecords::StepRecords(const std::vector<std::int64_t>& newest_positions, const StepRules& rules)
    : newest_positions_(newest_positions),
      action_(rules.action),
      stack_(rules.stack),
      column_bytes_(rules.column_bytes),
      integer_bytes_(rules.action.bytes / rules.action.num_integers),
      given_action_bytes_(action_.is_counted ? action_.num_integers * sizeof(std::int64_t) : action_.bytes),
      action_at_(kEnvIdAt + env_id_bytes(newest_positions.size())),
      columns_at_(action_at_ + rules.action.bytes),
      record_bytes_(record_bytes(newest_positions.size(), rules)),
      discount_of_flags_{static_cast<float>(rules.discount), 0.0F, static_cast<float>(rules.discount), 0.0F} {
    for (std::int64_t power = 0; power <= rules.n_step; ++power) {
        discounts_.push_back(std::pow(rules.discount, static_cast<double>(power)));
    }
}

std::size_t StepRecords::env_id_bytes(std::size_t num_envs) {
    return num_envs <= 0x100 ? 1 : num_envs <= 0x10000 ? 2 : 4;
}

std::size_t StepRecords::record_bytes(std::size_t num_envs, const StepRules& rules) {
    const std::size_t without_columns = kEnvIdAt + env_id_bytes(num_envs) + rules.action.bytes;
    return std::accumulate(rules.column_bytes.begin(), rules.column_bytes.end(), without_columns);
}

void StepRecords::write(std::uint8_t* record, const PlannedSteps& steps, std::size_t row, std::int64_t position,
                        std::int64_t history, std::uint8_t more_flags) const {
    const auto env_id = static_cast<std::uint32_t>(steps.env_ids[row]);
    store(record + kPositionAt,
          static_cast<std::uint32_t>(position));  // the low 32 bits; position_of restores the others
    store(record + kRewardAt, steps.rewards[row]);
    record[kFlagsAt] = static_cast<std::uint8_t>(steps.flags[row] | more_flags);
    record[kHistoryAt] = static_cast<std::uint8_t>(history);
    switch (action_at_ - kEnvIdAt) {
        case 1:
            store(record + kEnvIdAt, static_cast<std::uint8_t>(env_id));
            break;
        case 2:
            store(record + kEnvIdAt, static_cast<std::uint16_t>(env_id));
            break;
        default:
            store(record + kEnvIdAt, env_id);
    }
    std::memcpy(record + action_at_, steps.actions + row * action_.bytes, action_.bytes);
    const std::size_t columns_bytes = record_bytes_ - columns_at_;
    if (columns_bytes != 0) {
        std::memcpy(record + columns_at_, steps.columns + row * columns_bytes, columns_bytes);
    }
}

bool StepRecords::may_change(std::size_t offset, std::size_t count) const {
    return (offset == kRewardAt && count == sizeof(float)) ||
           (offset >= columns_at_ && offset <= record_bytes_ && count <= record_bytes_ - offset);
}

void StepRecords::write_lost(std::uint8_t* record) const {
    std::memset(record, 0, record_bytes_);
    store(record + kPositionAt, static_cast<std::uint32_t>(newest_positions_[0] - kFarBack));
}

std::size_t StepRecords::env_of(const std::uint8_t* record) const {
    switch (action_at_ - kEnvIdAt) {
        case 1:
            return load<std::uint8_t>(record + kEnvIdAt);
        case 2:
            return load<std::uint16_t>(record + kEnvIdAt);
        default:
            return load<std::uint32_t>(record + kEnvIdAt);
    }
}

std::int64_t StepRecords::position_of(const std::uint8_t* record, std::size_t env_id) const {
    // An environment's stored positions span less than 2**32. So the distance to its newest position, modulo 2**32 from
    // the stored low 32 bits, is exact.
    const std::int64_t newest = newest_positions_[env_id];
    const std::uint32_t distance = static_cast<std::uint32_t>(newest) - load<std::uint32_t>(record + kPositionAt);
    return newest - static_cast<std::int64_t>(distance);
}

std::int64_t StepRecords::first_position_of(const std::uint8_t* record, std::size_t env_id) const {
    return position_of(record, env_id) - record[kHistoryAt];
}

bool StepRecords::is_taken(const std::uint8_t* record) { return (record[kFlagsAt] & kTaken) != 0; }

std::uint8_t StepRecords::flags_of(const std::uint8_t* record) { return record[kFlagsAt]; }

bool StepRecords::ends_episode(const std::uint8_t* record) { return framestow::ends_episode(record[kFlagsAt]); }

bool StepRecords::is_step_at(const std::uint8_t* record, std::size_t env_id, std::int64_t position) const {
    return load<std::uint32_t>(record + kPositionAt) == static_cast<std::uint32_t>(position) &&
           env_of(record) == env_id;
}

bool StepRecords::is_placeholder(const std::uint8_t* record) const {
    return env_of(record) == 0 && position_of(record, 0) < newest_positions_[0] - kFarthest;
}

StepReturn StepRecords::begin_return(const std::uint8_t* record) const {
    return StepReturn{record, 1, load<float>(record + kRewardAt)};
}

void StepRecords::add_step(StepReturn& sum, const std::uint8_t* record) const {
    sum.last = record;
    sum.reward += discounts_[sum.num_steps] * static_cast<double>(load<float>(record + kRewardAt));
    ++sum.num_steps;
}

// Reads the fields that a transition takes from its first step.
inline void StepRecords::read_carried(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const {
    read_action(record + action_at_, out.actions + row * given_action_bytes_);
    if (out.columns != nullptr) {
        read_columns(record + columns_at_, row, out.columns);
    }
}

float StepRecords::reward_of(const std::uint8_t* record) { return load<float>(record + kRewardAt); }

void StepRecords::resolve(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const {
    const std::size_t env_id = env_of(record);
    const std::uint8_t flags = record[kFlagsAt];
    out.env_ids[row] = static_cast<std::int32_t>(env_id);
    out.last_positions[row] = position_of(record, env_id) + 1;
    out.counts[row] = record[kHistoryAt] + 2;
    out.rewards[row] = load<float>(record + kRewardAt);
    out.discounts[row] = discount_of_flags_[flags & 3];
    out.terminated[row] = (flags & kTerminated) != 0;
    out.truncated[row] = (flags & kTruncated) != 0;
    if (out.flags != nullptr) {
        out.flags[row] = flags;
    }
    read_carried(record, row, out);
}

void StepRecords::resolve_return(const std::uint8_t* record, const StepReturn& sum, std::size_t row, std::size_t count,
                                 const ResolvedSteps& out) const {
    const std::size_t env_id = env_of(record), next_row = row + count;
    const std::int64_t position = position_of(record, env_id);
    const std::uint8_t flags = sum.last[kFlagsAt];
    const std::int64_t next_count = (flags & kBorder) != 0 ? 1 : std::int64_t{sum.last[kHistoryAt]} + 2;
    out.env_ids[row] = out.env_ids[next_row] = static_cast<std::int32_t>(env_id);
    out.last_positions[row] = position;
    out.counts[row] = record[kHistoryAt] + 1;
    out.last_positions[next_row] = position + static_cast<std::int64_t>(sum.num_steps);
    out.counts[next_row] = static_cast<std::int32_t>(next_count < stack_ ? next_count : stack_);
    out.rewards[row] = static_cast<float>(sum.reward);
    out.discounts[row] = (flags & kTerminated) != 0 ? 0.0F : static_cast<float>(discounts_[sum.num_steps]);
    out.terminated[row] = (flags & kTerminated) != 0;
    out.truncated[row] = (flags & kTruncated) != 0;
    read_carried(record, row, out);
}

bool merge_windows(const StepRules& rules, std::size_t count, const ResolvedSteps& out) {
    bool is_merged = rules.n_step < rules.stack;
    for (std::size_t row = 0; row < count && is_merged; ++row) {
        const std::int64_t shifted_count = std::min<std::int64_t>(out.counts[row] + rules.n_step, rules.stack);
        is_merged = out.last_positions[row + count] - out.last_positions[row] == rules.n_step &&
                    out.counts[row + count] == shifted_count;
    }
    for (std::size_t row = 0; row < count && is_merged; ++row) {
        out.last_positions[row] += rules.n_step;
        out.counts[row] += static_cast<std::int32_t>(rules.n_step);
    }
    return is_merged;
}

void StepRecords::read_action(const std::uint8_t* stored, std::uint8_t* out) const {
    if (!action_.is_counted || integer_bytes_ == sizeof(std::int64_t)) {
        std::memcpy(out, stored, action_.bytes);
        return;
    }
    const std::uint8_t* end = stored + action_.bytes;
    const bool is_signed = action_.is_signed;
    switch (integer_bytes_) {
        case 1:
            return is_signed ? widen<std::int8_t>(stored, end, out) : widen<std::uint8_t>(stored, end, out);
        case 2:
            return is_signed ? widen<std::int16_t>(stored, end, out) : widen<std::uint16_t>(stored, end, out);
        default:
            return is_signed ? widen<std::int32_t>(stored, end, out) : widen<std::uint32_t>(stored, end, out);
    }
}

void StepRecords::read_columns(const std::uint8_t* stored, std::size_t row, std::uint8_t* const* out) const {
    for (std::size_t column = 0; column < column_bytes_.size(); ++column) {
        std::memcpy(out[column] + row * column_bytes_[column], stored, column_bytes_[column]);
        stored += column_bytes_[column];
    }
}

}  // namespace framestow
