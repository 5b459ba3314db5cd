// The newest `capacity` steps: appending, eviction of the oldest, and which of them are sampleable.
//
// framestow/replay/steps/ring_steps.py defines index, slot, position and window.
//
// A stored step is unsampleable while it is pending (its return is incomplete) or if it is lost. The successor of a
// step is searched first at the distance that equal stepping of all environments gives, then one by one. On average a
// search passes as many steps as there are environments, however unevenly they step, since the gaps of one environment
// add up to the ring. An environment that paused for a whole ring needs one search through the whole ring.
//
// Ownership: references the caller's memory, which must stay in place. Threads: the caller serialises all calls.
// Nothing is checked unless stated: environments must be in range, indices stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "priorities.hpp"
#include "step_index.hpp"
#include "step_record.hpp"
#include "step_sequences.hpp"

namespace framestow {

class StepRing {
public:
    // `slots`: `capacity` records.
    StepRing(std::uint8_t* slots, std::size_t capacity, const EnvMemory& envs, const StepRules& rules);

    std::int64_t oldest() const { return oldest_; }
    std::int64_t next_index() const { return next_index_; }
    std::size_t num_envs() const { return cursors_.num_envs(); }
    const StepRules& rules() const { return rules_; }
    std::vector<std::int64_t> lost_indices() const;  // ascending
    std::vector<std::int64_t> pending_indices() const { return pending_.indices(); }

    // Returns the number of sampleable steps.
    std::size_t size() const { return num_sampleable_; }

    bool is_sampleable(std::int64_t index) const {
        return index >= oldest_ && index < next_index_ && !unsampleable_.contains(index);
    }

    bool is_pending(std::int64_t index) const;

    // Returns the sampleable step of a rank, 0 being the oldest.
    std::int64_t sampleable_at(std::int64_t rank) const { return unsampleable_.sampleable(oldest_, rank); }

    // Slots: small numbers of the steps' places, reused after eviction.
    std::int64_t num_slots() const { return static_cast<std::int64_t>(capacity_); }
    std::int64_t slot_number_of(std::int64_t index) const { return index % num_slots(); }

    // Returns the sampleable step in a slot, or -1.
    std::int64_t index_in(std::int64_t slot_number) const {
        const std::int64_t newest = next_index_ - 1;
        const std::int64_t index = newest - (newest - slot_number + num_slots()) % num_slots();
        return is_sampleable(index) ? index : -1;
    }

    // Slots that a sampleable step entered or left. `restore` records none.
    ChangedSlots& changed_slots() { return changed_; }
    const ChangedSlots& changed_slots() const { return changed_; }

    // Returns up to `count` sampleable indices above `after`, ascending.
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const;

    // The members that step_sequences.hpp requires.
    const StepRecords& records() const { return records_; }
    const EpisodeStarts& episode_starts() const { return starts_; }
    const EnvCursors& cursors() const { return cursors_; }
    const std::uint8_t* record(const StepPlace& place) const { return slot(place.index); }
    bool locate(std::int64_t index, StepPlace& place) const;
    bool move(StepPlace& place, std::int64_t position) const;
    bool find(std::size_t env_id, std::int64_t position, StepPlace& place) const;
    std::vector<StepRun> readable_runs();

    // Starts an episode on each of the environments; an open episode ends there.
    void begin(const std::int32_t* env_ids, std::size_t count);

    // Ends every open episode as truncated.
    void close_episodes();

    // Returns whether all environments exist, are distinct, and have an open episode.
    bool may_append(const std::int32_t* env_ids, std::size_t count) { return cursors_.may_append(env_ids, count); }

    // Evicts the oldest steps until `count` more fit. Reports only evictions that free a segment, each once.
    void evict_for_staged(std::size_t count, std::vector<Eviction>& evictions);

    // Evicts the oldest steps until a segment is free; evicts none if no segment would be.
    void evict_segment(std::vector<Eviction>& evictions);

    // Appends steps that passed may_append and fit the capacity.
    void append(const Steps& steps);

    // Writes transitions, with two windows each, until the first one that is not sampleable; returns how many.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes steps, with one window each, as if n_step were 1; pending ones too. Returns how many, as `resolve`.
    std::size_t resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Marks frames from `first` up to, excluding, `before` of an environment as lost: present and future steps that use
    // them become unsampleable. Returns how many steps were sampleable.
    std::size_t lose(std::size_t env_id, std::int64_t first, std::int64_t before);

    // Makes ascending stored steps unsampleable. Returns how many were sampleable.
    std::size_t lose_indices(const std::vector<std::int64_t>& ascending);

    // Overwrites the slots of ascending indices with placeholders of lost steps. These steps, and those whose returns
    // may include them, become unsampleable. Returns how many were sampleable.
    std::size_t forget(const std::vector<std::int64_t>& ascending);

    // Sets which indices are in the ring, after their slots were restored; none is lost or pending.
    void restore_span(std::int64_t oldest, std::int64_t next_index);

    // Finds the pending steps after the lost ones were named.
    void restore_pending();

    // Sets the starts of an environment's episodes, or derives them from the steps, after everything else was restored.
    void restore_starts(std::size_t env_id, std::vector<std::int64_t> ascending);
    void rebuild_starts();

private:
    std::uint8_t* slot(std::int64_t index) const;
    void make_sampleable(std::int64_t index);
    void make_unsampleable(std::int64_t index);
    void append_pending(const Steps& steps);
    void settle(std::size_t env_id);
    void make_settled_sampleable();
    bool is_readable(std::int64_t index) const { return is_sampleable(index) || is_pending(index); }
    bool is_at(std::int64_t index, std::size_t env_id, std::int64_t position) const;
    void find_first_steps();
    void add_runs_of(std::size_t env_id, std::vector<StepRun>& runs) const;
    std::vector<StepRun> runs_between_lost_steps() const;
    std::int64_t needed_from(std::int64_t index, std::size_t& env_id) const;
    void evict_before(std::int64_t until, std::vector<Eviction>& evictions);
    StepReturn return_of(std::int64_t index) const;
    const std::uint8_t* following(std::int64_t& index, std::size_t env_id, std::int64_t position,
                                  std::size_t& stride) const;
    std::int64_t next_of(std::size_t env_id, std::int64_t index) const;
    std::int64_t first_from(std::size_t env_id, std::int64_t position) const;
    bool surely_continues_after(std::size_t env_id, std::int64_t position, std::int64_t behind) const;
    void find_leading_into(std::int64_t first, std::int64_t behind, std::vector<std::int64_t>& found) const;

    std::uint8_t* slots_;  // of the caller; index i is in slot i % capacity_
    std::size_t capacity_;
    StepRules rules_;
    StepRecords records_;
    EnvCursors cursors_;                 // where each environment appends
    PendingSteps pending_;               // steps that wait for their n-step return
    ChangedSlots changed_;               // for the sampler
    UnsampleableIndices unsampleable_;   // lost and pending ones
    std::vector<std::int64_t> settled_;  // were pending, about to become sampleable
    std::size_t num_sampleable_ = 0;
    std::int64_t oldest_ = 0;                      // index of the oldest step in the ring
    std::int64_t next_index_ = 0;                  // index of the next step
    std::vector<std::int64_t> segments_reported_;  // per environment: number of evicted segments that were reported
    EpisodeStarts starts_;                         // of all episodes with a step in the ring
    std::vector<std::int64_t> first_steps_;  // per environment: at most the position of its first step in the ring
    bool has_evicted_lost_ = false;          // a placeholder, whose environment and position are unknown
};

}  // namespace framestow
