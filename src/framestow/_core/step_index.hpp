#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "step_record.hpp"

// Counts in a row of places, and by rank in which place the n-th counted thing lies: a binary indexed tree
// (Fenwick 1994), so that a change and a search take log2(places) steps.
namespace framestow {

class PrefixCounts {
public:
    struct Found {
        std::size_t place;
        std::uint64_t rank;  // among those of that place
    };

    std::size_t num_places() const { return sums_.size(); }
    std::uint64_t total() const { return total_; }
    std::size_t nbytes() const { return sums_.capacity() * sizeof(std::uint64_t); }

    void clear() {
        sums_.clear();
        total_ = 0;
    }

    void push_back(std::uint64_t count) {
        const std::size_t node = sums_.size() + 1;
        std::uint64_t sum = count;  // of the lowest_bit(node) places up to this one
        for (std::size_t step = 1; step < lowest_bit(node); step *= 2) {
            sum += sums_[node - step - 1];
        }
        sums_.push_back(sum);
        total_ += count;
    }

    void add(std::size_t place, std::uint64_t count) {  // 0 - count takes away
        total_ += count;
        for (std::size_t node = place + 1; node <= sums_.size(); node += lowest_bit(node)) {
            sums_[node - 1] += count;
        }
    }

    Found find(std::uint64_t rank) const {  // below total()
        std::size_t node = 0, step = 1;
        while (2 * step <= sums_.size()) {
            step *= 2;
        }
        for (; step != 0; step /= 2) {
            if (node + step > sums_.size()) {
                continue;
            }
            const std::uint64_t sum = sums_[node + step - 1];  // no branch on it: which way is anybody's guess
            const std::uint64_t is_after = sum <= rank ? 1 : 0;
            node += step * static_cast<std::size_t>(is_after);
            rank -= sum & (0 - is_after);
        }
        return Found{node, rank};
    }

private:
    static std::size_t lowest_bit(std::size_t node) { return node & (~node + 1); }

    std::vector<std::uint64_t> sums_;  // entry n - 1: the counts of the lowest_bit(n) places before place n
    std::uint64_t total_ = 0;
};


// The steps that wait for those that their n-step returns still lack: at most n - 1 of each stream, its newest.
//
// A step that starts at position p has n steps as soon as the step at p + n - 1 comes, which then takes its place here,
// since both have the same remainder modulo n - 1. Nothing is searched.
//
// Threads: the caller keeps all calls apart.

class PendingSteps {
public:
    static constexpr std::int64_t kNone = -1;

    PendingSteps(std::size_t num_streams, std::int64_t n_step)
        : num_places_(n_step - 1), waiting_(num_streams * static_cast<std::size_t>(num_places_), kNone) {}

    bool is_unused() const { return num_places_ == 0; }  // a return of one step waits for none

    // A stream's next step, which starts at `position`, waits from now on; kNone instead of its index lets it not.
    // Returns the one that has all its steps now, or kNone.
    std::int64_t exchange(std::size_t stream, std::int64_t position, std::int64_t index) {
        std::int64_t& place = place_of(stream, position);
        const std::int64_t waited = place;
        place = index;
        return waited;
    }

    // The slot of a lost step may give a position below 0: it is far back, where none waits.
    bool contains(std::size_t stream, std::int64_t position, std::int64_t index) const {
        return !is_unused() && position >= 0 && waiting_[offset_of(stream, position)] == index;
    }

    // Lets a step wait no more; nothing happens to one that does not.
    void remove(std::size_t stream, std::int64_t position, std::int64_t index) {
        if (contains(stream, position, index)) {
            place_of(stream, position) = kNone;
        }
    }

    // Empties the places of a stream; calls `use` with what waited there.
    template <typename Use>
    void take(std::size_t stream, Use use) {
        const std::size_t first = stream * static_cast<std::size_t>(num_places_);
        for (std::size_t at = first; at < first + static_cast<std::size_t>(num_places_); ++at) {
            if (waiting_[at] != kNone) {
                use(waiting_[at]);
                waiting_[at] = kNone;
            }
        }
    }

    void clear() { std::fill(waiting_.begin(), waiting_.end(), kNone); }

    std::vector<std::int64_t> indices() const {  // of all that wait, ascending
        std::vector<std::int64_t> ascending;
        std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(ascending),
                     [](std::int64_t index) { return index != kNone; });
        std::sort(ascending.begin(), ascending.end());
        return ascending;
    }

private:
    std::size_t offset_of(std::size_t stream, std::int64_t position) const {
        return stream * static_cast<std::size_t>(num_places_) + static_cast<std::size_t>(position % num_places_);
    }
    std::int64_t& place_of(std::size_t stream, std::int64_t position) { return waiting_[offset_of(stream, position)]; }

    std::int64_t num_places_;  // a stream
    std::vector<std::int64_t> waiting_;
};


// Indices within a span that may not be drawn, ascending: which others are left, by rank, without a search by trial.
//
// Usually there are none, or only the newest few, which wait for the steps that their returns still lack: then a rank is
// found by one comparison, and the oldest of those few are taken out at the front. Otherwise a rank takes log2(hidden)
// comparisons, and taking some out moves those behind them.
//
// Threads: the caller keeps all calls apart.

