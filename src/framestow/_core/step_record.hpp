// One step as its slot keeps it, and the steps of a call.
//
// framestow/replay/timelines has the rules (index, slot, position, window) and who may be drawn; this follows them.
// A slot is one record, its fields one behind the other without padding, in the machine's byte order:
//
//     position 4 | reward 4 | flags 1 | history 1 | stream 1, 2 or 4 | action | extra columns
//
// One record a slot rather than one ring a field, because a draw of 32 then waits for 32 lines of memory, not 192.
//
// Ownership: works on memory of the caller, who keeps it in place. Nothing is checked: streams must be known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

constexpr std::uint8_t kTerminated = 1;  // bits of a step's flags
constexpr std::uint8_t kTruncated = 2;
constexpr std::uint8_t kTaken = 4;  // a slot of StepBlocks holds a step; the last frame of an episode starts none

struct ActionLayout {
    std::size_t bytes;  // of one action in its slot
    bool is_counted;    // integers of 1, 2, 4 or 8 bytes that are handed out as int64; others come back as they are
    bool is_signed;
    std::size_t num_integers = 1;  // of one action that is counted
};

struct StepRules {
    std::int64_t stack;           // frames an observation
    std::int64_t segment_frames;  // a storage lets go of that many frames at once
    double discount;
    ActionLayout action;
    std::vector<std::size_t> column_bytes = {};  // of a step's value in each extra column
    std::int64_t n_step = 1;  // a transition's return has that many rewards, fewer at an episode's end
};

struct StreamMemory {  // one entry a stream in each
    std::int64_t* newest_positions;   // of its newest frame, -1 before the first
    std::int64_t* episode_starts;     // of the first frame of its newest episode
    std::int64_t* unreadable_before;  // frames below may be lost: no step to come may look back that far
    bool* is_open;                    // whether that episode goes on
    std::size_t num_streams;
};

struct Steps {  // one step of each of `count` streams; actions as their slots keep them
    const std::int32_t* streams;
    const std::uint8_t* actions;
    const float* rewards;
    const std::uint8_t* flags;
    std::size_t count;
    const std::uint8_t* columns = nullptr;  // step by step, its values one behind the other
};

// Where the frames of some steps lie, and what these carry; one entry a step in each. Steps that are told one by one have
// one window, observation and next observation together. n-step transitions have two: the first half of the windows are
// those of all observations, the second half those of all next observations.
struct ResolvedSteps {
    std::int32_t* streams;
    std::int64_t* last_positions;
    std::int32_t* counts;
    std::uint8_t* actions;  // int64 each where they are counted
    float* rewards;
    float* discounts;
    bool* terminated;
    bool* truncated;
    std::uint8_t* const* columns = nullptr;  // where the values of each extra column go; nullptr: they are not asked
};

struct StepReturn {  // of a step and those that follow it
    const std::uint8_t* last;  // record of the last one
    std::size_t num_steps;
    double reward;
};

struct Eviction {  // no frame of `stream` from `first` up to, not including, `before` is needed any more
    std::int32_t stream;
    std::int64_t first;
    std::int64_t before;
};

// Writes and reads slots.
class StepRecords {
public:
    StepRecords(const StreamMemory& streams, const StepRules& rules);

    // The narrowest of 1, 2 and 4 bytes that holds every stream number; bytes of a slot with it.
    static std::size_t stream_bytes(std::size_t num_streams);
    static std::size_t record_bytes(std::size_t num_streams, const StepRules& rules);

    std::size_t bytes() const { return record_bytes_; }

    // Writes step `row` of `steps`, which starts at `position`.
    void write(std::uint8_t* record, const Steps& steps, std::size_t row, std::int64_t position, std::int64_t history,
               std::uint8_t more_flags = 0) const;

    // Writes what stands for a step that is lost: of stream 0, and so far back that nothing follows from it.
    void write_lost(std::uint8_t* record) const;

    std::size_t stream_of(const std::uint8_t* record) const;
    std::int64_t position_of(const std::uint8_t* record, std::size_t stream) const;
    std::int64_t first_position_of(const std::uint8_t* record, std::size_t stream) const;  // of its window
    static bool is_taken(const std::uint8_t* record);
    static bool ends_episode(const std::uint8_t* record);  // by a flag
    static float reward_of(const std::uint8_t* record);
    static std::int64_t history_of(const std::uint8_t* record);

    // Whether a slot has the step of a stream that starts at a position which it may hold.
    bool is_step_at(const std::uint8_t* record, std::size_t stream, std::int64_t position) const;

    // Whether a slot says nothing any more: write_lost wrote it.
    bool is_forgotten(const std::uint8_t* record) const;

    // A return begins with a step and goes on, in their order, with those that follow it in its episode.
    StepReturn begin_return(const std::uint8_t* record) const;
    void add_step(StepReturn& sum, const std::uint8_t* record) const;

    // Writes entry `row` of each of the columns, of the step alone.
    void resolve(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const;

    // Writes entry `row` of `count` of each of the columns, of an n-step transition: `sum` is the return of `record`.
    void resolve_return(const std::uint8_t* record, const StepReturn& sum, std::size_t row, std::size_t count,
                        const ResolvedSteps& out) const;

private:
    void read_carried(const std::uint8_t* record, std::size_t row, const ResolvedSteps& out) const;
    void read_action(const std::uint8_t* stored, std::uint8_t* out) const;
    void read_columns(const std::uint8_t* stored, std::size_t row, std::uint8_t* const* out) const;

    StreamMemory streams_;
    ActionLayout action_;
    std::int64_t stack_;
    std::vector<std::size_t> column_bytes_;
    std::size_t integer_bytes_;       // of a counted action
    std::size_t given_action_bytes_;  // of an action as it is handed out
    std::size_t action_at_;
    std::size_t columns_at_;
    std::size_t record_bytes_;
    float discount_of_flags_[4];
    std::vector<double> discounts_;  // discount to the powers 0 to n_step
};

}  // namespace framestow
