// The steps of a memory: what StepRing and StepBlocks share, and sequences of steps.
//
// Every step has an *index* that is never reused. Each environment numbers its frames by *position*. The step that
// starts at position p leads to the frame at p + 1; an episode's last frame starts no step, so successive positions
// never cross into another episode. A step is
//
//    sampleable   all frames and rewards of its transition are stored
//    pending      its episode is open and has fewer than n_step steps from it on
//    lost         a frame or a step that it needs is damaged or evicted; it still counts as a step
//    readable     sampleable or pending: its own frames are stored. An unreadable step ends a sequence
//
// Threads: the caller serialises all calls. Nothing is checked unless stated: environments must be in range, indices
// stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "priorities.hpp"
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

// A longest span of consecutive readable steps of one episode.
struct StepSpan {
    std::size_t env_id;
    std::int64_t position;  // of its first step
    std::int64_t num_steps;
    std::int64_t episode;  // where its episode begins; 0 if unknown
    bool is_whole;         // all steps of an ended episode
    bool is_open;          // its last step is the environment's newest, and the episode is open
};

// Whether a sequence stops at an episode's end or continues with the environment's next episode.
enum class EpisodeEnds { kStop, kCross };

constexpr std::size_t kListsInCommits = 3;  // of lost steps: a folder has so many commits at a time, at most

class StepStore {
public:
    StepStore(std::size_t num_envs, const StepRules& rules);
    virtual ~StepStore() = default;
    StepStore(const StepStore&) = delete;
    StepStore& operator=(const StepStore&) = delete;

    const StepRules& rules() const { return rules_; }
    const StepRecords& records() const { return records_; }
    const EpisodeStarts& episode_starts() const { return starts_; }
    const EnvCursors& cursors() const { return cursors_; }
    EnvCursors& cursors() { return cursors_; }
    std::size_t num_envs() const { return cursors_.num_envs(); }

    virtual std::size_t nbytes() const = 0;
    // Most bytes that unsampleable steps take beside their records: in RAM, and in the commits of a directory.
    virtual std::size_t charged_bytes() const = 0;
    virtual std::size_t size() const = 0;  // sampleable steps
    bool is_sampleable(std::int64_t index) const { return sampleable_record(index) != nullptr; }
    bool is_pending(std::int64_t index) const;
    bool is_readable(std::int64_t index) const { return is_sampleable(index) || is_pending(index); }
    virtual std::int64_t sampleable_at(std::int64_t rank) const = 0;  // rank 0 is the oldest

    // Returns up to `count` sampleable indices above `after`, ascending.
    virtual std::vector<std::int64_t> sampleable_after(std::int64_t after, std::size_t count) const = 0;
    virtual std::vector<std::int64_t> lost_indices() const = 0;  // ascending
    std::vector<std::int64_t> pending_indices() const { return pending_.indices(); }

    // Returns the record of a stored step, lost or not; null if it is not stored. What is written to it counts at once.
    virtual std::uint8_t* stored_record(std::int64_t index) const = 0;

    // Slots: small numbers of the steps' places, reused after eviction.
    virtual std::int64_t num_slots() const = 0;
    virtual std::int64_t slot_number_of(std::int64_t index) const = 0;
    virtual std::int64_t index_in(std::int64_t slot_number) const = 0;  // kNoStep unless it has a sampleable step

    // Slots that a sampleable step entered or left. Restoring records none.
    ChangedSlots& changed_slots() { return changed_; }

    // Starts an episode on each of the environments; an open episode ends there.
    void begin(const std::int32_t* env_ids, std::size_t count);

    // Ends the open episode of an environment, or every open episode, as truncated.
    void close_episode(std::size_t env_id);
    void close_episodes();

    // Evicts transitions, as the retention says, until `count` more fit. Adds the frames that no step needs any more,
    // whole segments, each once.
    virtual void evict_for(std::size_t count, std::vector<Eviction>& evictions) = 0;

    // Evicts transitions, as the retention says, until a segment of frames is free; none if no segment would be.
    virtual void evict_next(std::vector<Eviction>& evictions) = 0;

    // Appends steps that passed cursors().may_append() and fit the capacity; writes their indices.
    void append(const PlannedSteps& steps, std::int64_t* indices);

