// What a step stores, decided before anything changes: the environments, the fields in stored form, the new frames, and
// how each row continues or begins a stretch of frames.
//
//    a row's           is                                          is stored as
//    observation       the environment's current one, and its      nothing: the stretch goes on
//                      episode is open
//                      any other one                               an episode begins, padded if it has that form, or
//                                                                  else with lead-ins: its older frames
//    next observation  the observation, shifted by one frame       one frame
//                      any other one                               a border: a stretch begins with it, padded likewise
//
// A plan lives until the next one, or until it is applied. The caller serialises all calls.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "../frame_stacks.hpp"
#include "../step_index.hpp"
#include "../unstacking.hpp"
#include "step_arguments.hpp"

namespace framestow {

class Planner {
public:
    Planner(const Planner&) = delete;
    Planner& operator=(const Planner&) = delete;

    // They return none for an argument that breaks a rule or has a form that only Python converts (`refusal` says why);
    // otherwise whether a row of the plan is unusual: it begins an episode by itself, or is a border.
    //
    // Of two faults the first is named: of environments, of open episodes, of the observations of `add`, of actions,
    // rewards, flags, extras, and of the frames of `append`.
    //
    // A tuple of arrays is one for each array of an observation; env_ids of none: all. A frame, or a whole observation,
    // of each environment. `are_whole`: whole ones also where begin and append take single frames.
    std::optional<bool> plan_begin(nb::handle frames, nb::handle env_ids, bool are_whole);
    // One step of each, with its next frame or its next observation: of an open episode.
    std::optional<bool> plan_append(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated,
                                    nb::handle truncated, nb::handle frames, nb::handle extras, bool are_whole);
    // One step of each, with both observations. The arguments of one environment may lack the axis of environments.
    std::optional<bool> plan_add(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated,
                                 nb::handle truncated, nb::handle next_observations, nb::handle extras,
                                 nb::handle observations);

    bool has_begun() const;  // whether an environment has had a frame

    // The stacks of all environments, oldest frame first: a new array (num_envs, depth, *frame) of each array.
    nb::typed<nb::tuple, nb::any, nb::ellipsis> stacks() const;
    std::size_t nbytes() const;  // of the stacks
    const EnvCursors& cursors() const { return cursors_; }
    const Refusal& refusal() const { return arguments_.refusal(); }

protected:
    // Some rows of the plan, of one array: the episodes that begin, or the steps.
    struct Frames {
        const std::uint8_t* frames = nullptr;  // of each row; borrowed, or `copied`
        std::vector<std::uint8_t> copied;
        std::vector<StretchStart> starts;  // of each row; empty: all go on
        std::vector<std::uint8_t> lead_ins;

        const StretchStart* stretch_starts() const { return starts.empty() ? nullptr : starts.data(); }
    };

    struct Array {
        // `given`: (observations_like, frames_like, stored_like, depth, piece_bytes) of an ObservationLayout.
        Array(nb::handle given, std::size_t num_envs, StackPadding padding);

        RowPattern observation, frame;  // what the arguments look like
        RowPattern stored;              // a frame
        StackedLayout layout;
        FrameStacks stacks;
        BorrowedArray now, next;  // of the plan
        Frames first, following;

        const std::uint8_t* row(BorrowedArray Array::* rows, std::size_t row) const {
            return (this->*rows).values<const std::uint8_t>() + row * layout.depth * layout.frame_bytes;
        }
    };

    struct Own {
        Own(std::size_t num_envs, nb::handle settings)
            : arguments(settings), cursors(num_envs, arguments.rules().stack) {}
        StepArguments arguments;
        EnvCursors cursors;
    };

    // `layout`: an ObservationLayout. The others outlive this, or are its own.
    Planner(std::unique_ptr<Own> own, nb::handle layout, const char* padding)
        : Planner(own->arguments, own->cursors, layout, padding) {
        own_ = std::move(own);
    }
    Planner(StepArguments& arguments, EnvCursors& cursors, nb::handle layout, const char* padding);

    PlannedSteps planned_steps() const { return arguments_.steps(env_ids_.data(), 0, env_ids_.size()); }
    void advance_stacks(Frames Array::* frames, const std::vector<std::int32_t>& env_ids);
    void clear_plan();

    std::unique_ptr<Own> own_;
    StepArguments& arguments_;
    EnvCursors& cursors_;
    bool takes_frames_;  // whether begin and append take single frames
    std::deque<Array> arrays_;

    bool has_steps_ = false;                   // or else only episodes begin
    bool has_observations_ = false;            // whether `now` has those of the steps
    std::vector<std::int32_t> env_ids_;        // of the steps
    std::vector<std::uint8_t> bits_;           // of each of them: kContinues and kShifted
    std::vector<std::int32_t> first_env_ids_;  // of the episodes that begin
    std::size_t num_whole_ = 0;                // observations that need their older frames

    static constexpr std::uint8_t kContinues = 1, kShifted = 2;

private:
    std::nullopt_t no_plan();
    bool read_envs(nb::handle env_ids, bool must_be_open);
    bool borrow(BorrowedArray Array::* rows, nb::handle given, RowPattern Array::* pattern, const char* name,
                bool is_one = false);
    void refuse_other_axes(nb::handle observations, nb::handle next_observations);
    bool compare();
    void compare_array(Array& array);
    StretchPadding padding_of(BorrowedArray Array::* rows, std::size_t row) const;
    void plan_starts(Frames Array::* frames, BorrowedArray Array::* rows, const std::vector<std::size_t>& chosen,
                     const std::vector<StretchPadding>& paddings);
};

// The planner of a writer, which has no memory.
class WriterPlanner : public Planner {
public:
    WriterPlanner(std::size_t num_envs, nb::handle settings, nb::handle layout, const char* padding)
        : Planner(std::make_unique<Own>(num_envs, settings), layout, padding) {}

    // What the plan stores, as new arrays: (env_ids, bits, frames, paddings, lead_ins) of the episodes that begin and
    // of the steps, and (actions, rewards, extras) of the steps. `bits`: as frames of a segment have them. Frames and
    // lead-ins are tuples with an array for each array; lead-ins are None if no row has any.
    TupleOf<nb::any, nb::any, nb::any> planned() const;

    // Advance the stacks and the cursors by the plan: first by the episodes that begin, then by the steps.
    void apply_episodes();
    void apply_steps();

private:
    nb::tuple frames_of(Frames Array::* frames, const std::vector<std::int32_t>& env_ids,
                        const std::vector<std::uint8_t>& bits) const;
};

}  // namespace framestow
