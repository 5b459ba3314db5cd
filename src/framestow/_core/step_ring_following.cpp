// What step_following.hpp asks of a StepRing.
#include <algorithm>

#include "step_ring.hpp"

namespace framestow {

std::vector<std::int64_t> StepRing::held_after(std::int64_t after, std::size_t count) const {
    std::vector<std::int64_t> indices;
    for (std::int64_t index = std::max(after + 1, oldest_); index < next_index_ && indices.size() < count; ++index) {
        if (is_held(index)) {
            indices.push_back(index);
        }
    }
    return indices;
}

bool StepRing::locate(std::int64_t index, StepPlace& place) const {
    if (!is_readable(index)) {
        return false;
    }
    const std::size_t stream = records_.stream_of(slot(index));
    place = StepPlace{stream, records_.position_of(slot(index), stream), index,
                      static_cast<std::int64_t>(num_streams())};
    return true;
}

bool StepRing::move(StepPlace& place, std::int64_t position) const {
    const std::int64_t distance = position - place.position;
    const std::int64_t step = distance < 0 ? -1 : 1;
    // Where streams step together, those of one lie as far apart as the last two did.
    std::int64_t index = place.index + distance * place.gap;
    if (!is_at(index, place.stream, position)) {
        if (position >= courses_.newest_position(place.stream) || position < first_steps_[place.stream]) {
            return false;
        }
        // The next of the stream's that may be read; the record of another one may say nothing.
        index = place.index + step;
        while (index >= oldest_ && index < next_index_ &&
               (records_.stream_of(slot(index)) != place.stream || !is_readable(index) ||
                (position - records_.position_of(slot(index), place.stream)) * step > 0)) {
            index += step;
        }
        if (!is_at(index, place.stream, position)) {
            return false;
        }
    }
    if (distance == step) {
        place.gap = (index - place.index) * step;
    }
    place.position = position;
    place.index = index;
    return true;
}

bool StepRing::find(std::size_t stream, std::int64_t position, StepPlace& place) const {
    return locate(first_from(stream, position), place) && place.position == position;
}

std::vector<StepRun> StepRing::readable_runs() {
    if (hidden_.size() != pending_.indices().size()) {
        return runs_between_lost_steps();
    }
    if (has_forgotten_left_) {
        find_first_steps();
        has_forgotten_left_ = false;
    }
    std::vector<StepRun> runs;
    for (std::size_t stream = 0; stream < num_streams(); ++stream) {
        add_runs_of(stream, runs);
    }
    return runs;
}

void StepRing::restore_starts(std::size_t stream, std::vector<std::int64_t> ascending) {
    starts_.restore(stream, std::move(ascending), courses_.newest_position(stream), courses_.episode_start(stream));
    if (stream + 1 == num_streams()) {
        find_first_steps();
    }
}

void StepRing::rebuild_starts() {
    std::vector<std::vector<std::int64_t>> starts(num_streams());
    std::vector<std::int64_t> steps_before(num_streams(), kNoPosition);
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        if (!is_readable(index)) {
            continue;
        }
        const std::size_t stream = records_.stream_of(slot(index));
        const std::int64_t position = records_.position_of(slot(index), stream);
        const std::int64_t history = StepRecords::history_of(slot(index));
        if (tells_start(rules_.stack, history, position, steps_before[stream])) {
            starts[stream].push_back(position);
        }
        steps_before[stream] = position;
    }
    for (std::size_t stream = 0; stream < num_streams(); ++stream) {
        restore_starts(stream, std::move(starts[stream]));
    }
}

// Of each stream, among those that are held.
void StepRing::find_first_steps() {
    std::vector<bool> is_found(num_streams(), false);
    std::size_t num_missing = num_streams();
    for (std::int64_t index = oldest_; index < next_index_ && num_missing != 0; ++index) {
        const std::size_t stream = records_.stream_of(slot(index));
        if (is_readable(index) && !is_found[stream]) {
            is_found[stream] = true;
            first_steps_[stream] = records_.position_of(slot(index), stream);
            --num_missing;
        }
    }
    for (std::size_t stream = 0; stream < num_streams(); ++stream) {
        if (!is_found[stream]) {
            first_steps_[stream] = std::max<std::int64_t>(courses_.newest_position(stream), 0);
        }
    }
}

bool StepRing::is_at(std::int64_t index, std::size_t stream, std::int64_t position) const {
    return is_readable(index) && records_.stream_of(slot(index)) == stream &&
           records_.position_of(slot(index), stream) == position;
}

// Those of a stream, none of whose steps is lost.
void StepRing::add_runs_of(std::size_t stream, std::vector<StepRun>& runs) const {
    std::int64_t first = first_steps_[stream];
    const auto add_until = [&](std::int64_t last_frame) {
        if (first < last_frame) {
            runs.push_back(run_of(*this, stream, first, last_frame - first));
        }
    };
    for (const std::int64_t* start = starts_.begin(stream); start != starts_.end(stream); ++start) {
        if (*start > first) {
            add_until(*start - 1);
            first = *start;
        }
    }
    add_until(courses_.newest_position(stream));
}

std::vector<StepRun> StepRing::runs_between_lost_steps() const {
    std::vector<StepRun> runs;
    std::vector<StepRun> growing(num_streams(), StepRun{});
    const auto end = [&](const StepRun& run) {
        if (run.num_steps != 0) {
            runs.push_back(run_of(*this, run.stream, run.position, run.num_steps));
        }
    };
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        if (!is_readable(index)) {
            continue;
        }
        const std::size_t stream = records_.stream_of(slot(index));
        const std::int64_t position = records_.position_of(slot(index), stream);
        StepRun& run = growing[stream];
        if (run.num_steps == 0 || run.position + run.num_steps != position) {
            end(run);
            run = StepRun{stream, position, 0, 0, false, false};
        }
        ++run.num_steps;
    }
    std::for_each(growing.begin(), growing.end(), end);
    return runs;
}

}  // namespace framestow
