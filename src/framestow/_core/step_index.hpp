// Data structures that index the steps of a step store.
//
//   PrefixCounts          counts per place, and the place of the n-th counted element
//   PendingSteps          steps whose n-step return is incomplete
//   UnsampleableIndices   indices that a draw must skip
//   EpisodeStarts         where the episodes of each environment begin
//   EnvCursors            position and open episode of each environment
//
// Threads: the caller serialises all calls. Arguments are not checked unless stated; environments must be in range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "step_record.hpp"

namespace framestow {

// Counts for a row of places, and the place of the n-th counted element. A binary indexed tree (Fenwick 1994): an
// update and a search take log2(places) steps.
class PrefixCounts {
public:
    struct Found {
        std::size_t place;
        std::uint64_t rank;  // among the elements of that place
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
        std::uint64_t sum = count;  // over the lowest_bit(node) places that end here
        for (std::size_t step = 1; step < lowest_bit(node); step *= 2) {
            sum += sums_[node - step - 1];
        }
        sums_.push_back(sum);
        total_ += count;
    }

    void add(std::size_t place, std::uint64_t count) {  // 0 - count subtracts
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
            const std::uint64_t sum = sums_[node + step - 1];  // branchless: the comparison is unpredictable
            const std::uint64_t is_after = sum <= rank ? 1 : 0;
            node += step * static_cast<std::size_t>(is_after);
            rank -= sum & (0 - is_after);
        }
        return Found{node, rank};
    }

private:
    static std::size_t lowest_bit(std::size_t node) { return node & (~node + 1); }

    std::vector<std::uint64_t> sums_;  // entry n - 1: sum over the lowest_bit(n) places before place n
    std::uint64_t total_ = 0;
};

// Steps whose n-step return is incomplete: at most n - 1 per environment, its newest ones.
//
// The return of the step at position p is complete when the step at p + n - 1 arrives. Both have the same remainder
// modulo n - 1, so the new step replaces the completed one in its place without a search.
class PendingSteps {
public:
    static constexpr std::int64_t kNone = -1;

    PendingSteps(std::size_t num_envs, std::int64_t n_step)
        : num_places_(n_step - 1), waiting_(num_envs * static_cast<std::size_t>(num_places_), kNone) {}

    bool is_unused() const { return num_places_ == 0; }  // n_step is 1: every return is complete at once

    // Marks the step at `position` of an environment as pending (or as not pending, with an index of kNone). Returns
    // the index of the step whose return is now complete, or kNone.
    std::int64_t exchange(std::size_t env_id, std::int64_t position, std::int64_t index) {
        std::int64_t& place = place_of(env_id, position);
        const std::int64_t waited = place;
        place = index;
        return waited;
    }

    // The slot of a lost step may give a negative position. No step there is pending.
    bool contains(std::size_t env_id, std::int64_t position, std::int64_t index) const {
        return !is_unused() && position >= 0 && waiting_[offset_of(env_id, position)] == index;
    }

    // Removes a step; does nothing if it is not pending.
    void remove(std::size_t env_id, std::int64_t position, std::int64_t index) {
        if (contains(env_id, position, index)) {
            place_of(env_id, position) = kNone;
        }
    }

    // Removes all pending steps of an environment and passes each to `use`.
    template <typename Use>
    void take(std::size_t env_id, Use use) {
        const std::size_t first = env_id * static_cast<std::size_t>(num_places_);
        for (std::size_t at = first; at < first + static_cast<std::size_t>(num_places_); ++at) {
            if (waiting_[at] != kNone) {
                use(waiting_[at]);
                waiting_[at] = kNone;
            }
        }
    }

    void clear() { std::fill(waiting_.begin(), waiting_.end(), kNone); }

    std::vector<std::int64_t> indices() const {  // ascending
        std::vector<std::int64_t> ascending;
        std::copy_if(waiting_.begin(), waiting_.end(), std::back_inserter(ascending),
                     [](std::int64_t index) { return index != kNone; });
        std::sort(ascending.begin(), ascending.end());
        return ascending;
    }

private:
    std::size_t offset_of(std::size_t env_id, std::int64_t position) const {
        return env_id * static_cast<std::size_t>(num_places_) + static_cast<std::size_t>(position % num_places_);
    }
    std::int64_t& place_of(std::size_t env_id, std::int64_t position) { return waiting_[offset_of(env_id, position)]; }

    std::int64_t num_places_;            // per environment
    std::vector<std::int64_t> waiting_;  // per environment and place: the index of a pending step, or kNone
};

// Ascending indices of stored steps that a draw must skip, with the n-th of the others.
//
// Usually empty, or only the newest few steps, which are pending. Then one comparison finds a rank, and removals happen
// at the front. Otherwise a rank takes log2(size) comparisons.
class UnsampleableIndices {
public:
    std::size_t size() const { return indices_.size() - num_removed_; }
    std::size_t nbytes() const { return indices_.capacity() * sizeof(std::int64_t); }
    const std::int64_t* begin() const { return indices_.data() + num_removed_; }
    const std::int64_t* end() const { return indices_.data() + indices_.size(); }

