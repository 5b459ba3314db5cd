// Steps in blocks, one per segment of frames, of which any may be evicted: the steps under random retention.
//
// framestow/replay/steps/block_steps.py states the rules. A block has one place per frame of its segment, and
// the step that starts at that frame lies there. Blocks are numbered by the arrival of their first frames. A step's
// index is `number * segment_frames + place` and is never reused.
//
// A block is sealed when no later step can use its frames. Then it never changes and may be evicted. Steps of
// neighbouring blocks that use its frames stay but become unsampleable. A pending step, whose return is incomplete, is
// unsampleable too. The successor of a step has the next place, or the first place of the environment's next block.
//
// Ownership: owns the records; references the caller's environment arrays, which must stay in place. Threads: the
// caller serialises all calls. Nothing is checked unless stated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "priorities.hpp"
#include "step_index.hpp"
#include "step_record.hpp"
#include "step_sequences.hpp"

namespace framestow {

struct StepBlock {
    std::int64_t number;   // over all environments, in the order of the first frames; never used twice
    std::int64_t segment;  // number within its environment
    std::size_t env_id;
    std::size_t order;                  // rank among the blocks, oldest first
    std::int64_t first_slot;            // of the block's range of slots
    std::uint32_t num_steps = 0;        // sampleable or not
    bool is_sealed = false;             // no later step needs its frames: it never changes, and may be evicted
    std::vector<std::uint8_t> records;  // one for each frame of the segment; zeros where there is no step
};

class StepBlocks {
public:
    StepBlocks(std::size_t capacity, const EnvMemory& envs, const StepRules& rules);

    std::size_t num_envs() const { return cursors_.num_envs(); }
    const StepRules& rules() const { return rules_; }
    std::int64_t next_number() const { return next_number_; }
    std::size_t num_steps() const { return num_steps_; }                                // sampleable or not
    std::size_t size() const { return static_cast<std::size_t>(sampleable_.total()); }  // sampleable steps
    std::size_t num_sealed() const { return static_cast<std::size_t>(sealed_.total()); }
    std::size_t nbytes() const;

    bool is_sampleable(std::int64_t index) const;
    std::int64_t sampleable_at(std::int64_t rank) const;   // rank 0 is the oldest
    std::vector<std::int64_t> sampleable_indices() const;  // ascending
    std::vector<std::int64_t> lost_indices() const;        // stored, but never sampleable again
    std::vector<std::int64_t> pending_indices() const { return pending_.indices(); }
    bool is_pending(std::int64_t index) const;

    // Slots: small numbers of the steps' places, reused after eviction. Each block has a range of them.
    std::int64_t num_slots() const { return static_cast<std::int64_t>(order_at_.size()) * rules_.segment_frames; }
    std::int64_t slot_number_of(std::int64_t index) const;
    std::int64_t index_in(std::int64_t slot_number) const;  // -1 if the slot has no sampleable step

    // Slots that a sampleable step entered or left. `restore` records none.
    ChangedSlots& changed_slots() { return changed_; }
    const ChangedSlots& changed_slots() const { return changed_; }

    // Returns up to `count` sampleable indices above `after`, ascending.
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const;

    // The members that step_sequences.hpp requires.
    const StepRecords& records() const { return records_; }
    const EpisodeStarts& episode_starts() const { return starts_; }
    const EnvCursors& cursors() const { return cursors_; }
    const std::uint8_t* record(const StepPlace& place) const;
    bool locate(std::int64_t index, StepPlace& place) const;
    bool move(StepPlace& place, std::int64_t position) const { return find(place.env_id, position, place); }
    bool find(std::size_t env_id, std::int64_t position, StepPlace& place) const;
    std::vector<StepRun> readable_runs() const;

    // Starts an episode on each of the environments; an open episode ends there.
    void begin(const std::int32_t* env_ids, std::size_t count);

    // Ends every open episode as truncated.
    void close_episodes();

    // Returns whether all environments exist, are distinct, and have an open episode.
    bool may_append(const std::int32_t* env_ids, std::size_t count) { return cursors_.may_append(env_ids, count); }

    // Returns whether `count` more steps exceed the capacity.
    bool staged_exceeds_capacity(std::size_t count) const { return num_steps_ + count > capacity_; }

    // Evicts the sealed block of that rank, 0 being the oldest; returns the frames that are no longer needed.
    Eviction evict_sealed(std::size_t sealed_rank);

    // Appends steps that passed may_append and fit the capacity.
    void append(const Steps& steps);

    // Writes transitions, with two windows each, until the first one that is not sampleable; returns how many.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes steps, with one window each, as if n_step were 1; pending ones too. Returns how many, as `resolve`.
    std::size_t resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Marks frames from `first` up to, excluding, `before` of an environment as lost: present and future steps that use
    // them become unsampleable. Returns how many steps were sampleable.
    std::size_t lose(std::size_t env_id, std::int64_t first, std::int64_t before);

    // Makes steps unsampleable; ignores those that are not stored. Returns how many were sampleable.
    std::size_t lose_indices(const std::vector<std::int64_t>& indices);

