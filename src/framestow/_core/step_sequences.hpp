// Sequences of consecutive steps, runs of them, and discounted returns to an episode's end.
//
// The successor of a step that starts at a frame is the step that starts at the next frame of the environment. An
// episode's last frame starts no step, so successive positions never cross into another episode. An unreadable step
// ends a sequence as the end of an episode does.
//
// `Core` is StepRing or StepBlocks, with the members
//
//    bool locate(index, StepPlace&)        finds a step; false if it is not readable
//    bool move(StepPlace&, position)       moves to the environment's step that starts there; false, and the place is
//                                          unchanged, if no readable step does
//    const std::uint8_t* record(place), const StepRecords& records(), const EpisodeStarts& episode_starts(),
//    const EnvCursors& cursors()
//
// Threads: the caller serialises all calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "step_index.hpp"
#include "step_record.hpp"

namespace framestow {

constexpr std::int64_t kNoStep = -1;

struct StepPlace {
    std::size_t env_id;
    std::int64_t position;  // of the frame that the step starts at
    std::int64_t index;
    std::int64_t gap;  // StepRing: index distance of this environment's last two steps
};

// A longest run of consecutive readable steps of one episode.
struct StepRun {
    std::size_t env_id;
    std::int64_t position;  // of its first step
    std::int64_t num_steps;
    std::int64_t episode;  // where its episode begins; 0 if unknown
    bool is_whole;         // all steps of an ended episode
    bool is_open;          // its last step is the environment's newest, and the episode is open
};

// Whether a sequence stops at an episode's end or continues with the environment's next episode.
enum class EpisodeEnds { kStop, kCross };

// Returns whether the step at `place` is the last one of its episode so far, ended or open.
template <typename Core>
bool is_last_played(const Core& core, const StepPlace& place) {
    const std::int64_t last_frame = place.position + 1;
    return core.cursors().newest_position(place.env_id) == last_frame ||
           core.episode_starts().is_start(place.env_id, last_frame + 1);
}

// Moves to the first step of the next episode that has one; false if it is not readable or does not exist yet.
template <typename Core>
bool cross_episode_end(const Core& core, StepPlace& place) {
    const EpisodeStarts& starts = core.episode_starts();
    const std::int64_t newest = core.cursors().newest_position(place.env_id);
    std::int64_t start = place.position + 2;
    if (!starts.is_start(place.env_id, start)) {
        return false;
    }
    while (starts.is_start(place.env_id, start + 1)) {  // an episode that began and was never stepped
        ++start;
    }
    return start < newest && core.move(place, start);
}

// Writes the indices of up to `length` consecutive steps from `index` on, then kNoStep, and whether each is the first
// of its episode. Writes only kNoStep if `index` is not readable.
template <typename Core>
void step_sequence(const Core& core, std::int64_t index, std::size_t length, EpisodeEnds at_end, std::int64_t* indices,
                   bool* is_first) {
    std::fill_n(indices, length, kNoStep);
    std::fill_n(is_first, length, false);
    StepPlace place{};
    if (!core.locate(index, place)) {
        return;
    }
    is_first[0] = core.episode_starts().is_start(place.env_id, place.position);
    indices[0] = index;
    for (std::size_t step = 1; step < length; ++step) {
        if (!core.move(place, place.position + 1)) {
            if (at_end == EpisodeEnds::kStop || !cross_episode_end(core, place)) {
                return;
            }
            is_first[step] = true;
        }
        indices[step] = place.index;
    }
}

// Returns the step at or before `index` whose distance to its episode's start is a multiple of `stride`. If steps in
// between are unreadable: kNoStep if `exact`, otherwise the earliest step from which all steps up to `index` are
// readable. If the episode's start is unknown, distances count from position 0.
template <typename Core>
std::int64_t aligned_start(const Core& core, std::int64_t index, std::int64_t stride, bool exact) {
    StepPlace place{};
    if (!core.locate(index, place)) {
        return kNoStep;
    }
    const std::int64_t start = std::max<std::int64_t>(core.episode_starts().start_of(place.env_id, place.position), 0);
    for (std::int64_t num_back = (place.position - start) % stride; num_back > 0; --num_back) {
        if (!core.move(place, place.position - 1)) {
            return exact ? kNoStep : place.index;
        }
    }
    return place.index;
}

// Writes for each step the discounted sum of rewards to the end of its episode; of an open episode, of the rewards so
// far. NaN if a step in between is unreadable.
template <typename Core>
void returns_to_go(const Core& core, const std::int64_t* indices, std::size_t count, double discount, double* returns) {
    std::vector<StepPlace> places(count);
    std::vector<std::size_t> order;
    for (std::size_t row = 0; row < count; ++row) {
        returns[row] = std::numeric_limits<double>::quiet_NaN();
        if (core.locate(indices[row], places[row])) {
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
            sums.push_back(static_cast<double>(core.records().reward_of(core.record(place))));
        } while (core.move(place, place.position + 1));
        double sum = is_last_played(core, place) ? 0.0 : std::numeric_limits<double>::quiet_NaN();
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

// Returns a run with the fields that follow from episode starts and environment cursors.
template <typename Core>
StepRun run_of(const Core& core, std::size_t env_id, std::int64_t position, std::int64_t num_steps) {
    const EnvCursors& cursors = core.cursors();
    const bool is_newest = position + num_steps == cursors.newest_position(env_id);
    const bool is_open = is_newest && cursors.is_open(env_id);
    const bool has_end = is_newest ? !is_open : core.episode_starts().is_start(env_id, position + num_steps + 1);
    const std::int64_t episode = core.episode_starts().start_of(env_id, position);
    return StepRun{env_id, position, num_steps, std::max<std::int64_t>(episode, 0), has_end && episode == position,
                   is_open};
}

}  // namespace framestow
