// What step_following.hpp asks of StepBlocks.
#include <algorithm>

#include "bit_words.hpp"
#include "step_blocks.hpp"

namespace framestow {

std::vector<std::int64_t> StepBlocks::held_after(std::int64_t after, std::size_t count) const {
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
            if (index >= first && is_drawable(Slot{order, place})) {
                indices.push_back(index);
            }
        }
    }
    return indices;
}

const std::uint8_t* StepBlocks::record(const StepPlace& place) const {
    const Slot slot = slot_of(place.index);
    return records_of_[slot.order] + slot.place * records_.bytes();
}

bool StepBlocks::locate(std::int64_t index, StepPlace& place) const {
    if (!is_readable(index)) {
        return false;
    }
    const Slot slot = slot_of(index);
    const StepBlock& block = *blocks_[slot.order];
    place = StepPlace{block.stream, block.segment * rules_.segment_frames + static_cast<std::int64_t>(slot.place),
                      index, 1};
    return true;
}

bool StepBlocks::find(std::size_t stream, std::int64_t position, StepPlace& place) const {
    const auto found = position < 0 ? by_segment_[stream].end() : by_segment_[stream].find(position / rules_.segment_frames);
    if (found == by_segment_[stream].end()) {
        return false;
    }
    const StepBlock& block = *found->second;
    const std::int64_t index = block.number * rules_.segment_frames + position % rules_.segment_frames;
    if (!is_readable(index)) {
        return false;
    }
    place = StepPlace{stream, position, index, 1};
    return true;
}

// Blocks of a stream stand in the order of their segments, so a run only ever grows at its end.
std::vector<StepRun> StepBlocks::readable_runs() const {
    std::vector<StepRun> runs;
    std::vector<StepRun> growing(num_streams(), StepRun{});
    const auto end = [&](StepRun& run) {
        if (run.num_steps != 0) {
            runs.push_back(run_of(*this, run.stream, run.position, run.num_steps));
        }
        run.num_steps = 0;
    };
    for (const StepBlock* block : blocks()) {
        StepRun& run = growing[block->stream];
        const std::int64_t first = block->segment * rules_.segment_frames;
        if (run.position + run.num_steps != first) {
            end(run);
        }
        const std::uint64_t* words = words_of(block->order);
        for (std::size_t place = 0; place < segment_frames_;) {
            const bool is_full = place % kBitsPerWord == 0 && place + kBitsPerWord <= segment_frames_ &&
                                 words[place / kBitsPerWord] == ~std::uint64_t{0};
            const std::size_t count = is_full ? kBitsPerWord : 1;  // most words are full
            const std::int64_t index = block->number * rules_.segment_frames + static_cast<std::int64_t>(place);
            if (!is_full && !has_bit(words, place) && !is_pending(index)) {
                end(run);
            } else {
                if (run.num_steps == 0) {
                    run = StepRun{block->stream, first + static_cast<std::int64_t>(place), 0, 0, false, false};
                }
                run.num_steps += static_cast<std::int64_t>(count);
            }
            place += count;
        }
    }
    std::for_each(growing.begin(), growing.end(), end);
    return runs;
}

void StepBlocks::rebuild_starts() {
    std::vector<std::vector<std::int64_t>> starts(num_streams());
    std::vector<std::int64_t> steps_before(num_streams(), kNoPosition);
    for (const StepBlock* block : blocks()) {
        for (std::size_t place = 0; place < segment_frames_; ++place) {
            if (!is_readable(block->number * rules_.segment_frames + static_cast<std::int64_t>(place))) {
                continue;
            }
            const std::int64_t position = block->segment * rules_.segment_frames + static_cast<std::int64_t>(place);
            const std::int64_t history = StepRecords::history_of(records_of_[block->order] + place * records_.bytes());
            if (tells_start(rules_.stack, history, position, steps_before[block->stream])) {
                starts[block->stream].push_back(position);
            }
            steps_before[block->stream] = position;
        }
    }
    for (std::size_t stream = 0; stream < num_streams(); ++stream) {
        restore_starts(stream, std::move(starts[stream]));
    }
}

// Whether a block is here of the steps that start at `first` up to, not including, `before`.
bool StepBlocks::has_steps(std::size_t stream, std::int64_t first, std::int64_t before) const {
    const std::int64_t lowest = first / rules_.segment_frames;
    std::int64_t segment = first < before ? (before - 1) / rules_.segment_frames : lowest - 1;
    for (; segment >= lowest; --segment) {  // the newest are the likeliest to be here
        if (by_segment_[stream].count(segment) != 0) {
            return true;
        }
    }
    return false;
}

}  // namespace framestow
