#include "step_store.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace framestow {

StepStore::StepStore(std::size_t num_envs, const StepRules& rules)
    : rules_(rules),
      cursors_(num_envs, rules.stack),
      records_(cursors_.envs().newest_positions, rules),
      pending_(num_envs, rules.n_step),
      starts_(num_envs) {}

void StepStore::begin(const std::int32_t* env_ids, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) {
        const auto env_id = static_cast<std::size_t>(env_ids[row]);
        cursors_.begin(env_id);
        settle(env_id);
        starts_.push(env_id, cursors_.episode_start(env_id));
        arrive(env_id);
    }
    make_settled_sampleable();
}

void StepStore::close_episode(std::size_t env_id) {
    cursors_.close(env_id);
    settle(env_id);
    make_settled_sampleable();
}

void StepStore::close_episodes() {
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        close_episode(env_id);
    }
}

void StepStore::append(const PlannedSteps& steps, std::int64_t* indices) {
    const bool are_complete = pending_.is_unused();
    for (std::size_t row = 0; row < steps.count; ++row) {
        const auto env_id = static_cast<std::size_t>(steps.env_ids[row]);
        const StepStart start = cursors_.advance(env_id, steps.flags[row]);
        records_.write(place_next(env_id, start.position, indices[row]), steps, row, start.position, start.history,
                       static_cast<std::uint8_t>(more_flags_ | start.flags));
        if (are_complete && start.is_readable) {
            make_sampleable(indices[row]);
        } else {
            keep_unsampleable(indices[row]);
        }
        if (!are_complete) {
            const std::int64_t settled =
                pending_.exchange(env_id, start.position, start.is_readable ? indices[row] : PendingSteps::kNone);
            if (settled != PendingSteps::kNone) {
                settled_.push_back(settled);
            }
            if (ends_episode(steps.flags[row])) {
                settle(env_id);
            }
        }
        arrive(env_id);
    }
    make_settled_sampleable();
}

// Completes all pending steps of an environment: its episode is over.
void StepStore::settle(std::size_t env_id) {
    pending_.take(env_id, [&](std::int64_t index) { settled_.push_back(index); });
}

void StepStore::make_settled_sampleable() {
    if (!settled_.empty()) {
        make_sampleable(settled_);
        settled_.clear();
    }
}

bool StepStore::is_pending(std::int64_t index) const {
    const std::uint8_t* record = pending_.is_unused() ? nullptr : stored_record(index);
    if (record == nullptr) {
        return false;
    }
    const std::size_t env_id = records_.env_of(record);
    return pending_.contains(env_id, records_.position_of(record, env_id), index);
}

std::size_t StepStore::resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    for (std::size_t row = 0; row < count; ++row) {
        const std::uint8_t* record = sampleable_record(indices[row]);
        if (record == nullptr) {
            return row;
        }
        records_.resolve_return(record, return_of(indices[row], record), row, count, out);
    }
    return count;
}

std::size_t StepStore::resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const {
    for (std::size_t row = 0; row < count; ++row) {
        const std::uint8_t* record = sampleable_record(indices[row]);
        if (record == nullptr && is_pending(indices[row])) {
            record = stored_record(indices[row]);
        }
        if (record == nullptr) {
            return row;
        }
        records_.resolve(record, row, out);
    }
    return count;
}

template <typename VisitRecord>
void StepStore::walk_return(std::int64_t index, const std::uint8_t* record, const VisitRecord& visit) const {
    std::int64_t num_left = rules_.n_step - 1;
    if (num_left == 0) {
        return;
    }
    const std::size_t env_id = records_.env_of(record);
    StepWalk walk{index, env_id, records_.position_of(record, env_id), record, num_envs()};
    for (; num_left > 0 && !StepRecords::ends_episode(walk.record) && step_on(walk); --num_left) {
        visit(walk.record);
    }
}

StepReturn StepStore::return_of(std::int64_t index, const std::uint8_t* record) const {
    StepReturn sum = records_.begin_return(record);
    walk_return(index, record, [&](const std::uint8_t* later) { records_.add_step(sum, later); });
    return sum;
}

std::size_t StepStore::steps_of_return(std::int64_t index, const std::uint8_t** records) const {
    const std::uint8_t* const first = sampleable_record(index);
    std::size_t count = 0;
    if (first != nullptr) {
        records[count++] = first;
        walk_return(index, first, [&](const std::uint8_t* later) { records[count++] = later; });
    }
    return count;
}

bool StepStore::locate(std::int64_t index, StepPlace& place) const {
    if (!is_readable(index)) {
        return false;
    }
    const std::uint8_t* record = stored_record(index);
    const std::size_t env_id = records_.env_of(record);
    place = StepPlace{env_id, records_.position_of(record, env_id), index, static_cast<std::int64_t>(num_envs())};
    return true;
}

std::vector<std::vector<std::int64_t>> StepStore::find_starts() const {
    std::vector<std::vector<std::int64_t>> starts(num_envs());
    visit_stored([&](std::int64_t index, const std::uint8_t* record) {
        if ((StepRecords::flags_of(record) & kBeginsEpisode) != 0 && is_readable(index)) {
            const std::size_t env_id = records_.env_of(record);
            starts[env_id].push_back(records_.position_of(record, env_id));
        }
    });
    return starts;
}

void StepStore::restore_starts(std::vector<std::vector<std::int64_t>> starts) {
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        starts_.restore(env_id, std::move(starts[env_id]), cursors_.newest_position(env_id),
                        cursors_.episode_start(env_id));
    }
}

