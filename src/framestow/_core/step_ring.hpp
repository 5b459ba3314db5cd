// The newest `capacity` steps: who leaves when others come, and which may be drawn.
//
// framestow/replay/timelines/ring_timeline.py has the rules (index, slot, position, window); this follows them.
//
// A step is *hidden*, which is: here but not to be drawn, while it is *pending* (its return lacks steps that may still
// come) or when it is *lost*. The step that follows another one in its stream is looked for where it is when all
// streams step in turn, then one by one behind it. Over all steps of a ring, that passes as many others on the average
// as there are streams, however unevenly these step: the gaps of one stream add up to the ring. One look-up passes the
// whole ring at worst, for a stream that paused as long.
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: none of its own; the caller keeps all calls
// apart. Nothing is checked but where it is said: streams must be known, indices held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "priorities.hpp"
#include "step_sequences.hpp"
#include "step_index.hpp"
#include "step_record.hpp"

namespace framestow {

class StepRing {
public:
    // `slots`: `capacity` records.
    StepRing(std::uint8_t* slots, std::size_t capacity, const StreamMemory& streams, const StepRules& rules);

    std::int64_t oldest() const { return oldest_; }
    std::int64_t next_index() const { return next_index_; }
    std::size_t num_streams() const { return cursors_.num_streams(); }
    const StepRules& rules() const { return rules_; }
    std::vector<std::int64_t> lost_indices() const;  // ascending
    std::vector<std::int64_t> pending_indices() const { return pending_.indices(); }

    // How many steps may be drawn.
    std::size_t size() const { return num_sampleable_; }

    // Whether a step may be drawn.
    bool is_sampleable(std::int64_t index) const {
        return index >= oldest_ && index < next_index_ && !unsampleable_.contains(index);
    }

    // Whether a step is pending.
    bool is_pending(std::int64_t index) const;

    // The step of rank `rank` among those that may be drawn, 0 being the oldest.
    std::int64_t sampleable_at(std::int64_t rank) const { return unsampleable_.sampleable(oldest_, rank); }

    // Slots: where a step lies, as a small number that others get when it has left.
    std::int64_t num_slots() const { return static_cast<std::int64_t>(capacity_); }
    std::int64_t slot_number_of(std::int64_t index) const { return index % num_slots(); }

    // The step in a slot, -1 where none lies there that may be drawn.
    std::int64_t index_in(std::int64_t slot_number) const {
        const std::int64_t newest = next_index_ - 1;
        const std::int64_t index = newest - (newest - slot_number + num_slots()) % num_slots();
        return is_sampleable(index) ? index : -1;
    }

    // Slots that a step came into, so that it may be drawn, or left; `restore` notes none.
    ChangedSlots& changed_slots() { return changed_; }
    const ChangedSlots& changed_slots() const { return changed_; }

    // Up to `count` steps behind index `after` that may be drawn, ascending.
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const;

    // What step_sequences.hpp asks of it.
    const StepRecords& records() const { return records_; }
    const EpisodeStarts& episode_starts() const { return starts_; }
    const StreamCursors& cursors() const { return cursors_; }
    const std::uint8_t* record(const StepPlace& place) const { return slot(place.index); }
    bool locate(std::int64_t index, StepPlace& place) const;
    bool move(StepPlace& place, std::int64_t position) const;
    bool find(std::size_t stream, std::int64_t position, StepPlace& place) const;
    std::vector<StepRun> readable_runs();

    // Starts an episode on each of the streams; one that was open ends there.
    void begin(const std::int32_t* streams, std::size_t count);

    // Ends every open episode as cut off.
    void close_episodes();

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count) { return cursors_.may_append(streams, count); }

    // Lets go of the oldest steps until `count` more fit. Reports only what frees a segment, and never twice.
    void make_room(std::size_t count, std::vector<Eviction>& evictions);

    // Lets go of the oldest steps until a segment is free; of none where no segment would be.
    void evict_segment(std::vector<Eviction>& evictions);

    // Adds steps that may_append and for which there is room.
    void append(const Steps& steps);

    // Writes transitions. Returns how many: all, or those before the first that is not held.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes steps as if n_step were 1; pending ones too.
    std::size_t resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Those that look at frames `first` up to, not including, `before` of a stream may not be drawn any more, nor those
    // to come that look back to them. Returns how many could be drawn until now.
    std::size_t lose(std::size_t stream, std::int64_t first, std::int64_t before);

    // Steps of the ring that may not be drawn any more, ascending. Returns how many could be until now.
    std::size_t lose_indices(const std::vector<std::int64_t>& ascending);

    // Writes what stands for lost steps into the slots of ascending indices, which may not be drawn any more, nor may
    // those whose returns may go on to them. Returns how many could be until now.
    std::size_t forget(const std::vector<std::int64_t>& ascending);

    // Says which indices are in the ring, after their slots were filled from elsewhere; none is lost or pending.
    void restore_span(std::int64_t oldest, std::int64_t next_index);

    // Finds the pending ones among them, after those that are lost were named.
    void restore_pending();

    // Says where the episodes of a stream begin, or lets the steps tell; once everything else was restored.
    void restore_starts(std::size_t stream, std::vector<std::int64_t> ascending);
    void rebuild_starts();

private:
    std::uint8_t* slot(std::int64_t index) const;
    void make_sampleable(std::int64_t index);
    void make_unsampleable(std::int64_t index);
    void append_pending(const Steps& steps);
    void settle(std::size_t stream);
    void make_settled_sampleable();
    bool is_readable(std::int64_t index) const { return is_sampleable(index) || is_pending(index); }
    bool is_at(std::int64_t index, std::size_t stream, std::int64_t position) const;
    void find_first_steps();
    void add_runs_of(std::size_t stream, std::vector<StepRun>& runs) const;
    std::vector<StepRun> runs_between_lost_steps() const;
    std::int64_t needed_from(std::int64_t index, std::size_t& stream) const;
    void evict_before(std::int64_t until, std::vector<Eviction>& evictions);
    StepReturn return_of(std::int64_t index) const;
    const std::uint8_t* following(std::int64_t& index, std::size_t stream, std::int64_t position,
                                  std::size_t& stride) const;
    std::int64_t next_of(std::size_t stream, std::int64_t index) const;
    std::int64_t first_from(std::size_t stream, std::int64_t position) const;
    bool surely_continues_after(std::size_t stream, std::int64_t position, std::int64_t behind) const;
    void find_leading_into(std::int64_t first, std::int64_t behind, std::vector<std::int64_t>& found) const;

    std::uint8_t* slots_;
    std::size_t capacity_;
    StepRules rules_;
    StepRecords records_;
    StreamCursors cursors_;
    PendingSteps pending_;
    ChangedSlots changed_;
    UnsampleableIndices unsampleable_;
    std::vector<std::int64_t> settled_;  // were pending, and are about to be drawable
    std::size_t num_sampleable_ = 0;
    std::int64_t oldest_ = 0;
    std::int64_t next_index_ = 0;
    std::vector<std::int64_t> segments_reported_;  // a stream: how many were reported
    EpisodeStarts starts_;
    std::vector<std::int64_t> first_steps_;  // a stream: position of its first step in the ring, or of one before it
    bool has_evicted_lost_ = false;        // a step whose stream and position nothing tells
};

}  // namespace framestow
