#include "step_blocks.hpp"

#include <algorithm>
#include <utility>

#include "bytes.hpp"

namespace framestow {
namespace {

constexpr std::size_t kFewEvicted = 64;  // blocks

}  // namespace

StepBlocks::StepBlocks(std::size_t capacity, std::size_t num_envs, const StepRules& rules, Choose choose)
    : StepStore(num_envs, rules),
      capacity_(capacity),
      segment_frames_(static_cast<std::size_t>(rules.segment_frames)),
      words_a_block_((segment_frames_ + kBitsPerWord - 1) / kBitsPerWord),
      choose_(std::move(choose)),
      by_segment_(num_envs),
      newest_(num_envs, nullptr),
      next_to_seal_(num_envs, 0) {
    more_flags_ = kTaken;
}

void StepBlocks::evict_for(std::size_t count, std::vector<Eviction>& evictions) {
    while (num_steps_ + count > capacity_ && num_sealed() > 0) {
        evict_next(evictions);
    }
}

void StepBlocks::evict_next(std::vector<Eviction>& evictions) {
    if (num_sealed() > 0) {
        evictions.push_back(evict(sealed_.find(choose_(num_sealed())).place));
    }
}

// Evicts the sealed block of that order; returns the frames that are no longer needed.
Eviction StepBlocks::evict(std::size_t order) {
    make_block_unsampleable(*blocks_[order]);
    const std::unique_ptr<StepBlock> leaving = std::move(blocks_[order]);
    const std::int64_t first = leaving->segment * rules_.segment_frames;
    records_of_[order] = nullptr;
    sealed_.add(order, std::uint64_t{0} - 1);
    num_steps_ -= leaving->num_steps;
    const auto range = static_cast<std::size_t>(leaving->first_slot / rules_.segment_frames);
    order_at_[range] = kFree;
    free_ranges_.insert(range);
    by_segment_[leaving->env_id].erase(leaving->segment);
    stop_touching(leaving->env_id, first, first + rules_.segment_frames);
    starts_.remove_within(
        leaving->env_id, first, first + rules_.segment_frames,
        [&](std::int64_t from, std::int64_t until) { return has_steps(leaving->env_id, from, until); });
    if (++num_evicted_ > kFewEvicted && num_evicted_ > blocks_.size() / 2) {
        compact();
    }
    return Eviction{static_cast<std::int32_t>(leaving->env_id), first, first + rules_.segment_frames};
}

std::uint8_t* StepBlocks::place_next(std::size_t env_id, std::int64_t position, std::int64_t& index) {
    StepBlock& block = *newest_[env_id];
    const auto place = static_cast<std::size_t>(position - block.segment * rules_.segment_frames);
    ++block.num_steps;
    ++num_steps_;
    index = index_of(block, place);
    return block.records.data() + place * records_.bytes();
}

std::size_t StepBlocks::lose(std::size_t env_id, std::int64_t first, std::int64_t before) {
    cursors_.lose(env_id, before);
    return stop_touching(env_id, first, before);
}

std::size_t StepBlocks::lose_indices(const std::vector<std::int64_t>& indices) {
    std::size_t num_lost = 0;
    for (const std::int64_t index : indices) {
        const Slot slot = slot_of(index);
        if (slot.order < numbers_.size()) {
            const StepBlock& block = *blocks_[slot.order];
            const std::int64_t position = position_of(block, slot.place);
            num_lost += lose_step(TakenSlot{slot, index, nullptr}, block.env_id, position) ? 1 : 0;
        }
    }
    return num_lost;
}

void StepBlocks::clear(std::vector<Eviction>& evictions) {
    close_episodes();
    while (num_sealed() > 0) {
        evictions.push_back(evict(sealed_.find(0).place));
    }
    for (const std::unique_ptr<StepBlock>& block : blocks_) {
        if (block) {  // later steps need its frames
            make_block_unsampleable(*block);
            std::fill(block->records.begin(), block->records.end(), std::uint8_t{0});
            num_steps_ -= std::exchange(block->num_steps, 0);
        }
    }
}

std::size_t StepBlocks::lose_leading_to(std::size_t env_id, std::int64_t position) {
    std::size_t num_lost = 0;
    const std::int64_t lowest = std::max<std::int64_t>(position - rules_.n_step + 1, 0);
    for (std::int64_t at = position - 1; at >= lowest; --at) {
        const TakenSlot step = taken_at(env_id, at);
        if (step.record == nullptr || StepRecords::ends_episode(step.record)) {
            break;
        }
        num_lost += lose_step(step, env_id, at) ? 1 : 0;
    }
    return num_lost;
}

void StepBlocks::restore(std::int64_t number, std::size_t env_id, std::int64_t segment, const std::uint8_t* records,
                         std::int64_t first_slot) {
    StepBlock& block = add_block(number, env_id, segment, first_slot);
    for (std::size_t place = 0; records != nullptr && place < segment_frames_; ++place) {
        if (StepRecords::is_taken(records + place * records_.bytes())) {
            flip_bit(words_of(block.order), place);
            ++block.num_steps;
        }
    }
    if (records != nullptr) {
        std::copy(records, records + block_bytes(), block.records.begin());
    }
    num_steps_ += block.num_steps;
    sampleable_.add(block.order, block.num_steps);
    const std::int64_t newest = cursors_.newest_position(env_id);
    next_to_seal_[env_id] = std::max<std::int64_t>(newest - rules_.stack + 1, 0) / rules_.segment_frames;
    if (is_sealed_by(segment, newest)) {
        seal(block);
    }
    if (newest / rules_.segment_frames == segment) {
        newest_[env_id] = &block;
    }
}

void StepBlocks::restore_pending() {
    for (std::size_t env_id = 0; env_id < num_envs() && !pending_.is_unused(); ++env_id) {
        const std::int64_t newest = cursors_.newest_position(env_id);
        std::int64_t position = std::max(cursors_.episode_start(env_id), newest - rules_.n_step + 1);
        for (; cursors_.is_open(env_id) && position < newest; ++position) {
            const TakenSlot step = taken_at(env_id, position);
            if (step.record != nullptr && is_sampleable(step.slot)) {
                make_unsampleable(step.slot);
                pending_.exchange(env_id, position, step.index);
            }
        }
    }
}

StepBlock& StepBlocks::add_block(std::int64_t number, std::size_t env_id, std::int64_t segment,
                                 std::int64_t first_slot) {
    auto block = std::make_unique<StepBlock>();
    block->number = number;
    block->segment = segment;
    block->env_id = env_id;
    block->order = blocks_.size();
    block->first_slot = take_slots(first_slot, block->order);
    block->records.resize(block_bytes());
    by_segment_[env_id][segment] = block.get();
    numbers_.push_back(number);
    records_of_.push_back(block->records.data());
    words_.resize(words_.size() + words_a_block_);
    sampleable_.push_back(0);
    sealed_.push_back(0);
    blocks_.push_back(std::move(block));
    next_number_ = number + 1;
    return *blocks_.back();
}

// Assigns a range of slots to the block of that order; -1 takes the first free range.
std::int64_t StepBlocks::take_slots(std::int64_t first_slot, std::size_t order) {
    std::size_t range = free_ranges_.empty() ? order_at_.size() : *free_ranges_.begin();
    if (first_slot >= 0) {
        range = static_cast<std::size_t>(first_slot / rules_.segment_frames);
    }
    while (range >= order_at_.size()) {
        free_ranges_.insert(order_at_.size());
        order_at_.push_back(kFree);
    }
    free_ranges_.erase(range);
    order_at_[range] = order;
    return static_cast<std::int64_t>(range) * rules_.segment_frames;
}

// Updates the blocks of an environment for its newest frame.
void StepBlocks::arrive(std::size_t env_id) {
    const std::int64_t newest = cursors_.newest_position(env_id);
    const std::int64_t segment = newest / rules_.segment_frames;
    if (newest_[env_id] == nullptr) {
        next_to_seal_[env_id] = segment;
    }
    if (newest_[env_id] == nullptr || newest_[env_id]->segment != segment) {
        newest_[env_id] = &add_block(next_number_, env_id, segment);
    }
    for (; is_sealed_by(next_to_seal_[env_id], newest); ++next_to_seal_[env_id]) {
        const auto found = by_segment_[env_id].find(next_to_seal_[env_id]);
        if (found != by_segment_[env_id].end()) {
            seal(*found->second);
        }
    }
}

void StepBlocks::seal(StepBlock& block) {
    block.is_sealed = true;
    sealed_.add(block.order, 1);
}

// Returns whether neither the newest observation nor any later one has a frame of that segment.
bool StepBlocks::is_sealed_by(std::int64_t segment, std::int64_t newest) const {
    return (segment + 1) * rules_.segment_frames <= newest - rules_.stack + 1;
}

// Every step becomes sampleable through this function (except in `restore`), and stops being so through one of the next
// two.
void StepBlocks::make_sampleable(const Slot& slot) {
    flip_bit(words_of(slot.order), slot.place);
    sampleable_.add(slot.order, 1);
    changed_.add(blocks_[slot.order]->first_slot + static_cast<std::int64_t>(slot.place));
}

void StepBlocks::make_sampleable(std::vector<std::int64_t>& settled) {
    for (const std::int64_t index : settled) {
        make_sampleable(slot_of(index));
    }
}

void StepBlocks::make_unsampleable(const Slot& slot) {
    flip_bit(words_of(slot.order), slot.place);
    sampleable_.add(slot.order, std::uint64_t{0} - 1);
    changed_.add(blocks_[slot.order]->first_slot + static_cast<std::int64_t>(slot.place));
}

// Makes all steps of an evicted block unsampleable.
void StepBlocks::make_block_unsampleable(const StepBlock& block) {
    sampleable_.add(block.order, std::uint64_t{0} - count_bits(words_of(block.order), words_a_block_));
    std::fill_n(words_of(block.order), words_a_block_, std::uint64_t{0});
    changed_.add(block.first_slot, rules_.segment_frames);
    const std::int64_t first = block.segment * rules_.segment_frames;
    const std::int64_t newest = cursors_.newest_position(block.env_id);
    for (std::int64_t position = std::max(first, newest - rules_.n_step + 1);
         position < std::min(first + rules_.segment_frames, newest); ++position) {
        pending_.remove(block.env_id, position, block.number * rules_.segment_frames + position - first);
    }
}

// Makes a step unsampleable, pending or not; returns whether it was sampleable.
bool StepBlocks::lose_step(const TakenSlot& step, std::size_t env_id, std::int64_t position) {
    if (!is_sampleable(step.slot)) {
        pending_.remove(env_id, position, step.index);
        return false;
    }
    make_unsampleable(step.slot);
    return true;
}

// Makes the steps unsampleable that use frames from `first` up to, excluding, `before` of an environment.
std::size_t StepBlocks::stop_touching(std::size_t env_id, std::int64_t first, std::int64_t before) {
    std::size_t num_stopped = 0;
    std::int64_t start = std::max<std::int64_t>(first - 1, 0);
    if (first > 0 && rules_.n_step > 1 && taken_at(env_id, start).record != nullptr) {
        num_stopped += lose_leading_to(env_id, start);  // includes returns that reach `first`
    }
    const std::int64_t stop = std::min(before + rules_.stack - 1, cursors_.newest_position(env_id));
    while (start < stop) {
        const std::int64_t segment = start / rules_.segment_frames;
        const std::int64_t here_until = std::min(stop, (segment + 1) * rules_.segment_frames);
        const StepBlock* block = find(env_id, segment);
        for (; block != nullptr && start < here_until; ++start) {
            const auto place = static_cast<std::size_t>(start - segment * rules_.segment_frames);
            const TakenSlot step{Slot{block->order, place}, index_of(*block, place), record(*block, place)};
            if (StepRecords::is_taken(step.record) && records_.first_position_of(step.record, env_id) < before) {
                num_stopped += lose_step(step, env_id, start) ? 1 : 0;
            }
        }
        start = here_until;
    }
    return num_stopped;
}

// Removes the entries of evicted blocks.
void StepBlocks::compact() {
    sampleable_.clear();
    sealed_.clear();
    std::size_t order = 0;
    for (std::size_t before = 0; before < blocks_.size(); ++before) {
        if (!blocks_[before]) {
            continue;
        }
        std::copy_n(words_of(before), words_a_block_, words_of(order));
        numbers_[order] = numbers_[before];
        records_of_[order] = records_of_[before];
        sampleable_.push_back(count_bits(words_of(order), words_a_block_));
        sealed_.push_back(blocks_[before]->is_sealed ? 1 : 0);
        blocks_[before]->order = order;
        order_at_[static_cast<std::size_t>(blocks_[before]->first_slot / rules_.segment_frames)] = order;
        if (order != before) {
            blocks_[order] = std::move(blocks_[before]);
        }
        ++order;
    }
    blocks_.resize(order);
    numbers_.resize(order);
    records_of_.resize(order);
    words_.resize(order * words_a_block_);
    num_evicted_ = 0;
}

// Read-only access to StepBlocks: sampleable steps by rank, slot and index, and the fields of steps.

std::size_t StepBlocks::nbytes() const {
    const std::size_t index_entry = sizeof(std::int64_t) + 4 * sizeof(void*);  // of by_segment_
    const std::size_t num_blocks = blocks_.size() - num_evicted_;
    return num_blocks * (block_bytes() + sizeof(StepBlock) + index_entry) +
           (blocks_.capacity() + records_of_.capacity()) * sizeof(void*) + numbers_.capacity() * sizeof(std::int64_t) +
           words_.capacity() * sizeof(std::uint64_t) + sampleable_.nbytes() + sealed_.nbytes() +
           order_at_.capacity() * sizeof(std::size_t) + free_ranges_.size() * 4 * sizeof(void*) + starts_.nbytes();
}

const std::uint8_t* StepBlocks::sampleable_record(std::int64_t index) const {
    const Slot slot = slot_of(index);
    return is_sampleable(slot) ? records_of_[slot.order] + slot.place * records_.bytes() : nullptr;
}

std::int64_t StepBlocks::sampleable_at(std::int64_t rank) const {
    const PrefixCounts::Found found = sampleable_.find(static_cast<std::uint64_t>(rank));
    return numbers_[found.place] * rules_.segment_frames +
           static_cast<std::int64_t>(place_of(words_of(found.place), found.rank));
}

std::vector<std::int64_t> StepBlocks::lost_indices() const {
    std::vector<std::int64_t> indices;
    for (const StepBlock* block : blocks()) {
        for (std::size_t place = 0; place < segment_frames_; ++place) {
            const std::int64_t index = index_of(*block, place);
            if (StepRecords::is_taken(record(*block, place)) && !has_bit(words_of(block->order), place) &&
                !is_pending(index)) {
                indices.push_back(index);
            }
        }
    }
    return indices;
}

std::int64_t StepBlocks::slot_number_of(std::int64_t index) const {
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

std::uint8_t* StepBlocks::stored_record(std::int64_t index) const {
    const Slot slot = slot_of(index);
    if (slot.order >= numbers_.size()) {
        return nullptr;
    }
    std::uint8_t* const record = blocks_[slot.order]->records.data() + slot.place * records_.bytes();
    return StepRecords::is_taken(record) ? record : nullptr;
}

const StepBlock* StepBlocks::find(std::size_t env_id, std::int64_t segment) const {
    const auto found = by_segment_[env_id].find(segment);
    return found == by_segment_[env_id].end() ? nullptr : found->second;
}

std::vector<const StepBlock*> StepBlocks::blocks() const {
    std::vector<const StepBlock*> here;
    here.reserve(blocks_.size() - num_evicted_);
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

// Finds a stored step: it lies in the last block whose number is not above its block's number.
StepBlocks::Slot StepBlocks::slot_of(std::int64_t index) const {
    const std::int64_t number = index / rules_.segment_frames;
    std::size_t order = 0;
    for (std::size_t left = numbers_.size(); left > 1;) {  // branchless: the comparisons are unpredictable
        const std::size_t half = left / 2;
        order += numbers_[order + half] <= number ? half : 0;
        left -= half;
    }
    // An evicted block leaves its entry behind until the next `compact`.
    const bool is_here = index >= 0 && !numbers_.empty() && numbers_[order] == number && records_of_[order] != nullptr;
    return is_here ? Slot{order, static_cast<std::size_t>(index % rules_.segment_frames)} : Slot{numbers_.size(), 0};
}

bool StepBlocks::is_sampleable(const Slot& slot) const {
    return slot.order < numbers_.size() && has_bit(words_of(slot.order), slot.place);
}

StepBlocks::TakenSlot StepBlocks::taken_at(std::size_t env_id, std::int64_t position) const {
    const StepBlock* block = find(env_id, position / rules_.segment_frames);
    const auto place = static_cast<std::size_t>(position % rules_.segment_frames);
    if (block == nullptr || !StepRecords::is_taken(record(*block, place))) {
        return TakenSlot{Slot{numbers_.size(), 0}, -1, nullptr};
    }
    const std::int64_t index = index_of(*block, place);
    return TakenSlot{Slot{block->order, place}, index, record(*block, place)};
}

// The next step has the next place, continued in the environment's next block. A step with a missing successor is not
// sampleable, so none here ends an episode that was truncated.
bool StepBlocks::step_on(StepWalk& walk) const {
    const std::int64_t place = ++walk.position % rules_.segment_frames;
    walk.record += records_.bytes();
    if (place == 0) {
        const StepBlock* block = find(walk.env_id, walk.position / rules_.segment_frames);
        walk.record = block == nullptr ? nullptr : record(*block, 0);
    }
    return walk.record != nullptr && StepRecords::is_taken(walk.record);
}

void StepBlocks::visit_stored(const Visit& visit) const {
    for (const StepBlock* block : blocks()) {
        for (std::size_t place = 0; place < segment_frames_; ++place) {
            if (StepRecords::is_taken(record(*block, place))) {
                visit(index_of(*block, place), record(*block, place));
            }
        }
    }
}

const std::uint8_t* StepBlocks::record(const StepBlock& block, std::size_t place) const {
    return block.records.data() + place * records_.bytes();
}

std::vector<std::int64_t> StepBlocks::sampleable_after(std::int64_t after, std::size_t count) const {
    std::vector<std::int64_t> indices;
    const std::int64_t first = std::max<std::int64_t>(after + 1, 0);
    const auto behind = std::lower_bound(numbers_.begin(), numbers_.end(), first / rules_.segment_frames);
    for (auto order = static_cast<std::size_t>(behind - numbers_.begin()); order < numbers_.size(); ++order) {
        const std::int64_t start = numbers_[order] * rules_.segment_frames;
        for (std::size_t place = 0; place < segment_frames_; ++place) {
            if (indices.size() == count) {
                return indices;
            }
            const std::int64_t index = start + static_cast<std::int64_t>(place);
            if (index >= first && is_sampleable(Slot{order, place})) {
                indices.push_back(index);
            }
        }
    }
    return indices;
}

bool StepBlocks::find(std::size_t env_id, std::int64_t position, StepPlace& place) const {
    const auto found =
        position < 0 ? by_segment_[env_id].end() : by_segment_[env_id].find(position / rules_.segment_frames);
    if (found == by_segment_[env_id].end()) {
        return false;
    }
    const StepBlock& block = *found->second;
    const std::int64_t index = block.number * rules_.segment_frames + position % rules_.segment_frames;
    if (!is_readable(index)) {
        return false;
    }
    place = StepPlace{env_id, position, index, 1};
    return true;
}

// Blocks of an environment are in the order of their segments, so a span only grows at its end.
std::vector<StepSpan> StepBlocks::readable_spans() {
    GrowingSpans spans(*this);
    for (const StepBlock* block : blocks()) {
        const std::uint64_t* words = words_of(block->order);
        for (std::size_t place = 0; place < segment_frames_;) {
            const bool is_full = place % kBitsPerWord == 0 && place + kBitsPerWord <= segment_frames_ &&
                                 words[place / kBitsPerWord] == ~std::uint64_t{0};
            const std::size_t count = is_full ? kBitsPerWord : 1;  // most words are full
            if (is_full || has_bit(words, place) || is_pending(index_of(*block, place))) {
                spans.add(block->env_id, position_of(*block, place), static_cast<std::int64_t>(count));
            }
            place += count;
        }
    }
    return spans.finish();
}

// Returns whether a block is stored of the steps from `first` up to, excluding, `before`.
bool StepBlocks::has_steps(std::size_t env_id, std::int64_t first, std::int64_t before) const {
    const std::int64_t lowest = first / rules_.segment_frames;
    std::int64_t segment = first < before ? (before - 1) / rules_.segment_frames : lowest - 1;
    for (; segment >= lowest; --segment) {  // the newest blocks are the most likely to be stored
        if (by_segment_[env_id].count(segment) != 0) {
            return true;
        }
    }
    return false;
}

}  // namespace framestow