    // Makes the steps before `position` unsampleable whose returns may include the lost step that started there.
    // Returns how many were sampleable.
    std::size_t lose_leading_to(std::size_t env_id, std::int64_t position);

    const StepBlock* find(std::size_t env_id, std::int64_t segment) const;  // null if it is not stored
    std::vector<const StepBlock*> blocks() const;                           // oldest first
    std::size_t block_bytes() const { return segment_frames_ * records_.bytes(); }

    // Restores a block with all its records, or without steps if they are null. `number` must be above all others, and
    // the caller has restored the environment arrays. `first_slot` begins a free range; -1 takes the first free one.
    void restore(std::int64_t number, std::size_t env_id, std::int64_t segment, const std::uint8_t* records,
                 std::int64_t first_slot = -1);
    bool has_free_slots(std::int64_t first_slot) const;  // whether they are a range that no block uses
    void restore_next_number(std::int64_t number) { next_number_ = number; }

    // Finds the pending steps after everything was restored and lost steps were named.
    void restore_pending();

    // Sets the starts of an environment's episodes, or derives them from the steps, after everything else was restored.
    void restore_starts(std::size_t env_id, std::vector<std::int64_t> ascending) {
        starts_.restore(env_id, std::move(ascending), cursors_.newest_position(env_id), cursors_.episode_start(env_id));
    }
    void rebuild_starts();

private:
    static constexpr std::size_t kFree = std::numeric_limits<std::size_t>::max();  // the order of no block

    struct Slot {
        std::size_t order;  // of the block
        std::size_t place;
    };

    struct TakenSlot {
        Slot slot;
        std::int64_t index;
        const std::uint8_t* record;  // null if there is no step
    };

    Slot slot_of(std::int64_t index) const;
    TakenSlot taken_at(std::size_t env_id, std::int64_t position) const;
    StepReturn return_of(const Slot& slot) const;
    bool is_sampleable(const Slot& slot) const;
    bool is_readable(std::int64_t index) const { return is_sampleable(index) || is_pending(index); }
    bool has_steps(std::size_t env_id, std::int64_t first, std::int64_t before) const;
    std::uint64_t* words_of(std::size_t order) { return words_.data() + order * words_a_block_; }
    const std::uint64_t* words_of(std::size_t order) const { return words_.data() + order * words_a_block_; }
    const std::uint8_t* record(const StepBlock& block, std::size_t place) const;
    StepBlock& add_block(std::int64_t number, std::size_t env_id, std::int64_t segment, std::int64_t first_slot = -1);
    std::int64_t take_slots(std::int64_t first_slot, std::size_t order);
    void arrive(std::size_t env_id);
    void seal(StepBlock& block);
    void append_pending(std::int64_t index, std::size_t env_id, const StepStart& start, std::uint8_t flags);
    void settle(std::size_t env_id);
    void make_sampleable(const Slot& slot);
    void make_unsampleable(const Slot& slot);
    void make_block_unsampleable(const StepBlock& block);
    bool lose_step(const TakenSlot& step, std::size_t env_id, std::int64_t position);
    std::size_t stop_touching(std::size_t env_id, std::int64_t first, std::int64_t before);
    void compact();
    bool is_sealed_by(std::int64_t segment, std::int64_t newest) const;

    std::size_t capacity_;
    std::size_t segment_frames_;
    std::size_t words_a_block_;  // of 64 bits, one bit for each place
    StepRules rules_;
    StepRecords records_;
    EnvCursors cursors_;                              // where each environment appends
    PendingSteps pending_;                            // steps that wait for their n-step return
    ChangedSlots changed_;                            // for the sampler
    std::vector<std::unique_ptr<StepBlock>> blocks_;  // oldest first; null after eviction
    // Copies of block fields by order, so that draws and look-ups read three cached arrays.
    std::vector<std::int64_t> numbers_;            // of the blocks
    std::vector<const std::uint8_t*> records_of_;  // null after eviction
    std::vector<std::uint64_t> words_;   // words_a_block_ each: one bit per place, set if its step is sampleable
    PrefixCounts sampleable_;            // per block: its sampleable steps
    PrefixCounts sealed_;                // per block: 1 if it is sealed
    std::size_t num_evicted_ = 0;        // entries of blocks_ that are null
    std::vector<std::size_t> order_at_;  // per range of slots: order of its block
    std::set<std::size_t> free_ranges_;  // the first is used next, so slots depend on the stored blocks alone
    std::vector<std::unordered_map<std::int64_t, StepBlock*>> by_segment_;  // per environment
    std::vector<StepBlock*> newest_;          // per environment: block of its newest frame
    std::vector<std::int64_t> next_to_seal_;  // per environment: number of a segment
    std::int64_t next_number_ = 0;            // of the next block
    std::size_t num_steps_ = 0;               // of all blocks, lost and pending ones too; the capacity limits it
    EpisodeStarts starts_;                    // of all episodes with a stored step
};

}  // namespace framestow