    bool contains(std::int64_t index) const { return size() != 0 && index >= *begin() && is_among(index); }

    // Adds an index above all others.
    void push(std::int64_t index) { indices_.push_back(index); }

    // Adds ascending indices; indices that are already present are allowed.
    void add(const std::vector<std::int64_t>& ascending);

    // Removes ascending indices, all of which are present.
    void remove(const std::vector<std::int64_t>& ascending);

    // Removes all indices below `oldest`.
    void remove_before(std::int64_t oldest);

    // Returns the sampleable index of that rank, counted from `oldest`. No index below `oldest` is present.
    std::int64_t sampleable(std::int64_t oldest, std::int64_t rank) const {
        return size() == 0 || oldest + rank < *begin() ? oldest + rank : sampleable_among(oldest, rank);
    }

private:
    bool is_among(std::int64_t index) const;
    std::int64_t sampleable_among(std::int64_t oldest, std::int64_t rank) const;
    void compact();

    std::vector<std::int64_t> indices_;  // ascending
    std::size_t num_removed_ = 0;        // at the front, already removed
};

constexpr std::int64_t kNoPosition = -1;

// Positions of the first frames of each environment's episodes, ascending, as long as steps of the episode are stored.
//
// The frame before an episode's first frame is the last of the previous episode and starts no step. A start is kept
// while a step on either side of it is stored.
class EpisodeStarts {
public:
    explicit EpisodeStarts(std::size_t num_envs) : starts_of_(num_envs) {}

    std::size_t size(std::size_t env_id) const { return starts_of_[env_id].size(); }
    const std::int64_t* begin(std::size_t env_id) const { return starts_of_[env_id].begin(); }
    const std::int64_t* end(std::size_t env_id) const { return starts_of_[env_id].end(); }

    std::size_t nbytes() const {
        std::size_t nbytes = starts_of_.capacity() * sizeof(Starts);
        for (const Starts& starts : starts_of_) {
            nbytes += starts.positions.capacity() * sizeof(std::int64_t);
        }
        return nbytes;
    }

    // Adds an episode after all others of its environment.
    void push(std::size_t env_id, std::int64_t position) { starts_of_[env_id].positions.push_back(position); }

    // Removes the starts that only steps below `position` needed.
    void remove_before(std::size_t env_id, std::int64_t position) {
        Starts& starts = starts_of_[env_id];
        const std::size_t num_removed = starts.num_removed;
        while (starts.size() > 1 && starts.begin()[1] <= position + 1) {  // the frame before a start starts no step
            ++starts.num_removed;
        }
        if (starts.num_removed != num_removed) {
            starts.compact();
        }
    }

    // Removes the starts that only steps from `first` up to, excluding, `before` needed. `has_steps(from, until)`
    // returns whether a stored step starts in from <= position < until.
    template <typename HasSteps>
    void remove_within(std::size_t env_id, std::int64_t first, std::int64_t before, HasSteps has_steps);

    // Returns where the episode of the frame at `position` begins; kNoPosition if unknown.
    std::int64_t start_of(std::size_t env_id, std::int64_t position) const {
        const std::int64_t* behind = std::upper_bound(begin(env_id), end(env_id), position);
        return behind == begin(env_id) ? kNoPosition : *(behind - 1);
    }

    // Returns the first start after `position`; kNoPosition if there is none.
    std::int64_t start_behind(std::size_t env_id, std::int64_t position) const {
        const std::int64_t* behind = std::upper_bound(begin(env_id), end(env_id), position);
        return behind == end(env_id) ? kNoPosition : *behind;
    }

    bool is_start(std::size_t env_id, std::int64_t position) const {
        return std::binary_search(begin(env_id), end(env_id), position);
    }

    // Replaces the starts of an environment. If the environment has a frame, its newest episode begins at
    // `newest_start`.
    void restore(std::size_t env_id, std::vector<std::int64_t> starts, std::int64_t newest, std::int64_t newest_start) {
        if (newest >= 0) {
            starts.push_back(newest_start);
        }
        std::sort(starts.begin(), starts.end());  // a file may have them in any order
        starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
        starts_of_[env_id] = Starts{std::move(starts), 0};
    }

private:
    struct Starts {
        std::vector<std::int64_t> positions;
        std::size_t num_removed = 0;  // at the front

        std::size_t size() const { return positions.size() - num_removed; }
        const std::int64_t* begin() const { return positions.data() + num_removed; }
        const std::int64_t* end() const { return positions.data() + positions.size(); }

        void compact() {
            if (num_removed > 64 && num_removed > positions.size() / 4) {
                positions.erase(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(num_removed));
                num_removed = 0;
            }
        }
    };

