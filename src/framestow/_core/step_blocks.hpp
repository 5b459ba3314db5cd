// Steps in blocks, one a segment of frames, of which any may leave: what random retention works on.
//
// framestow/replay/timelines/block_timeline.py has the rules; this follows them. A block has a place for each frame
// of its segment; the step that starts at that frame lies there, if there is one. Blocks are numbered in the order in
// which their first frames came, for ever, and a step's index is `number * segment_frames + place`: none comes back.
//
// A block is sealed when no step to come looks at its frames: from then on it never changes, and may leave. The steps
// of its neighbours that look at frames of it stay where they are, and may not be drawn any more. Nor may a step be drawn
// while it is pending: while its return lacks steps that may still come. The step that follows another one in its stream
// has the next place, or the first one of the stream's next block, which one look-up finds.
//
// Ownership: has the records; works on the streams' memory of the caller, who keeps it in place. Threads: none of its
// own; the caller keeps all calls apart. Nothing is checked but where it is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "priorities.hpp"
#include "step_sequences.hpp"
#include "step_index.hpp"
#include "step_record.hpp"

namespace framestow {

struct StepBlock {
    std::int64_t number;
    std::int64_t segment;  // of its stream
    std::size_t stream;
    std::size_t order;  // place among the blocks, oldest first
    std::int64_t first_slot;
    std::uint32_t num_steps = 0;
    bool is_sealed = false;
    std::vector<std::uint8_t> records;
};

class StepBlocks {
public:
    StepBlocks(std::size_t capacity, const StreamMemory& streams, const StepRules& rules);

    std::size_t num_streams() const { return cursors_.num_streams(); }
    const StepRules& rules() const { return rules_; }
    std::int64_t next_number() const { return next_number_; }
    std::size_t num_steps() const { return num_steps_; }                             // drawable or not
    std::size_t size() const { return static_cast<std::size_t>(sampleable_.total()); }  // that may be drawn
    std::size_t num_sealed() const { return static_cast<std::size_t>(sealed_.total()); }
    std::size_t nbytes() const;

    bool is_sampleable(std::int64_t index) const;          // whether a step may be drawn
    std::int64_t sampleable_at(std::int64_t rank) const;   // by rank among those that may, 0 being the oldest
    std::vector<std::int64_t> sampleable_indices() const;  // of all that may, ascending
    std::vector<std::int64_t> lost_indices() const;  // of those that are here and may not, ever
    std::vector<std::int64_t> pending_indices() const { return pending_.indices(); }
    bool is_pending(std::int64_t index) const;

    // Slots: where a step lies, as a small number that others get when it has left. A block has a range of them.
    std::int64_t num_slots() const { return static_cast<std::int64_t>(order_at_.size()) * rules_.segment_frames; }
    std::int64_t slot_number_of(std::int64_t index) const;
    std::int64_t index_in(std::int64_t slot_number) const;  // -1 where none lies there that may be drawn

    // Slots that a step came into, so that it may be drawn, or left; `restore` notes none.
    ChangedSlots& changed_slots() { return changed_; }
    const ChangedSlots& changed_slots() const { return changed_; }

    // Up to `count` steps behind index `after` that may be drawn, ascending.
    std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const;

    // What step_sequences.hpp asks of it.
    const StepRecords& records() const { return records_; }
    const EpisodeStarts& episode_starts() const { return starts_; }
    const StreamCursors& cursors() const { return cursors_; }
    const std::uint8_t* record(const StepPlace& place) const;
    bool locate(std::int64_t index, StepPlace& place) const;
    bool move(StepPlace& place, std::int64_t position) const { return find(place.stream, position, place); }
    bool find(std::size_t stream, std::int64_t position, StepPlace& place) const;
    std::vector<StepRun> readable_runs() const;

    // Starts an episode on each of the streams; one that was open ends there.
    void begin(const std::int32_t* streams, std::size_t count);

    // Ends every open episode as cut off.
    void close_episodes();

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count) { return cursors_.may_append(streams, count); }

    // Whether `count` more would be too many.
    bool lacks_room(std::size_t count) const { return num_steps_ + count > capacity_; }

    // Lets the sealed block of that rank go, 0 being the oldest; says which frames are needed no more.
    Eviction evict_sealed(std::size_t sealed_rank);

    // Adds steps that may_append and for which there is room.
    void append(const Steps& steps);

    // Writes transitions. Returns how many: all, or those before the first that is not held.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes steps as if n_step were 1; pending ones too.
    std::size_t resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Those that look at frames `first` up to, not including, `before` of a stream may not be drawn any more, nor those
    // to come that look back to them. Returns how many could be drawn until now.
    std::size_t lose(std::size_t stream, std::int64_t first, std::int64_t before);