std::size_t StepStore::forget(const std::int64_t* indices, std::size_t count) {
    std::vector<std::int64_t> lost(indices, indices + count);
    for (std::size_t row = 0; row < count && rules_.n_step > 1; ++row) {
        const std::uint8_t* record = stored_record(indices[row]);
        if (records_.is_placeholder(record)) {
            continue;  // what may lead to it was lost with it
        }
        const std::size_t env_id = records_.env_of(record);
        std::int64_t position = records_.position_of(record, env_id);
        const std::int64_t first = std::max(starts_.start_of(env_id, position), position - rules_.n_step + 1);
        for (StepPlace place{}; position > first;) {
            if (find(env_id, --position, place)) {
                lost.push_back(place.index);
            }
        }
    }
    std::sort(lost.begin(), lost.end());
    lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
    return lose_indices(lost);
}

void StepStore::follow(std::int64_t index, std::size_t length, EpisodeEnds at_end, std::int64_t* indices,
                       bool* is_first) const {
    std::fill_n(indices, length, kNoStep);
    std::fill_n(is_first, length, false);
    StepPlace place{};
    if (!locate(index, place)) {
        return;
    }
    is_first[0] = starts_.is_start(place.env_id, place.position);
    indices[0] = index;
    for (std::size_t step = 1; step < length; ++step) {
        if (!move(place, place.position + 1)) {
            if (at_end == EpisodeEnds::kStop || !cross_episode_end(place)) {
                return;
            }
            is_first[step] = true;
        }
        indices[step] = place.index;
    }
}

std::int64_t StepStore::aligned_start(std::int64_t index, std::int64_t stride, bool exact) const {
    StepPlace place{};
    if (!locate(index, place)) {
        return kNoStep;
    }
    const std::int64_t start = std::max<std::int64_t>(starts_.start_of(place.env_id, place.position), 0);
    for (std::int64_t num_back = (place.position - start) % stride; num_back > 0; --num_back) {
        if (!move(place, place.position - 1)) {
            return exact ? kNoStep : place.index;
        }
    }
    return place.index;
}

void StepStore::returns_to_go(const std::int64_t* indices, std::size_t count, double discount, double* returns) const {
    std::vector<StepPlace> places(count);
    std::vector<std::size_t> order;
    for (std::size_t row = 0; row < count; ++row) {
        returns[row] = std::numeric_limits<double>::quiet_NaN();
        if (locate(indices[row], places[row])) {
            order.push_back(row);
        }
    }
    std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
        const StepPlace &a = places[one], &b = places[other];
        return a.env_id != b.env_id ? a.env_id < b.env_id : a.position < b.position;
    });
    std::vector<double> sums;  // from the first requested step of an episode on
    for (std::size_t at = 0; at < order.size();) {
        StepPlace place = places[order[at]];
        const std::int64_t first = place.position;
        sums.clear();
        do {
            sums.push_back(static_cast<double>(StepRecords::reward_of(record(place))));
        } while (move(place, place.position + 1));
        double sum = is_last_played(place) ? 0.0 : std::numeric_limits<double>::quiet_NaN();
        for (std::size_t step = sums.size(); step-- > 0;) {
            sums[step] = sum = sums[step] + discount * sum;
        }
        for (; at < order.size(); ++at) {
            const StepPlace& asked = places[order[at]];
            if (asked.env_id != place.env_id || asked.position > place.position) {
                break;
            }
            returns[order[at]] = sums[static_cast<std::size_t>(asked.position - first)];
        }
    }
}

void StepStore::GrowingSpans::add(std::size_t env_id, std::int64_t position, std::int64_t num_steps) {
    StepSpan& span = growing_[env_id];
    if (span.position + span.num_steps != position) {
        end(span);
    }
    if (span.num_steps == 0) {
        span = StepSpan{env_id, position, 0, 0, false, false};
    }
    span.num_steps += num_steps;
}

std::vector<StepSpan> StepStore::GrowingSpans::finish() {
    for (StepSpan& span : growing_) {
        end(span);
    }
    return std::move(spans_);
}

void StepStore::GrowingSpans::end(StepSpan& span) {
    if (span.num_steps != 0) {
        spans_.push_back(steps_.step_span(span.env_id, span.position, span.num_steps));
    }
    span.num_steps = 0;
}

StepSpan StepStore::step_span(std::size_t env_id, std::int64_t position, std::int64_t num_steps) const {
    const bool is_newest = position + num_steps == cursors_.newest_position(env_id);
    const bool is_open = is_newest && cursors_.is_open(env_id);
    const bool has_end = is_newest ? !is_open : starts_.is_start(env_id, position + num_steps + 1);
    const std::int64_t episode = starts_.start_of(env_id, position);
    return StepSpan{env_id, position, num_steps, std::max<std::int64_t>(episode, 0), has_end && episode == position,
                    is_open};
}

// Returns whether the step at `place` is the last one of its episode so far, ended or open.
bool StepStore::is_last_played(const StepPlace& place) const {
    const std::int64_t last_frame = place.position + 1;
    return cursors_.newest_position(place.env_id) == last_frame || starts_.is_start(place.env_id, last_frame + 1);
}

// Moves to the first step of the next episode that has one; false if it is not readable or does not exist yet.
bool StepStore::cross_episode_end(StepPlace& place) const {
    const std::int64_t newest = cursors_.newest_position(place.env_id);
    std::int64_t start = place.position + 2;
    if (!starts_.is_start(place.env_id, start)) {
        return false;
    }
    while (starts_.is_start(place.env_id, start + 1)) {  // an episode that began and was never stepped
        ++start;
    }
    return start < newest && move(place, start);
}

}  // namespace framestow