    std::vector<Starts> starts_of_;  // per environment
};

template <typename HasSteps>
void EpisodeStarts::remove_within(std::size_t env_id, std::int64_t first, std::int64_t before, HasSteps has_steps) {
    Starts& starts = starts_of_[env_id];
    const std::size_t count = starts.size();
    const std::int64_t* const begin = starts.begin();
    const auto has_any = [&](std::size_t episode) {  // the newest episode has no known end
        return episode + 1 == count || has_steps(begin[episode], begin[episode + 1] - 1);
    };
    // The starts of all episodes with a frame in the range.
    const auto behind_first = static_cast<std::size_t>(std::upper_bound(begin, begin + count, first) - begin);
    const std::size_t lowest = behind_first == 0 ? 0 : behind_first - 1;
    const auto behind = static_cast<std::size_t>(std::lower_bound(begin, begin + count, before) - begin);
    const std::size_t highest = std::min(behind + 1, count);
    std::size_t kept = starts.num_removed + lowest;
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
    starts.positions.erase(from, starts.positions.begin() + static_cast<std::ptrdiff_t>(starts.num_removed + highest));
}

struct StepStart {
    std::int64_t position;  // of the frame that the step starts at
    std::int64_t history;   // earlier frames of the observation, without padding
    std::uint8_t flags;     // kBeginsEpisode or none
    bool is_readable;       // none of its frames is lost
};

// The write position of each environment: its newest frame, the starts of its newest episode and of its newest stretch,
// and whether that episode is open.
//
// A stretch is a sequence of frames in which every observation is the last `stack` ones. It begins where an episode
// does, or with the next observation of a step that has kBorder.
class EnvCursors {
public:
    struct Envs {  // one entry per environment in each array
        explicit Envs(std::size_t num_envs)
            : newest_positions(num_envs, -1),
              episode_starts(num_envs),
              stretch_starts(num_envs),
              unreadable_before(num_envs),
              is_open(num_envs) {}

        std::vector<std::int64_t> newest_positions;   // of its newest frame; -1 before the first
        std::vector<std::int64_t> episode_starts;     // of the first frame of its newest episode
        std::vector<std::int64_t> stretch_starts;     // of the first frame of its newest stretch, in that episode
        std::vector<std::int64_t> unreadable_before;  // frames below may be lost: later steps that use them are
                                                      // unsampleable
        std::vector<std::uint8_t> is_open;            // 1 if that episode is open
    };

    EnvCursors(std::size_t num_envs, std::int64_t stack) : envs_(num_envs), stack_(stack), last_check_of_(num_envs) {}

    const Envs& envs() const { return envs_; }
    Envs& envs() { return envs_; }  // to restore them; the arrays keep their sizes
    std::size_t num_envs() const { return envs_.is_open.size(); }
    std::int64_t newest_position(std::size_t env_id) const { return envs_.newest_positions[env_id]; }
    std::int64_t episode_start(std::size_t env_id) const { return envs_.episode_starts[env_id]; }
    bool is_open(std::size_t env_id) const { return envs_.is_open[env_id] != 0; }

    // Starts an episode on an environment; an open episode ends there.
    void begin(std::size_t env_id) {
        envs_.episode_starts[env_id] = envs_.stretch_starts[env_id] = ++envs_.newest_positions[env_id];
        envs_.is_open[env_id] = 1;
    }

    // Ends an open episode as truncated.
    void close(std::size_t env_id) { envs_.is_open[env_id] = 0; }

    // Returns whether all environments exist and are distinct, and have an open episode.
    bool are_known(const std::int32_t* env_ids, std::size_t count);
    bool may_append(const std::int32_t* env_ids, std::size_t count);

    // Advances to the frame that a step with these flags led to.
    StepStart advance(std::size_t env_id, std::uint8_t flags) {
        const std::int64_t position = envs_.newest_positions[env_id]++;
        const std::int64_t age = position - envs_.stretch_starts[env_id];
        const std::int64_t history = age < stack_ - 1 ? age : stack_ - 1;
        if ((flags & kBorder) != 0) {
            envs_.stretch_starts[env_id] = position + 1;
        }
        envs_.is_open[env_id] = ends_episode(flags) ? 0 : 1;
        return StepStart{position, history, position == envs_.episode_starts[env_id] ? kBeginsEpisode : kNoFlags,
                         position - history >= envs_.unreadable_before[env_id]};
    }

    // Marks the stored frames of an environment below `before` as possibly lost.
    void lose(std::size_t env_id, std::int64_t before) {
        std::int64_t& bound = envs_.unreadable_before[env_id];
        bound = before > bound ? before : bound;
    }

private:
    Envs envs_;
    std::int64_t stack_;
    std::vector<std::uint64_t> last_check_of_;  // per environment: number of the last check that named it
    std::uint64_t num_checks_ = 0;              // checks, so that nothing has to be cleared between two
};

}  // namespace framestow
