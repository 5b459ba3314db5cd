// Steps in blocks, one per segment of frames, of which any may be evicted: the steps under random retention.
//
// framestow/replay/steps/block_steps.py states the rules. A block has one place per frame of its segment, and
// the step that starts at that frame lies there. Blocks are numbered by the arrival of their first frames. A step's
// index is `number * segment_frames + place` and is never reused.
//
// A block is sealed when no later step can use its frames. Then it never changes and may be evicted. Steps of
// neighbouring blocks that use its frames stay but become unsampleable. A pending step, whose return is incomplete, is
// unsampleable too. The successor of a step has the next place, or the first place of the environment's next block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "step_store.hpp"

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

class StepBlocks final : public StepStore {
public:
    // Returns one of so many sealed blocks at random, 0 being the oldest: the next one to evict.
    using Choose = std::function<std::size_t(std::size_t)>;

    StepBlocks(std::size_t capacity, std::size_t num_envs, const StepRules& rules, Choose choose);

    std::int64_t next_number() const { return next_number_; }
    std::size_t num_steps() const { return num_steps_; }  // sampleable or not
    std::size_t num_sealed() const { return static_cast<std::size_t>(sealed_.total()); }
    std::size_t block_bytes() const { return segment_frames_ * records_.bytes(); }
    std::vector<const StepBlock*> blocks() const;                           // oldest first
    const StepBlock* find(std::size_t env_id, std::int64_t segment) const;  // null if it is not stored

    std::size_t nbytes() const override;
    std::size_t charged_bytes() const override {
        return kListsInCommits * (num_steps_ - size()) * sizeof(std::int64_t);
    }
    std::size_t size() const override { return static_cast<std::size_t>(sampleable_.total()); }
    std::uint8_t* stored_record(std::int64_t index) const override;
    std::int64_t sampleable_at(std::int64_t rank) const override;
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const override;
    std::vector<std::int64_t> lost_indices() const override;
    std::int64_t num_slots() const override {  // each block has a range of them
        return static_cast<std::int64_t>(order_at_.size()) * rules_.segment_frames;
    }
    std::int64_t slot_number_of(std::int64_t index) const override;
    std::int64_t index_in(std::int64_t slot_number) const override;
    void evict_for(std::size_t count, std::vector<Eviction>& evictions) override;
    void evict_next(std::vector<Eviction>& evictions) override;
    std::size_t lose(std::size_t env_id, std::int64_t first, std::int64_t before) override;
    std::size_t lose_indices(const std::vector<std::int64_t>& indices) override;  // ignores those that are not stored
    void clear(std::vector<Eviction>& evictions) override;
    void restore_pending() override;
    std::vector<StepSpan> readable_spans() override;
    bool find(std::size_t env_id, std::int64_t position, StepPlace& place) const override;
    bool move(StepPlace& place, std::int64_t position) const override { return find(place.env_id, position, place); }

    // Makes the steps before `position` unsampleable whose returns may include the lost step that started there.
    // Returns how many were sampleable.
    std::size_t lose_leading_to(std::size_t env_id, std::int64_t position);

    // Restores a block with all its records, or without steps if they are null. `number` must be above all others, and
    // the caller has restored the cursors. `first_slot` begins a free range; -1 takes the first free one.
    void restore(std::int64_t number, std::size_t env_id, std::int64_t segment, const std::uint8_t* records,
                 std::int64_t first_slot = -1);
    bool has_free_slots(std::int64_t first_slot) const;  // whether they are a range that no block uses
    void restore_next_number(std::int64_t number) { next_number_ = number; }

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

    // The index of the step at a place of a block, and the position of the frame that it starts at.
    std::int64_t index_of(const StepBlock& block, std::size_t place) const {
        return block.number * rules_.segment_frames + static_cast<std::int64_t>(place);
    }
    std::int64_t position_of(const StepBlock& block, std::size_t place) const {
        return block.segment * rules_.segment_frames + static_cast<std::int64_t>(place);
    }
    Slot slot_of(std::int64_t index) const;
    TakenSlot taken_at(std::size_t env_id, std::int64_t position) const;
    const std::uint8_t* sampleable_record(std::int64_t index) const override;
    void visit_stored(const Visit& visit) const override;
    bool step_on(StepWalk& walk) const override;
    std::uint8_t* place_next(std::size_t env_id, std::int64_t position, std::int64_t& index) override;
    void arrive(std::size_t env_id) override;
    void keep_unsampleable(std::int64_t) override {}  // a new step's bit is not set
    void make_sampleable(std::int64_t index) override { make_sampleable(slot_of(index)); }
    void make_sampleable(std::vector<std::int64_t>& settled) override;
    using StepStore::is_sampleable;
    bool is_sampleable(const Slot& slot) const;
    bool has_steps(std::size_t env_id, std::int64_t first, std::int64_t before) const;
    std::uint64_t* words_of(std::size_t order) { return words_.data() + order * words_a_block_; }
    const std::uint64_t* words_of(std::size_t order) const { return words_.data() + order * words_a_block_; }
    Eviction evict(std::size_t order);
    const std::uint8_t* record(const StepBlock& block, std::size_t place) const;
    StepBlock& add_block(std::int64_t number, std::size_t env_id, std::int64_t segment, std::int64_t first_slot = -1);
    std::int64_t take_slots(std::int64_t first_slot, std::size_t order);
    void seal(StepBlock& block);
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
    Choose choose_;
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
};

}  // namespace framestow
