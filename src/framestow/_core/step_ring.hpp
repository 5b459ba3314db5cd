// The newest `capacity` steps: where the frames of each one lie, and what it carries besides frames.
//
// framestow/replay/timeline.py has the rules (index, slot, position, window) and who may be drawn; this follows them.
// A slot is one record, its fields one behind the other without padding, in the machine's byte order:
//
//     position 4 | reward 4 | flags 1 | history 1 | stream 1, 2 or 4 | action
//
// One record a slot rather than one ring a field, because a draw of 32 then waits for 32 lines of memory, not 192.
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: none of its own; the caller keeps all calls
// apart. Nothing is checked but where it is said: streams must be known, indices held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

constexpr std::uint8_t kTerminated = 1;  // bits of a step's flags
constexpr std::uint8_t kTruncated = 2;

struct ActionLayout {
    std::size_t bytes;  // of one action in its slot
    bool is_counted;    // an integer of 1, 2, 4 or 8 bytes that is handed out as int64; others come back as they are
    bool is_signed;
};

struct RingMemory {
    std::uint8_t* slots;             // capacity records
    std::int64_t* newest_positions;  // a stream: position of its newest frame, -1 before the first
    std::int64_t* episode_starts;    // a stream: position of the first frame of its newest episode
    bool* is_open;                   // a stream: whether that episode goes on
    std::size_t capacity;
    std::size_t num_streams;
};

struct RingRules {
    std::int64_t stack;           // frames an observation
    std::int64_t segment_frames;  // a storage lets go of that many frames at once
    float discount;
    ActionLayout action;
};

struct Steps {  // one step of each of `count` streams; actions as their slots keep them
    const std::int32_t* streams;
    const std::uint8_t* actions;
    const float* rewards;
    const std::uint8_t* flags;
    std::size_t count;
};

struct Eviction {  // no frame of `stream` before that position is needed any more
    std::int32_t stream;
    std::int64_t before;
};

struct ResolvedSteps {  // where the frames of some steps lie, and what these carry; one entry a step in each
    std::int32_t* streams;
    std::int64_t* last_positions;
    std::int32_t* counts;
    std::uint8_t* actions;  // int64 each where they are counted
    float* rewards;
    float* discounts;
    bool* terminated;
    bool* truncated;
};

class StepRing {
public:
    StepRing(const RingMemory& memory, const RingRules& rules);

    // The narrowest of 1, 2 and 4 bytes that holds every stream number; bytes of a slot with it.
    static std::size_t stream_bytes(std::size_t num_streams);
    static std::size_t record_bytes(std::size_t num_streams, std::size_t action_bytes);

    std::int64_t oldest() const { return oldest_; }
    std::int64_t next_index() const { return next_index_; }
    std::size_t num_streams() const { return memory_.num_streams; }
    const RingRules& rules() const { return rules_; }
    bool is_held(std::int64_t index) const { return index >= oldest_ && index < next_index_; }

    // Starts an episode on each of the streams; one that was open ends there.
    void begin(const std::int32_t* streams, std::size_t count);

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count);

    // Lets go of the oldest steps until `count` more fit. Reports only what frees a segment, and never twice.
    void make_room(std::size_t count, std::vector<Eviction>& evictions);

    // Adds steps that may_append and for which there is room.
    void append(const Steps& steps);

    void resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Says which indices are held, after their slots were filled from elsewhere.
    void restore_span(std::int64_t oldest, std::int64_t next_index);

private:
    std::uint8_t* slot(std::int64_t index) const;
    std::size_t stream_of(const std::uint8_t* slot) const;
    std::int64_t position_of(const std::uint8_t* slot, std::size_t stream) const;
    void read_action(const std::uint8_t* stored, std::uint8_t* out) const;

    RingMemory memory_;
    RingRules rules_;
    std::size_t stream_bytes_;
    std::size_t record_bytes_;
    float discount_of_flags_[4];
    std::int64_t oldest_ = 0;
    std::int64_t next_index_ = 0;
    std::vector<std::int64_t> segments_let_go_;  // a stream: how many were reported
    std::vector<std::uint64_t> named_in_;        // a stream: number of the last check that it was named in
    std::uint64_t num_checks_ = 0;
};

}  // namespace framestow