    // Writes transitions, with two windows each, until the first one that is not sampleable; returns how many.
    std::size_t resolve(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes steps, with one window each, as if n_step were 1; pending ones too. Returns how many, as `resolve`.
    std::size_t resolve_steps(const std::int64_t* indices, std::size_t count, const ResolvedSteps& out) const;

    // Writes the records of the steps of a transition's return, in their order; returns how many, at most n_step, and 0
    // if it is not sampleable. Lost ones are among them if another step of theirs was lost.
    std::size_t steps_of_return(std::int64_t index, const std::uint8_t** records) const;

    // Marks frames from `first` up to, excluding, `before` of an environment as lost: present and future steps that use
    // them become unsampleable. Returns how many steps were sampleable.
    virtual std::size_t lose(std::size_t env_id, std::int64_t first, std::int64_t before) = 0;

    // Makes ascending stored steps unsampleable. Returns how many were sampleable.
    virtual std::size_t lose_indices(const std::vector<std::int64_t>& ascending) = 0;

    // Makes stored steps, and all whose returns include one, unsampleable. Returns how many were sampleable.
    std::size_t forget(const std::int64_t* indices, std::size_t count);

    // Ends every open episode as truncated, and evicts all steps; adds frames as `evict_for`.
    virtual void clear(std::vector<Eviction>& evictions) = 0;

    // Finds the pending steps after everything was restored and lost steps were named.
    virtual void restore_pending() = 0;

    // Sets the starts of each environment's episodes, after everything else was restored.
    virtual void restore_starts(std::vector<std::vector<std::int64_t>> starts);

    // Returns the starts that the flags of readable steps tell.
    std::vector<std::vector<std::int64_t>> find_starts() const;

    // The longest spans of consecutive readable steps of one episode. Takes O(episodes), or O(steps) with lost steps or
    // in blocks.
    virtual std::vector<StepSpan> readable_spans() = 0;

    // Finds a step; false if it is not readable.
    bool locate(std::int64_t index, StepPlace& place) const;
    virtual bool find(std::size_t env_id, std::int64_t position, StepPlace& place) const = 0;

    // Moves to the environment's step that starts at `position`; false, and the place is unchanged, if no readable step
    // does.
    virtual bool move(StepPlace& place, std::int64_t position) const = 0;
    const std::uint8_t* record(const StepPlace& place) const { return stored_record(place.index); }

    // Writes the indices of up to `length` consecutive steps from `index` on, then kNoStep, and whether each is the
    // first of its episode. Writes only kNoStep if `index` is not readable.
    void follow(std::int64_t index, std::size_t length, EpisodeEnds at_end, std::int64_t* indices,
                bool* is_first) const;

    // Returns the step at or before `index` whose distance to its episode's start is a multiple of `stride`. If steps
    // in between are unreadable: kNoStep if `exact`, otherwise the earliest step from which all steps up to `index` are
    // readable. If the episode's start is unknown, distances count from position 0.
    std::int64_t aligned_start(std::int64_t index, std::int64_t stride, bool exact) const;

    // Writes for each step the discounted sum of rewards to the end of its episode; of an open episode, of the rewards
    // so far. NaN if a step in between is unreadable.
    void returns_to_go(const std::int64_t* indices, std::size_t count, double discount, double* returns) const;

protected:
    struct StepWalk {  // along the steps of an episode
        std::int64_t index;
        std::size_t env_id;
        std::int64_t position;
        const std::uint8_t* record;
        std::size_t stride;  // StepRing: index distance of the last two steps
    };

    // Collects readable steps as spans: of an environment, positions must ascend.
    class GrowingSpans {
    public:
        explicit GrowingSpans(const StepStore& steps) : steps_(steps), growing_(steps.num_envs(), StepSpan{}) {}
        void add(std::size_t env_id, std::int64_t position, std::int64_t num_steps);
        std::vector<StepSpan> finish();

    private:
        void end(StepSpan& span);

        const StepStore& steps_;
        std::vector<StepSpan> growing_;  // per environment; without steps at first
        std::vector<StepSpan> spans_;
    };

    using Visit = std::function<void(std::int64_t index, const std::uint8_t* record)>;

    // Where the steps lie.
    virtual const std::uint8_t* sampleable_record(std::int64_t index) const = 0;  // null unless it is sampleable
    virtual void visit_stored(const Visit& visit) const = 0;  // each stored step, in ascending order of its index

    // Moves to the next step of the episode; false if there is none, since the episode was truncated.
    virtual bool step_on(StepWalk& walk) const = 0;

    // Returns the record for the next step of an environment, whose position is known, and writes its index.
    virtual std::uint8_t* place_next(std::size_t env_id, std::int64_t position, std::int64_t& index) = 0;
    virtual void arrive(std::size_t env_id) = 0;             // its newest frame is another one
    virtual void keep_unsampleable(std::int64_t index) = 0;  // a new step that is pending or uses a lost frame
    virtual void make_sampleable(std::int64_t index) = 0;
    virtual void make_sampleable(std::vector<std::int64_t>& settled) = 0;  // were pending; in any order

    // Calls visit(record) for each step of a transition's return but its first.
    template <typename VisitRecord>
    void walk_return(std::int64_t index, const std::uint8_t* record, const VisitRecord& visit) const;

    // Returns the complete return of a step.
    StepReturn return_of(std::int64_t index, const std::uint8_t* record) const;

    // Returns a span with the fields that follow from episode starts and environment cursors.
    StepSpan step_span(std::size_t env_id, std::int64_t position, std::int64_t num_steps) const;

    StepRules rules_;
    EnvCursors cursors_;  // where each environment appends
    StepRecords records_;
    PendingSteps pending_;                // steps that wait for their n-step return
    ChangedSlots changed_;                // for the sampler
    EpisodeStarts starts_;                // of all episodes with a stored step
    std::uint8_t more_flags_ = kNoFlags;  // of each stored step

private:
    void settle(std::size_t env_id);
    void make_settled_sampleable();
    bool is_last_played(const StepPlace& place) const;
    bool cross_episode_end(StepPlace& place) const;

    std::vector<std::int64_t> settled_;  // were pending, about to become sampleable
};

}  // namespace framestow
