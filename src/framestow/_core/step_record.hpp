// The record of one step in its slot, and the steps of a call.
//
// framestow/replay/steps defines index, slot, position and window. A slot is one record without padding, in the
// machine's byte order:
//
//    position 4 | reward 4 | flags 1 | history 1 | environment 1, 2 or 4 | action | extra fields
//
// One record per slot instead of one array per field: a draw of 32 then waits for 32 cache lines, not 192.
//
// Ownership: references the caller's memory, which must stay in place. Nothing is checked: environments must be in
// range.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

constexpr std::uint8_t kNoFlags = 0;
constexpr std::uint8_t kTerminated = 1;  // bits of a step; Python gets them from module.cpp
constexpr std::uint8_t kTruncated = 2;
constexpr std::uint8_t kTaken = 4;          // StepBlocks: the slot has a step; an episode's last frame starts none
constexpr std::uint8_t kBeginsEpisode = 8;  // its observation is the first of its episode
constexpr std::uint8_t kBorder = 16;        // its next observation begins a stretch: it is not its observation shifted

// A frame of a packed segment has kBeginsEpisode alone if it begins one, and otherwise the end and kBorder of the step
// that led to it.

// Returns whether a step with these flags ends its episode.
constexpr bool ends_episode(std::uint8_t flags) { return (flags & (kTerminated | kTruncated)) != 0; }

struct ActionLayout {
    std::size_t bytes;  // of one action in its slot
    bool is_counted;    // integers of 1, 2, 4 or 8 bytes, returned as int64; other actions are returned unchanged
    bool is_signed;     // of a counted action
    std::size_t num_integers = 1;  // in one counted action
};

struct StepRules {
    std::int64_t stack;           // frames per observation
    std::int64_t segment_frames;  // frames that a storage evicts at once
    double discount;              // γ
    ActionLayout action;
    std::vector<std::size_t> column_bytes = {};  // per extra field: bytes of a step's value
    std::int64_t n_step = 1;                     // rewards in a return, fewer at an episode's end
};

struct PlannedSteps {  // one step of each of `count` environments; actions in their stored form
    const std::int32_t* env_ids;
    const std::uint8_t* actions;
    const float* rewards;
    const std::uint8_t* flags;
    std::size_t count;
    const std::uint8_t* columns = nullptr;  // per step: the values of all extra fields in order
};

// The windows and fields of some steps; one entry per step in each array. Single steps have one window, from the first
// frame of the observation to the newest one of the next observation. Transitions have two: first all observations'
// windows, then all next observations'.
struct ResolvedSteps {
    std::int32_t* env_ids;
    std::int64_t* last_positions;
    std::int32_t* counts;
    std::uint8_t* actions;  // int64 if counted
    float* rewards;
    float* discounts;
    bool* terminated;
    bool* truncated;
    std::uint8_t* const* columns = nullptr;  // per extra field: its output; nullptr: not requested
    std::uint8_t* flags = nullptr;           // of single steps; nullptr: not requested
};

// Merges both windows of each transition into the first `count` windows: the frames from the first to the last. Returns
// false, and changes nothing, unless every next observation is its observation shifted by n frames, and one window has
// fewer frames than two.
bool merge_windows(const StepRules& rules, std::size_t count, const ResolvedSteps& out);

struct StepReturn {            // of a step and its successors
    const std::uint8_t* last;  // record of the last step
    std::size_t num_steps;
    double reward;  // discounted sum
};

struct Eviction {  // frames from `first` up to, excluding, `before` of `env_id` are no longer needed
    std::int32_t env_id;
    std::int64_t first;
    std::int64_t before;
};

// Writes and reads slots.
class StepRecords {
public:
    // `newest_positions`: of each environment (EnvCursors); stays in place.
    StepRecords(const std::vector<std::int64_t>& newest_positions, const StepRules& rules);

    // Returns the fewest of 1, 2 and 4 bytes that can store every environment number, and the bytes of a slot.
    static std::size_t env_id_bytes(std::size_t num_envs);
    static std::size_t record_bytes(std::size_t num_envs, const StepRules& rules);

    std::size_t bytes() const { return record_bytes_; }

    // Writes step `row` of `steps`, which starts at `position`.
    void write(std::uint8_t* record, const PlannedSteps& steps, std::size_t row, std::int64_t position,
               std::int64_t history, std::uint8_t more_flags) const;

    // Returns whether these bytes are of the reward or of the extra fields, which may change in a stored step.
    bool may_change(std::size_t offset, std::size_t count) const;

    // Writes the placeholder of a lost step: of environment 0, with a position so old that no step follows it.
    void write_lost(std::uint8_t* record) const;

    std::size_t env_of(const std::uint8_t* record) const;
    std::int64_t position_of(const std::uint8_t* record, std::size_t env_id) const;
    std::int64_t first_position_of(const std::uint8_t* record, std::size_t env_id) const;  // of its window
    static bool is_taken(const std::uint8_t* record);
    static std::uint8_t flags_of(const std::uint8_t* record);
    static bool ends_episode(const std::uint8_t* record);  // by a flag
    static float reward_of(const std::uint8_t* record);

    // Returns whether a slot has the step of an environment that starts at `position`.
    bool is_step_at(const std::uint8_t* record, std::size_t env_id, std::int64_t position) const;

    // Returns whether a slot is a placeholder of write_lost.
    bool is_placeholder(const std::uint8_t* record) const;

    // Start a return with a step, and add the next step of its episode.
    StepReturn begin_return(const std::uint8_t* record) const;
    void add_step(StepReturn& sum, const std::uint8_t* record) const;

    // Writes entry `row` of each array, for a single step with one window.
    void resolve(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const;

    // Writes entry `row` of `count` of each array, for a transition with two windows; `sum` is the return of `record`.
    void resolve_return(const std::uint8_t* record, const StepReturn& sum, std::size_t row, std::size_t count,
                        const ResolvedSteps& out) const;

private:
    void read_carried(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const;
    void read_action(const std::uint8_t* stored, std::uint8_t* out) const;
    void read_columns(const std::uint8_t* stored, std::size_t row, std::uint8_t* const* out) const;

    const std::vector<std::int64_t>& newest_positions_;
    ActionLayout action_;
    std::int64_t stack_;
    std::vector<std::size_t> column_bytes_;
    std::size_t integer_bytes_;       // of a counted action
    std::size_t given_action_bytes_;  // of an action in the output
    std::size_t action_at_;           // offsets in a record
    std::size_t columns_at_;
    std::size_t record_bytes_;
    float discount_of_flags_[4];     // of a single step, by its two lowest bits: 0 if it terminated
    std::vector<double> discounts_;  // discount to the powers 0 to n_step
};

}  // namespace framestow