class UnsampleableIndices {
public:
    std::size_t size() const { return indices_.size() - num_dropped_; }
    const std::int64_t* begin() const { return indices_.data() + num_dropped_; }
    const std::int64_t* end() const { return indices_.data() + indices_.size(); }

    bool contains(std::int64_t index) const { return size() != 0 && index >= *begin() && is_among(index); }

    // Adds an index above all others.
    void push(std::int64_t index) { indices_.push_back(index); }

    // Adds ascending indices, some of which may be here.
    void add(const std::vector<std::int64_t>& ascending);

    // Takes out ascending indices, all of which are here.
    void remove(const std::vector<std::int64_t>& ascending);

    // Forgets those below `oldest`.
    void drop_before(std::int64_t oldest);

    // The index that has `rank` others that are not hidden between it and `oldest`, below which none is.
    std::int64_t sampleable(std::int64_t oldest, std::int64_t rank) const {
        return size() == 0 || oldest + rank < *begin() ? oldest + rank : sampleable_among(oldest, rank);
    }

private:
    bool is_among(std::int64_t index) const;
    std::int64_t sampleable_among(std::int64_t oldest, std::int64_t rank) const;
    void compact();

    std::vector<std::int64_t> indices_;
    std::size_t num_dropped_ = 0;  // at the front, forgotten
};


// Where the episodes of each stream begin that steps are held of: positions of their first frames, ascending.
//
// An episode's first frame is the border behind the one before it: its last frame is the one below, and starts no
// step. So a border is kept for as long as a step on either side of it is held.
//
// Threads: the caller keeps all calls apart. Nothing is checked but where it is said: streams must be known.

constexpr std::int64_t kNoPosition = -1;

// Whether a step is the first of its episode, as far as steps tell. `history`: frames of its observation before its
// newest one. Where a stack has one frame that is none, but one frame that starts no step lies before the first one (an
// episode without a step before it would hide it).
inline bool marks_episode_start(std::int64_t stack, std::int64_t history, std::int64_t position, std::int64_t step_before) {
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
        const std::size_t num_dropped = starts.num_dropped;
        while (starts.size() > 1 && starts.begin()[1] <= position + 1) {  // the frame below it starts no step
            ++starts.num_dropped;
        }
        if (starts.num_dropped != num_dropped) {
            starts.compact();
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
        std::size_t num_dropped = 0;  // at the front

        std::size_t size() const { return positions.size() - num_dropped; }
        const std::int64_t* begin() const { return positions.data() + num_dropped; }
        const std::int64_t* end() const { return positions.data() + positions.size(); }

        void compact() {
            if (num_dropped > 64 && num_dropped > positions.size() / 4) {
                positions.erase(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(num_dropped));
                num_dropped = 0;
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
    std::size_t kept = starts.num_dropped + lowest;
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
    starts.positions.erase(from, starts.positions.begin() + static_cast<std::ptrdiff_t>(starts.num_dropped + highest));
}


// How far each stream has come: its newest frame, where its newest episode began, and whether that goes on.
//
// Ownership: works on memory of the caller, who keeps it in place. Threads: the caller keeps all calls apart.

struct StepStart {
    std::int64_t position;  // of the frame that the step starts at
    std::int64_t history;   // frames of the observation before it, padding not counted
    bool is_readable;       // no frame that it looks at is lost
};

class StreamCursors {
public:
    StreamCursors(const StreamMemory& memory, std::int64_t stack)
        : memory_(memory), stack_(stack), last_check_of_(memory.num_streams, 0) {}

    std::size_t num_streams() const { return memory_.num_streams; }
    std::int64_t newest_position(std::size_t stream) const { return memory_.newest_positions[stream]; }
    std::int64_t episode_start(std::size_t stream) const { return memory_.episode_starts[stream]; }
    bool is_open(std::size_t stream) const { return memory_.is_open[stream]; }

    // Starts an episode on a stream; one that was open ends there.
    void begin(std::size_t stream) {
        memory_.episode_starts[stream] = ++memory_.newest_positions[stream];
        memory_.is_open[stream] = true;
    }

    // Ends an open episode as cut off.
    void close(std::size_t stream) { memory_.is_open[stream] = false; }

    // Whether all streams are known, distinct, and in an open episode.
    bool may_append(const std::int32_t* streams, std::size_t count);

    // Goes on to the frame that a step with these flags led to.
    StepStart advance(std::size_t stream, std::uint8_t flags) {
        const std::int64_t position = memory_.newest_positions[stream]++;
        const std::int64_t age = position - memory_.episode_starts[stream];
        const std::int64_t history = age < stack_ - 1 ? age : stack_ - 1;
        memory_.is_open[stream] = flags == 0;
        return StepStart{position, history, position - history >= memory_.unreadable_before[stream]};
    }

    // The frames of a stream below `before`, which it has, may be lost from some position on.
    void lose(std::size_t stream, std::int64_t before) {
        std::int64_t& bound = memory_.unreadable_before[stream];
        bound = before > bound ? before : bound;
    }

private:
    StreamMemory memory_;
    std::int64_t stack_;
    std::vector<std::uint64_t> last_check_of_;  // a stream: number of the last check that it was named in
    std::uint64_t num_checks_ = 0;
};

}  // namespace framestow
