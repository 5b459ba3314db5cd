// What StepBlocks tells without changing anything: who may be drawn, by rank, slot and index, and what steps carry.
#include <algorithm>

#include "bit_words.hpp"
#include "step_blocks.hpp"

namespace framestow {

std::size_t StepBlocks::nbytes() const {
    const std::size_t index_entry = sizeof(std::int64_t) + 4 * sizeof(void*);  // of by_segment_
    const std::size_t num_blocks = blocks_.size() - num_left_;
    return num_blocks * (block_bytes() + sizeof(StepBlock) + index_entry) +
           (blocks_.capacity() + records_of_.capacity()) * sizeof(void*) + numbers_.capacity() * sizeof(std::int64_t) +
           words_.capacity() * sizeof(std::uint64_t) + drawable_.nbytes() + sealed_.nbytes() +
           order_at_.capacity() * sizeof(std::size_t) + free_ranges_.size() * 4 * sizeof(void*) + starts_.nbytes();
}

bool StepBlocks::is_held(std::int64_t index) const { return is_drawable(slot_of(index)); }

std::int64_t StepBlocks::held_at(std::int64_t rank) const {
    const PrefixCounts::Found found = drawable_.find(static_cast<std::uint64_t>(rank));
    return numbers_[found.place] * rules_.segment_frames +
           static_cast<std::int64_t>(place_of(words_of(found.place), found.rank));
}

std::vector<std::int64_t> StepBlocks::held_indices() const {
    std::vector<std::int64_t> indices;
    indices.reserve(size());
    for (const StepBlock* block : blocks()) {
        const std::int64_t first = block->number * rules_.segment_frames;
        each_bit(words_of(block->order), words_a_block_,
                 [&](std::size_t place) { indices.push_back(first + static_cast<std::int64_t>(place)); });
    }
    return indices;
}

std::vector<std::int64_t> StepBlocks::lost_indices() const {
    std::vector<std::int64_t> indices;
    for (const StepBlock* block : blocks()) {
        for (std::size_t place = 0; place < segment_frames_; ++place) {
            const std::int64_t index = block->number * rules_.segment_frames + static_cast<std::int64_t>(place);
            if (StepRecords::is_taken(record(*block, place)) && !has_bit(words_of(block->order), place) &&
                !is_pending(index)) {
                indices.push_back(index);
            }
        }
    }
    return indices;
}

std::int64_t StepBlocks::slot_of_held(std::int64_t index) const {
    const Slot slot = slot_of(index);
    return blocks_[slot.order]->first_slot + static_cast<std::int64_t>(slot.place);
}

std::int64_t StepBlocks::index_in(std::int64_t slot_number) const {
    const std::size_t order = order_at_[static_cast<std::size_t>(slot_number / rules_.segment_frames)];
    const std::int64_t place = slot_number % rules_.segment_frames;
    return order != kFree && has_bit(words_of(order), static_cast<std::size_t>(place))
               ? numbers_[order] * rules_.segment_frames + place
               : -1;
}

bool StepBlocks::is_pending(std::int64_t index) const {
    if (pending_.is_unused()) {
        return false;
    }
    const Slot slot = slot_of(index);
    if (slot.order >= numbers_.size()) {
        return false;
    }
    const StepBlock& block = *blocks_[slot.order];
    const std::int64_t position = block.segment * rules_.segment_frames + static_cast<std::int64_t>(slot.place);
    return pending_.contains(block.stream, position, index);
}

std::size_t StepBlocks::resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    const bool has_one_step = pending_.is_unused();
    for (std::size_t row = 0; row < count; ++row) {
        const Slot slot = slot_of(indices[row]);
        if (!is_drawable(slot)) {
            return row;
        }
        const std::uint8_t* record = records_of_[slot.order] + slot.place * records_.bytes();
        if (has_one_step) {
            records_.resolve(record, row, out);
        } else {
            records_.resolve_return(record, return_of(slot), row, count, out);
        }
    }
    return count;
}

std::size_t StepBlocks::resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    for (std::size_t row = 0; row < count; ++row) {
        const Slot slot = slot_of(indices[row]);
        if (!is_drawable(slot) && !is_pending(indices[row])) {
            return row;
        }
        records_.resolve(records_of_[slot.order] + slot.place * records_.bytes(), row, out);
    }
    return count;
}

const StepBlock* StepBlocks::find(std::size_t stream, std::int64_t segment) const {
    const auto found = by_segment_[stream].find(segment);
    return found == by_segment_[stream].end() ? nullptr : found->second;
}

std::vector<const StepBlock*> StepBlocks::blocks() const {
    std::vector<const StepBlock*> here;
    here.reserve(blocks_.size() - num_left_);
    for (const std::unique_ptr<StepBlock>& block : blocks_) {
        if (block) {
            here.push_back(block.get());
        }
    }
    return here;
}

bool StepBlocks::has_free_slots(std::int64_t first_slot) const {
    const auto range = static_cast<std::size_t>(first_slot / rules_.segment_frames);
    return first_slot >= 0 && first_slot % rules_.segment_frames == 0 &&
           (range >= order_at_.size() || order_at_[range] == kFree);
}

// Where a step lies if it is here: in the last block whose number is not above its block's.
StepBlocks::Slot StepBlocks::slot_of(std::int64_t index) const {
    const std::int64_t number = index / rules_.segment_frames;
    std::size_t order = 0;
    for (std::size_t left = numbers_.size(); left > 1;) {  // without branches: which way is anybody's guess
        const std::size_t half = left / 2;
        order += numbers_[order + half] <= number ? half : 0;
        left -= half;
    }
    const bool is_here = index >= 0 && !numbers_.empty() && numbers_[order] == number;
    return is_here ? Slot{order, static_cast<std::size_t>(index % rules_.segment_frames)} : Slot{numbers_.size(), 0};
}

bool StepBlocks::is_drawable(const Slot& slot) const {
    return slot.order < numbers_.size() && has_bit(words_of(slot.order), slot.place);
}

StepBlocks::TakenSlot StepBlocks::taken_at(std::size_t stream, std::int64_t position) const {
    const StepBlock* block = find(stream, position / rules_.segment_frames);
    const auto place = static_cast<std::size_t>(position % rules_.segment_frames);
    if (block == nullptr || !StepRecords::is_taken(record(*block, place))) {
        return TakenSlot{Slot{numbers_.size(), 0}, -1, nullptr};
    }
    const std::int64_t index = block->number * rules_.segment_frames + static_cast<std::int64_t>(place);
    return TakenSlot{Slot{block->order, place}, index, record(*block, place)};
}

// The return of a step that has all its steps: they have the places behind it, at its segment's end those of the next.
StepReturn StepBlocks::return_of(const Slot& slot) const {
    const StepBlock* block = blocks_[slot.order].get();
    std::size_t place = slot.place;
    StepReturn sum = records_.begin_return(record(*block, place));
    while (sum.num_steps < static_cast<std::size_t>(rules_.n_step) && !StepRecords::ends_episode(sum.last)) {
        if (++place == segment_frames_) {
            block = find(block->stream, block->segment + 1);
            place = 0;
        }
        if (block == nullptr || !StepRecords::is_taken(record(*block, place))) {
            break;  // the episode was cut off: of one whose steps are gone, this one may not be drawn
        }
        records_.go_on(sum, record(*block, place));
    }
    return sum;
}

const std::uint8_t* StepBlocks::record(const StepBlock& block, std::size_t place) const {
    return block.records.data() + place * records_.bytes();
}

}  // namespace framestow
