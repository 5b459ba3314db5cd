// The newest `capacity` steps: the oldest is evicted first.
//
// Steps are numbered in the order of appending: this number is the index, and index % capacity the slot. A full ring
// overwrites the oldest step of all environments. A step is unsampleable while it is pending or if it is lost. The
// successor of a step is searched first at the distance that equal stepping of all environments gives, then one by one.
// On average a search passes as many steps as there are environments, however unevenly they step, since the gaps of one
// environment add up to the ring. An environment that paused for a whole ring needs one search through the whole ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "slot_pages.hpp"
#include "step_store.hpp"

namespace framestow {

class StepRing final : public StepStore {
public:
    // Throws std::bad_alloc if the system does not give the slots. `releases_pages`: those of SlotPages.
    StepRing(std::size_t capacity, std::size_t num_envs, const StepRules& rules, bool releases_pages = false);

    std::size_t capacity() const { return capacity_; }
    std::int64_t oldest() const { return oldest_; }
    std::int64_t next_index() const { return next_index_; }
    std::uint8_t* slot(std::int64_t index) const;  // of a stored index, or of one that is being restored

    std::size_t nbytes() const override {
        return pages_.nbytes(oldest_, next_index_) + starts_.nbytes() + unsampleable_.nbytes();
    }
    std::size_t charged_bytes() const override {
        return (2 + kListsInCommits) * unsampleable_.size() * sizeof(std::int64_t);
    }
    std::size_t size() const override { return num_sampleable_; }
    std::uint8_t* stored_record(std::int64_t index) const override {
        return index >= oldest_ && index < next_index_ ? slot(index) : nullptr;
    }
    std::int64_t sampleable_at(std::int64_t rank) const override { return unsampleable_.sampleable(oldest_, rank); }
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const override;
    std::vector<std::int64_t> lost_indices() const override;
    std::int64_t num_slots() const override { return static_cast<std::int64_t>(capacity_); }
    std::int64_t slot_number_of(std::int64_t index) const override { return index % num_slots(); }
    std::int64_t index_in(std::int64_t slot_number) const override {
        const std::int64_t newest = next_index_ - 1;
        const std::int64_t index = newest - (newest - slot_number + num_slots()) % num_slots();
        return is_sampleable(index) ? index : kNoStep;
    }
    void evict_for(std::size_t count, std::vector<Eviction>& evictions) override;
    void evict_next(std::vector<Eviction>& evictions) override;
    std::size_t lose(std::size_t env_id, std::int64_t first, std::int64_t before) override;
    std::size_t lose_indices(const std::vector<std::int64_t>& ascending) override;
    void clear(std::vector<Eviction>& evictions) override;
    void restore_pending() override;
    void restore_starts(std::vector<std::vector<std::int64_t>> starts) override;
    std::vector<StepSpan> readable_spans() override;
    bool find(std::size_t env_id, std::int64_t position, StepPlace& place) const override;
    bool move(StepPlace& place, std::int64_t position) const override;

    // Overwrites the slots of ascending indices with placeholders of lost steps. These steps, and those whose returns
    // may include them, become unsampleable. Returns how many were sampleable.
    std::size_t lose_records(const std::vector<std::int64_t>& ascending);

    // Forgets all lost steps again, since returns reach more of them after n_step was raised. Returns how many steps
    // were sampleable.
    std::size_t forget_lost();

    // Sets which indices are in the ring, after their slots were restored; none is lost or pending.
    void restore_span(std::int64_t oldest, std::int64_t next_index);

private:
    const std::uint8_t* sampleable_record(std::int64_t index) const override {
        return index >= oldest_ && index < next_index_ && !unsampleable_.contains(index) ? slot(index) : nullptr;
    }
    void visit_stored(const Visit& visit) const override;
    bool step_on(StepWalk& walk) const override;
    std::uint8_t* place_next(std::size_t, std::int64_t, std::int64_t& index) override {
        index = next_index_++;
        return slot(index);
    }
    void arrive(std::size_t) override {}
    void keep_unsampleable(std::int64_t index) override { unsampleable_.push(index); }
    void make_sampleable(std::int64_t index) override;
    void make_sampleable(std::vector<std::int64_t>& settled) override;
    void make_unsampleable(std::int64_t index);
    bool is_at(std::int64_t index, std::size_t env_id, std::int64_t position) const;
    void find_first_steps();
    void add_spans_of(std::size_t env_id, std::vector<StepSpan>& spans) const;
    std::vector<StepSpan> spans_between_lost_steps() const;
    std::int64_t needed_from(std::int64_t index, std::size_t& env_id) const;
    void evict_before(std::int64_t until, std::vector<Eviction>& evictions);
    std::int64_t next_of(std::size_t env_id, std::int64_t index) const;
    std::int64_t first_from(std::size_t env_id, std::int64_t position) const;
    bool surely_continues_after(std::size_t env_id, std::int64_t position, std::int64_t behind) const;
    void find_leading_into(std::int64_t first, std::int64_t behind, std::vector<std::int64_t>& found) const;

    std::size_t capacity_;
    SlotPages pages_;                   // index i is in slot i % capacity_
    std::uint8_t* slots_;               // of these pages
    UnsampleableIndices unsampleable_;  // lost and pending ones
    std::size_t num_sampleable_ = 0;
    std::int64_t oldest_ = 0;                      // index of the oldest step in the ring
    std::int64_t next_index_ = 0;                  // index of the next step
    std::vector<std::int64_t> segments_reported_;  // per environment: number of evicted segments that were reported
    std::vector<std::int64_t> first_steps_;  // per environment: at most the position of its first step in the ring
    bool has_evicted_lost_ = false;          // a placeholder, whose environment and position are unknown
};

}  // namespace framestow
