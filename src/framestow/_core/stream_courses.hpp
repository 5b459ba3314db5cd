// How far each stream has come: its newest frame, where its newest episode began, and whether that goes on.
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "step_record.hpp"

namespace framestow {

struct StepStart {
    std::int64_t position;  // of the frame that the step starts at
    std::int64_t history;   // frames of the observation before it, padding not counted
    bool is_readable;       // no frame that it looks at is lost
};

class StreamCourses {
public:
    StreamCourses(const StreamMemory& memory, std::int64_t stack)
        : memory_(memory), stack_(stack), named_in_(memory.num_streams, 0) {}

    std::size_t num_streams() const { return memory_.num_streams; }
    std::int64_t newest_position(std::size_t stream) const { return memory_.newest_positions[stream]; }
    std::int64_t episode_start(std::size_t stream) const { return memory_.episode_starts[stream]; }
    bool is_open(std::size_t stream) const { return memory_.is_open[stream]; }

    // Starts an episode on a stream; one that was open ends there.
    void begin(std::size_t stream) {
        memory_.episode_starts[stream] = ++memory_.newest_positions[stream];
        memory_.is_open[stream] = true;
    }

    // Ends an open episode as cut off.
    void close(std::size_t stream) { memory_.is_open[stream] = false; }

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count);

    // Goes on to the frame that a step with these flags led to.
    StepStart advance(std::size_t stream, std::uint8_t flags) {
        const std::int64_t position = memory_.newest_positions[stream]++;
        const std::int64_t age = position - memory_.episode_starts[stream];
        const std::int64_t history = age < stack_ - 1 ? age : stack_ - 1;
        memory_.is_open[stream] = flags == 0;
        return StepStart{position, history, position - history >= memory_.unreadable_before[stream]};
    }

    // The frames of a stream below `before`, which it has, may be lost from some position on.
    void lose(std::size_t stream, std::int64_t before) {
        std::int64_t& bound = memory_.unreadable_before[stream];
        bound = before > bound ? before : bound;
    }

private:
    StreamMemory memory_;
    std::int64_t stack_;
    std::vector<std::uint64_t> named_in_;  // a stream: number of the last check that it was named in
    std::uint64_t num_checks_ = 0;
};

}  // namespace framestow
