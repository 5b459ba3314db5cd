// Where the episodes of each stream begin that steps are held of: positions of their first frames, ascending.
//
// An episode's first frame is the border behind the one before it: its last frame is the one below, and starts no
// step. So a border is kept for as long as a step on either side of it is held.
//
// Threads: the caller keeps all calls apart. Nothing is checked but where it is said: streams must be known.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace framestow {

constexpr std::int64_t kNoPosition = -1;

// Whether a step is the first of its episode, as far as steps tell. `history`: frames of its observation before its
// newest one. Where a stack has one frame that is none, but one frame that starts no step lies before the first one (an
// episode without a step before it would hide it).
inline bool tells_start(std::int64_t stack, std::int64_t history, std::int64_t position, std::int64_t step_before) {
    if (stack > 1) {
        return history == 0;
    }
    return position == 0 || (step_before != kNoPosition && step_before == position - 2);
}

class EpisodeStarts {
public:
    explicit EpisodeStarts(std::size_t num_streams) : starts_of_(num_streams) {}

    std::size_t size(std::size_t stream) const { return starts_of_[stream].size(); }
    const std::int64_t* begin(std::size_t stream) const { return starts_of_[stream].begin(); }
    const std::int64_t* end(std::size_t stream) const { return starts_of_[stream].end(); }

    std::size_t nbytes() const {
        std::size_t nbytes = starts_of_.capacity() * sizeof(Starts);
        for (const Starts& starts : starts_of_) {
            nbytes += starts.positions.capacity() * sizeof(std::int64_t);
        }
        return nbytes;
    }

    // An episode begins behind all others of its stream.
    void push(std::size_t stream, std::int64_t position) { starts_of_[stream].positions.push_back(position); }

    // The steps of a stream that start below `position` have left.
    void drop_before(std::size_t stream, std::int64_t position) {
        Starts& starts = starts_of_[stream];
        const std::size_t num_gone = starts.num_gone;
        while (starts.size() > 1 && starts.begin()[1] <= position + 1) {  // the frame below it starts no step
            ++starts.num_gone;
        }
        if (starts.num_gone != num_gone) {
            starts.close_ranks();
        }
    }

    // The steps of a stream that start at `first` up to, not including, `before` have left. `has_steps(from, until)`
    // tells whether one is held that starts at `from` up to, not including, `until`.
    template <typename HasSteps>
    void drop_within(std::size_t stream, std::int64_t first, std::int64_t before, HasSteps has_steps);

    // Where the episode began that the frame at `position` belongs to; kNoPosition where that is not known.
    std::int64_t start_of(std::size_t stream, std::int64_t position) const {
        const std::int64_t* behind = std::upper_bound(begin(stream), end(stream), position);
        return behind == begin(stream) ? kNoPosition : *(behind - 1);
    }

    // The first start behind `position`; kNoPosition where there is none.
    std::int64_t start_behind(std::size_t stream, std::int64_t position) const {
        const std::int64_t* behind = std::upper_bound(begin(stream), end(stream), position);
        return behind == end(stream) ? kNoPosition : *behind;
    }

    bool is_start(std::size_t stream, std::int64_t position) const {
        return std::binary_search(begin(stream), end(stream), position);
    }

    // Instead of all that is known of a stream, whose newest episode begins at `newest_start` if it has a frame at all.
    void restore(std::size_t stream, std::vector<std::int64_t> starts, std::int64_t newest, std::int64_t newest_start) {
        if (newest >= 0) {
            starts.push_back(newest_start);
        }
        std::sort(starts.begin(), starts.end());  // whoever wrote them
        starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
        starts_of_[stream] = Starts{std::move(starts), 0};
    }

private:
    struct Starts {
        std::vector<std::int64_t> positions;
        std::size_t num_gone = 0;  // at the front

        std::size_t size() const { return positions.size() - num_gone; }
        const std::int64_t* begin() const { return positions.data() + num_gone; }
        const std::int64_t* end() const { return positions.data() + positions.size(); }

        void close_ranks() {
            if (num_gone > 64 && num_gone > positions.size() / 4) {
                positions.erase(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(num_gone));
                num_gone = 0;
            }
        }
    };

    std::vector<Starts> starts_of_;  // a stream
};

template <typename HasSteps>
void EpisodeStarts::drop_within(std::size_t stream, std::int64_t first, std::int64_t before, HasSteps has_steps) {
    Starts& starts = starts_of_[stream];
    const std::size_t count = starts.size();
    const std::int64_t* const begin = starts.begin();
    const auto has_any = [&](std::size_t episode) {  // the newest one's last frame may be anywhere
        return episode + 1 == count || has_steps(begin[episode], begin[episode + 1] - 1);
    };
    // The borders of all episodes that have a frame in between.
    const auto behind_first = static_cast<std::size_t>(std::upper_bound(begin, begin + count, first) - begin);
    const std::size_t lowest = behind_first == 0 ? 0 : behind_first - 1;
    const auto behind = static_cast<std::size_t>(std::lower_bound(begin, begin + count, before) - begin);
    const std::size_t highest = std::min(behind + 1, count);
    std::size_t kept = starts.num_gone + lowest;
    bool had_any = lowest > 0 && has_any(lowest - 1);
    for (std::size_t episode = lowest; episode < highest; ++episode) {
        const std::int64_t start = begin[episode];
        const bool has = has_any(episode);
        if (had_any || has) {
            starts.positions[kept++] = start;
        }
        had_any = has;
    }
    const auto from = starts.positions.begin() + static_cast<std::ptrdiff_t>(kept);
    starts.positions.erase(from, starts.positions.begin() + static_cast<std::ptrdiff_t>(starts.num_gone + highest));
}

}  // namespace framestow
