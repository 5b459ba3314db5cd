// What follows on a step: sequences of steps, runs of them, what an episode still returns from a step on.
//
// A step of a stream that starts at a frame is followed by the one that starts at the next frame; the last frame of an
// episode starts none. So no step of another episode ever comes of going from frame to frame. A step that may not be
// read ends what follows, as the end of an episode does.
//
// `Core` is StepRing or StepBlocks: whatever has
//
//     bool locate(index, StepPlace&)        where a step lies; false for one that may not be read
//     bool move(StepPlace&, position)       to the step of its stream that starts there; false where there is none
//                                           that may be read, and the place stays
//     StepRun runs ...                      see readable_runs
//     const std::uint8_t* record(place), const StepRecords& records(), const EpisodeStarts& episode_starts(),
//     const StreamCursors& cursors()
//
// Threads: the caller keeps all calls apart. Indices that name no step that may be read give what is said there.
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
    std::size_t stream;
    std::int64_t position;  // of the frame that the step starts at
    std::int64_t index;
    std::int64_t gap;  // StepRing: by how many indices this stream's steps were last apart
};

// Steps of one episode that follow on one another, all of which may be read, and none beside them.
struct StepRun {
    std::size_t stream;
    std::int64_t position;  // of its first step
    std::int64_t num_steps;
    std::int64_t episode;  // where its episode begins; 0 where that is not known
    bool is_whole;  // every step of an episode that has ended
    bool is_open;   // its last step is its stream's newest, and the episode goes on
};

enum class EpisodeEnds { kStop, kCross };

// Whether the step at `place` is the last of its episode, which has ended or may go on; false where more were played.
template <typename Core>
bool is_last_played(const Core& core, const StepPlace& place) {
    const std::int64_t last_frame = place.position + 1;
    return core.cursors().newest_position(place.stream) == last_frame ||
           core.episode_starts().is_start(place.stream, last_frame + 1);
}

// Goes to the first step of the next episode that has one; false where that may not be read, or is not there yet.
template <typename Core>
bool cross_episode_end(const Core& core, StepPlace& place) {
    const EpisodeStarts& starts = core.episode_starts();
    const std::int64_t newest = core.cursors().newest_position(place.stream);
    std::int64_t start = place.position + 2;
    if (!starts.is_start(place.stream, start)) {
        return false;
    }
    while (starts.is_start(place.stream, start + 1)) {  // an episode that was begun and never stepped
        ++start;
    }
    return start < newest && core.move(place, start);
}

// Writes the indices of `length` steps from `index` on, kNoStep behind what follows; whether each is an episode's
// first. Nothing follows an index that names no step that may be read, not even itself.
template <typename Core>
void step_sequence(const Core& core, std::int64_t index, std::size_t length, EpisodeEnds at_end, std::int64_t* indices,
            bool* is_first) {
    std::fill_n(indices, length, kNoStep);
    std::fill_n(is_first, length, false);
    StepPlace place{};
    if (!core.locate(index, place)) {
        return;
    }
    is_first[0] = core.episode_starts().is_start(place.stream, place.position);
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

// The step at or before `index` that is a multiple of `stride` steps away from its episode's beginning, or else the
// nearest to it from which all up to `index` may be read; where only the former will do (`exact`), kNoStep. Where the
// beginning is not known, the stream's counts.
template <typename Core>
std::int64_t aligned_start(const Core& core, std::int64_t index, std::int64_t stride, bool exact) {
    StepPlace place{};
    if (!core.locate(index, place)) {
        return kNoStep;
    }
    const std::int64_t start = std::max<std::int64_t>(core.episode_starts().start_of(place.stream, place.position), 0);
    for (std::int64_t num_back = (place.position - start) % stride; num_back > 0; --num_back) {
        if (!core.move(place, place.position - 1)) {
            return exact ? kNoStep : place.index;
        }
    }
    return place.index;
}

// For each step the rewards from it to the end of its episode, each `discount` times less than the one before it; of an
// episode that goes on, those it has. NaN where a step in between may not be read.
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
        return a.stream != b.stream ? a.stream < b.stream : a.position < b.position;
    });
    std::vector<double> sums;  // from the first asked step of an episode on
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
            if (asked.stream != place.stream || asked.position > place.position) {
                break;
            }
            returns[order[at]] = sums[static_cast<std::size_t>(asked.position - first)];
        }
    }
}

// Says of a run what the starts of episodes and the streams' cursors tell.
template <typename Core>
StepRun run_of(const Core& core, std::size_t stream, std::int64_t position, std::int64_t num_steps) {
    const StreamCursors& cursors = core.cursors();
    const bool is_newest = position + num_steps == cursors.newest_position(stream);
    const bool is_open = is_newest && cursors.is_open(stream);
    const bool has_end = is_newest ? !is_open : core.episode_starts().is_start(stream, position + num_steps + 1);
    const std::int64_t episode = core.episode_starts().start_of(stream, position);
    return StepRun{stream,  position, num_steps, std::max<std::int64_t>(episode, 0), has_end && episode == position,
                   is_open};
}

}  // namespace framestow