    // Steps that may not be drawn any more; those that are not here do not matter. Returns how many could be.
    std::size_t lose_indices(const std::vector<std::int64_t>& indices);

    // Steps before `position` whose returns may go on to one that started there and is gone. Returns how many could be
    // drawn.
    std::size_t lose_leading_to(std::size_t stream, std::int64_t position);

    const StepBlock* find(std::size_t stream, std::int64_t segment) const;  // null where it is not here
    std::vector<const StepBlock*> blocks() const;                           // oldest first
    std::size_t block_bytes() const { return segment_frames_ * records_.bytes(); }

    // Puts back a block with all its records, or with none where they are null; `number` is above all others'. The
    // caller has filled the streams' memory. `first_slot` is of a range that no other has; -1 takes the first free one.
    void restore(std::int64_t number, std::size_t stream, std::int64_t segment, const std::uint8_t* records,
                 std::int64_t first_slot = -1);
    bool has_free_slots(std::int64_t first_slot) const;  // whether they are a range, and no block has it
    void restore_next_number(std::int64_t number) { next_number_ = number; }

    // Finds the pending ones among what was put back, after those that are lost were named.
    void restore_pending();

    // Says where the episodes of a stream begin, or lets the steps tell; once everything else was restored.
    void restore_starts(std::size_t stream, std::vector<std::int64_t> ascending) {
        starts_.restore(stream, std::move(ascending), cursors_.newest_position(stream), cursors_.episode_start(stream));
    }
    void rebuild_starts();

private:
    static constexpr std::size_t kFree = std::numeric_limits<std::size_t>::max();  // order of no block

    struct Slot {
        std::size_t order;  // of the block
        std::size_t place;
    };

    struct TakenSlot {
        Slot slot;
        std::int64_t index;
        const std::uint8_t* record;  // null where no step lies
    };

    Slot slot_of(std::int64_t index) const;
    TakenSlot taken_at(std::size_t stream, std::int64_t position) const;
    StepReturn return_of(const Slot& slot) const;
    bool is_sampleable(const Slot& slot) const;
    bool is_readable(std::int64_t index) const { return is_sampleable(index) || is_pending(index); }
    bool has_steps(std::size_t stream, std::int64_t first, std::int64_t before) const;
    std::uint64_t* words_of(std::size_t order) { return words_.data() + order * words_a_block_; }
    const std::uint64_t* words_of(std::size_t order) const { return words_.data() + order * words_a_block_; }
    const std::uint8_t* record(const StepBlock& block, std::size_t place) const;
    StepBlock& add_block(std::int64_t number, std::size_t stream, std::int64_t segment, std::int64_t first_slot = -1);
    std::int64_t take_slots(std::int64_t first_slot, std::size_t order);
    void arrive(std::size_t stream);
    void seal(StepBlock& block);
    void append_pending(std::int64_t index, std::size_t stream, const StepStart& start, std::uint8_t flags);
    void settle(std::size_t stream);
    void make_sampleable(const Slot& slot);
    void make_unsampleable(const Slot& slot);
    void make_block_unsampleable(const StepBlock& block);
    bool lose_step(const TakenSlot& step, std::size_t stream, std::int64_t position);
    std::size_t stop_touching(std::size_t stream, std::int64_t first, std::int64_t before);
    void compact();
    bool is_sealed_by(std::int64_t segment, std::int64_t newest) const;

    std::size_t capacity_;
    std::size_t segment_frames_;
    std::size_t words_a_block_;
    StepRules rules_;
    StepRecords records_;
    StreamCursors cursors_;
    PendingSteps pending_;
    ChangedSlots changed_;
    std::vector<std::unique_ptr<StepBlock>> blocks_;  // oldest first; null where one has left
    // By order too, so that a draw and a look-up find what they need of a block in three cached arrays.
    std::vector<std::int64_t> numbers_;
    std::vector<const std::uint8_t*> records_of_;
    std::vector<std::uint64_t> words_;  // words_a_block_ each: a bit a place that may be drawn; none of one that left
    PrefixCounts sampleable_;                           // steps of each that may be drawn
    PrefixCounts sealed_;                             // 1 for each that is sealed
    std::size_t num_evicted_ = 0;
    std::vector<std::size_t> order_at_;  // of the block that has a range of slots, by range
    std::set<std::size_t> free_ranges_;  // of which the first is taken, so that it follows from what is held
    std::vector<std::unordered_map<std::int64_t, StepBlock*>> by_segment_;  // a stream
    std::vector<StepBlock*> newest_;                                        // a stream: that of its newest frame
    std::vector<std::int64_t> next_to_seal_;                                // a stream: segment
    std::int64_t next_number_ = 0;
    std::size_t num_steps_ = 0;
    EpisodeStarts starts_;
};

}  // namespace framestow
