// The newest `capacity` steps: who leaves when others come, and which may be drawn.
//
// framestow/replay/timelines/ring_timeline.py has the rules (index, slot, position, window); this follows them.
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: none of its own; the caller keeps all calls
// apart. Nothing is checked but where it is said: streams must be known, indices held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lost_indices.hpp"
#include "step_record.hpp"
#include "stream_courses.hpp"

namespace framestow {

class StepRing {
public:
    // `slots`: `capacity` records.
    StepRing(std::uint8_t* slots, std::size_t capacity, const StreamMemory& streams, const StepRules& rules);

    std::int64_t oldest() const { return oldest_; }
    std::int64_t next_index() const { return next_index_; }
    std::size_t num_streams() const { return courses_.num_streams(); }
    const StepRules& rules() const { return rules_; }
    const LostIndices& lost() const { return lost_; }

    // How many steps may be drawn.
    std::size_t size() const { return static_cast<std::size_t>(next_index_ - oldest_) - lost_.size(); }

    // Whether a step may be drawn.
    bool is_held(std::int64_t index) const {
        return index >= oldest_ && index < next_index_ && (lost_.size() == 0 || !lost_.contains(index));
    }

    // The step of rank `rank` among those that may be drawn, 0 being the oldest.
    std::int64_t held_at(std::int64_t rank) const {
        return lost_.size() == 0 ? oldest_ + rank : lost_.other(oldest_, rank);
    }

    // Slots: where a step lies, as a small number that others get when it has left.
    std::int64_t num_slots() const { return static_cast<std::int64_t>(capacity_); }
    std::int64_t slot_of_held(std::int64_t index) const { return index % num_slots(); }

    // The step in a slot, -1 where none lies there that may be drawn.
    std::int64_t index_in(std::int64_t slot_number) const {
        const std::int64_t newest = next_index_ - 1;
        const std::int64_t index = newest - (newest - slot_number + num_slots()) % num_slots();
        return is_held(index) ? index : -1;
    }

    // Starts an episode on each of the streams; one that was open ends there.
    void begin(const std::int32_t* streams, std::size_t count);

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count) { return courses_.may_append(streams, count); }

    // Lets go of the oldest steps until `count` more fit. Reports only what frees a segment, and never twice.
    void make_room(std::size_t count, std::vector<Eviction>& evictions);

    // Lets go of the oldest steps until a segment is free; of none where no segment would be.
    void let_go(std::vector<Eviction>& evictions);

    // Adds steps that may_append and for which there is room.
    void append(const Steps& steps);

    // Returns how many were written: all, or those before the first that is not held.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Those whose windows touch frames `first` up to, not including, `before` of a stream may not be drawn any more,
    // nor those to come that look back to them. Returns how many could be drawn until now.
    std::size_t lose(std::size_t stream, std::int64_t first, std::int64_t before);

    // Held steps that may not be drawn any more, ascending. Returns how many could be until now.
    std::size_t lose_indices(const std::vector<std::int64_t>& ascending) { return lost_.add(ascending); }

    // Writes what stands for lost steps into the slots of the indices.
    void forget(const std::vector<std::int64_t>& indices);

    // Says which indices are held, after their slots were filled from elsewhere; none is lost.
    void restore_span(std::int64_t oldest, std::int64_t next_index);

private:
    std::uint8_t* slot(std::int64_t index) const;
    std::int64_t needed_from(std::int64_t index, std::size_t& stream) const;
    void leave(std::int64_t until, std::vector<Eviction>& evictions);
    std::int64_t next_of(std::size_t stream, std::int64_t index) const;
    std::int64_t first_from(std::size_t stream, std::int64_t position) const;

    std::uint8_t* slots_;
    std::size_t capacity_;
    StepRules rules_;
    StepRecords records_;
    StreamCourses courses_;
    LostIndices lost_;
    std::int64_t oldest_ = 0;
    std::int64_t next_index_ = 0;
    std::vector<std::int64_t> segments_let_go_;  // a stream: how many were reported
};

}  // namespace framestow
