#include "planner.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace framestow {
Planner::Array::Array(nb::handle given, std::size_t num_envs, StackPadding padding)
    : observation(given[0]),
      frame(given[1]),
      stored(given[2]),
      layout{stored.row_bytes(), nb::cast<std::size_t>(given[3]), nb::cast<std::size_t>(given[4])},
      stacks(num_envs, layout.depth, layout.frame_bytes, padding) {
    if (layout.depth < 1 || layout.piece_bytes < 1 || layout.frame_bytes % layout.piece_bytes != 0 ||
        observation.row_bytes() != layout.depth * layout.frame_bytes || frame.row_bytes() != layout.frame_bytes) {
        refuse("depth and piece_bytes", "do not fit: an observation of " + std::to_string(observation.row_bytes()) +
                                            " bytes must have `depth` frames of " + std::to_string(layout.frame_bytes) +
                                            ", with pieces that divide them");
    }
}

Planner::Planner(StepArguments& arguments, EnvCursors& cursors, nb::handle layout, const char* padding)
    : arguments_(arguments), cursors_(cursors), takes_frames_(nb::cast<bool>(layout.attr("takes_frames"))) {
    for (const nb::handle array : layout.attr("native_arrays")) {
        arrays_.emplace_back(array, cursors.num_envs(), padding_named(padding));
    }
}

std::optional<bool> Planner::plan_begin(nb::handle frames, nb::handle env_ids, bool are_whole) {
    clear_plan();
    arguments_.forget_refusal();
    const bool are_frames = takes_frames_ && !are_whole;
    if (!read_envs(env_ids, false) ||
        !borrow(&Array::now, frames, are_frames ? &Array::frame : &Array::observation, "observation")) {
        return no_plan();
    }
    first_env_ids_.swap(env_ids_);
    env_ids_.clear();
    const std::size_t count = first_env_ids_.size();
    std::vector<std::size_t> rows(count);
    std::vector<StretchPadding> paddings(count, StretchPadding::kUsual);
    for (std::size_t row = 0; row < count; ++row) {
        rows[row] = row;
        paddings[row] = are_frames ? StretchPadding::kUsual : padding_of(&Array::now, row);
    }
    if (are_frames) {
        for (Array& array : arrays_) {
            array.first.frames = array.now.values<const std::uint8_t>();
            array.first.starts.assign(count, StretchStart{StretchPadding::kUsual, nullptr});
        }
    } else {
        plan_starts(&Array::first, &Array::now, rows, paddings);
    }
    return false;
}

std::optional<bool> Planner::plan_append(nb::handle env_ids, nb::handle actions, nb::handle rewards,
                                         nb::handle terminated, nb::handle truncated, nb::handle frames,
                                         nb::handle extras, bool are_whole) {
    clear_plan();
    arguments_.forget_refusal();
    const bool are_frames = takes_frames_ && !are_whole;
    if (!read_envs(env_ids, true) ||
        !arguments_.read(env_ids_.size(), actions, rewards, terminated, truncated, extras) ||
        !borrow(&Array::next, frames, are_frames ? &Array::frame : &Array::observation, "next_observation")) {
        return no_plan();
    }
    has_steps_ = true;
    if (are_frames) {
        for (Array& array : arrays_) {
            array.following.frames = array.next.values<const std::uint8_t>();
        }
        return false;
    }
    return compare();
}

std::optional<bool> Planner::plan_add(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated,
                                      nb::handle truncated, nb::handle next_observations, nb::handle extras,
                                      nb::handle observations) {
    clear_plan();
    arguments_.forget_refusal();
    const Array& first = arrays_.front();
    bool is_one = false;
    {
        BorrowedArray given;
        if (PyTuple_Check(observations.ptr()) && nb::len(observations) != 0 && given.borrow_any(observations[0])) {
            is_one = given.num_axes() == first.observation.shape().size();
        }
    }
    const bool has_envs = read_envs(env_ids, false) &&
                          (!is_one || env_ids_.size() == 1 || arguments_.refuse_as({"ONE_OBSERVATION_FOR_ALL"}));
    const std::size_t count = env_ids_.size();
    if (!has_envs || !borrow(&Array::now, observations, &Array::observation, "observation", is_one) ||
        !borrow(&Array::next, next_observations, &Array::observation, "next_observation", is_one)) {
        refuse_other_axes(observations, next_observations);
        return no_plan();
    }
    if (!arguments_.read(count, actions, rewards, terminated, truncated, extras, count == 1)) {
        return no_plan();
    }
    has_steps_ = has_observations_ = true;
    return compare();
}

bool Planner::has_begun() const {
    const std::vector<std::int64_t>& newest = cursors_.envs().newest_positions;
    return std::any_of(newest.begin(), newest.end(), [](std::int64_t position) { return position >= 0; });
}

nb::typed<nb::tuple, nb::any, nb::ellipsis> Planner::stacks() const {
    nb::list stacks;
    for (const Array& array : arrays_) {
        void* bytes = nullptr;
        stacks.append(array.stored.new_rows(nb::make_tuple(array.stacks.num_envs(), array.layout.depth), bytes));
        array.stacks.write(static_cast<std::uint8_t*>(bytes));
    }
    return nb::tuple(stacks);
}

std::size_t Planner::nbytes() const {
    std::size_t nbytes = 0;
    for (const Array& array : arrays_) {
        nbytes += array.stacks.nbytes();
    }
    return nbytes;
}

TupleOf<nb::any, nb::any, nb::any> WriterPlanner::planned() const {
    const std::vector<std::uint8_t> begins(first_env_ids_.size(), kBeginsEpisode);
    return nb::make_tuple(
        frames_of(&Array::first, first_env_ids_, begins),
        frames_of(&Array::following, env_ids_, has_steps_ ? arguments_.flags() : std::vector<std::uint8_t>{}),
        !has_steps_
            ? nb::tuple()
            : nb::make_tuple(arguments_.actions_array(), arguments_.rewards_array(), arguments_.extras_arrays()));
}

void WriterPlanner::apply_episodes() {
    advance_stacks(&Array::first, first_env_ids_);
    for (const std::int32_t env_id : first_env_ids_) {
        cursors_.begin(static_cast<std::size_t>(env_id));
    }
}

void WriterPlanner::apply_steps() {
    advance_stacks(&Array::following, env_ids_);
    for (std::size_t row = 0; row < env_ids_.size(); ++row) {
        cursors_.advance(static_cast<std::size_t>(env_ids_[row]), arguments_.flags()[row]);
    }
    clear_plan();
}

void Planner::advance_stacks(Frames Array::* frames, const std::vector<std::int32_t>& env_ids) {
    for (Array& array : arrays_) {
        const Frames& of_rows = array.*frames;
        array.stacks.advance(env_ids.data(), of_rows.frames, env_ids.size(), of_rows.stretch_starts());
    }
}

void Planner::clear_plan() {
    env_ids_.clear();
    first_env_ids_.clear();
    has_steps_ = has_observations_ = false;
    num_whole_ = 0;
    for (Array& array : arrays_) {
        array.now.release();
        array.next.release();
        array.first.starts.clear();
        array.following.starts.clear();
    }
}

std::nullopt_t Planner::no_plan() {
    clear_plan();
    return std::nullopt;
}

bool Planner::read_envs(nb::handle env_ids, bool must_be_open) {
    if (env_ids.is_none()) {
        env_ids_.resize(cursors_.num_envs());
        for (std::size_t env_id = 0; env_id < env_ids_.size(); ++env_id) {
            env_ids_[env_id] = static_cast<std::int32_t>(env_id);
        }
    } else if (!arguments_.read_env_ids(env_ids, env_ids_)) {
        return false;
    }
    const std::size_t count = env_ids_.size();
    if (must_be_open ? cursors_.may_append(env_ids_.data(), count) : cursors_.are_known(env_ids_.data(), count)) {
        return true;
    }
    const bool are_stored = std::all_of(env_ids_.begin(), env_ids_.end(), [&](std::int32_t env_id) {
        return env_id >= 0 && static_cast<std::size_t>(env_id) < cursors_.num_envs();
    });
    const bool are_known = cursors_.are_known(env_ids_.data(), count);
    return arguments_.refuse_as({are_known ? "NO_OPEN_EPISODE" : are_stored ? "ENV_IDS_REPEATED" : "ENV_IDS_UNKNOWN"});
}

// `is_one`: the arrays lack the axis of environments.
bool Planner::borrow(BorrowedArray Array::* rows, nb::handle given, RowPattern Array::* pattern, const char* name,
                     bool is_one) {
    if (!PyTuple_Check(given.ptr()) || nb::len(given) != arrays_.size()) {
        return arguments_.refuse_as({"NO_TUPLE", name});
    }
    for (std::size_t number = 0; number < arrays_.size(); ++number) {
        Array& array = arrays_[number];
        BorrowedArray& borrowed = array.*rows;
        const RowPattern& of_rows = array.*pattern;
        PyObject* const item = PyTuple_GetItem(given.ptr(), static_cast<Py_ssize_t>(number));
        const bool is_borrowed = borrowed.borrow_any(item);
        const bool has_shape = is_borrowed && of_rows.fits_but_for_dtype(borrowed, env_ids_.size(), is_one) &&
                               (borrowed.num_axes() == of_rows.shape().size()) == is_one;
        const bool has_dtype = is_borrowed && borrowed.scalar() == of_rows.scalar();
        if (has_shape && has_dtype) {
            continue;
        }
        if (item == Py_None) {
            return arguments_.refuse_as({"NO_OBSERVATION", name, number});
        }
        const bool is_frame = pattern == &Array::frame;
        const char* const of_shape = is_frame ? "FRAMES_SHAPE" : "OBSERVATION_SHAPE";
        const char* const of_dtype = is_frame ? "FRAMES_DTYPE" : "OBSERVATION_DTYPE";
        return arguments_.refuse_as({has_shape ? of_dtype : of_shape, name, number});
    }
    return true;
}

// Refuses observations of which some have the axis of environments and others lack it, before any other fault.
void Planner::refuse_other_axes(nb::handle observations, nb::handle next_observations) {
    const std::pair<const char*, nb::handle> both[] = {{"observation", observations},
                                                       {"next_observation", next_observations}};
    std::size_t num_more = 0;
    for (std::size_t number = 0; number < arrays_.size(); ++number) {
        for (const auto& [name, given] : both) {
            BorrowedArray array;
            if (!PyTuple_Check(given.ptr()) || nb::len(given) != arrays_.size()) {
                return;
            }
            const nb::object item = given[number];
            const std::size_t num_axes = arrays_[number].observation.shape().size();
            const bool is_array = array.borrow_any(item);
            if (number == 0 && given.is(observations)) {
                num_more = is_array ? array.num_axes() - num_axes : 0;
            }
            if (item.is_none() || !is_array || array.num_axes() - num_axes > 1 ||
                array.num_axes() - num_axes != num_more) {
                arguments_.forget_refusal();
                arguments_.refuse_as({item.is_none() ? "NO_OBSERVATION" : "AXES_DIFFER", name, number});
                return;
            }
        }
    }
}

// Compares the observations with the stacks and with each other; returns whether a row is unusual.
bool Planner::compare() {
    const std::size_t count = env_ids_.size();
    bits_.assign(count, kContinues | kShifted);
    for (Array& array : arrays_) {
        compare_array(array);
    }
    std::vector<std::size_t> rows, all_rows;
    std::vector<StretchPadding> paddings, all_paddings;
    if (std::all_of(bits_.begin(), bits_.end(), [](std::uint8_t bits) { return bits == (kContinues | kShifted); })) {
        return false;
    }
    for (std::size_t row = 0; row < count; ++row) {
        if ((bits_[row] & kContinues) == 0) {
            first_env_ids_.push_back(env_ids_[row]);
            rows.push_back(row);
            paddings.push_back(padding_of(&Array::now, row));
        }
        all_rows.push_back(row);
        all_paddings.push_back(StretchPadding::kContinues);
        if ((bits_[row] & kShifted) == 0) {
            all_paddings.back() = padding_of(&Array::next, row);
            arguments_.flags()[row] = static_cast<std::uint8_t>(arguments_.flags()[row] | kBorder);
        }
    }
    plan_starts(&Array::first, &Array::now, rows, paddings);
    plan_starts(&Array::following, &Array::next, all_rows, all_paddings);
    return true;
}

// Clears the bits of the rows that do not fit, and finds the new frames.
void Planner::compare_array(Array& array) {
    const StackedLayout& layout = array.layout;
    array.following.frames = array.next.values<const std::uint8_t>();
    if (layout.depth > 1) {
        array.following.copied.resize(env_ids_.size() * layout.frame_bytes);
        array.following.frames = array.following.copied.data();
    }
    for (std::size_t row = 0; row < env_ids_.size(); ++row) {
        const auto env_id = static_cast<std::size_t>(env_ids_[row]);
        const std::uint8_t* const next = array.row(&Array::next, row);
        const bool is_begun = cursors_.is_open(env_id) && array.stacks.age(env_id) >= 0;
        bool continues = true, is_shifted_by_one = false;
        if (has_observations_) {
            const std::uint8_t* const observation = array.row(&Array::now, row);
            continues = is_begun && shows_newest_frames(array.stacks, env_id, observation, layout, layout.depth);
            is_shifted_by_one = is_shifted(observation, next, layout);
        } else {
            is_shifted_by_one = is_begun && shows_newest_frames(array.stacks, env_id, next, layout, layout.depth - 1);
        }
        const int bits = (continues ? kContinues : 0) | (is_shifted_by_one ? kShifted : 0);
        bits_[row] = static_cast<std::uint8_t>(bits_[row] & bits);
        if (layout.depth > 1) {
            copy_newest_frame(next, layout, array.following.copied.data() + row * layout.frame_bytes);
        }
    }
}

// The padding of a stretch that begins with an observation, which all arrays have.
StretchPadding Planner::padding_of(BorrowedArray Array::* rows, std::size_t row) const {
    const auto are_padded = [&](StackPadding padding) {
        return std::all_of(arrays_.begin(), arrays_.end(),
                           [&](const Array& array) { return is_padded(array.row(rows, row), array.layout, padding); });
    };
    return are_padded(arrays_.front().stacks.padding()) ? StretchPadding::kUsual
           : are_padded(StackPadding::kZeros)           ? StretchPadding::kZeros
                                                        : StretchPadding::kLeadIns;
}

// Plans how each of the chosen rows begins a stretch or goes on; of episodes that begin, also their frames.
void Planner::plan_starts(Frames Array::* frames, BorrowedArray Array::* rows, const std::vector<std::size_t>& chosen,
                          const std::vector<StretchPadding>& paddings) {
    const auto num_whole =
        static_cast<std::size_t>(std::count(paddings.begin(), paddings.end(), StretchPadding::kLeadIns));
    num_whole_ += num_whole;
    for (Array& array : arrays_) {
        Frames& planned = array.*frames;
        const StackedLayout& layout = array.layout;
        const std::size_t lead_in_bytes = (layout.depth - 1) * layout.frame_bytes;
        planned.lead_ins.resize(num_whole * lead_in_bytes);
        planned.starts.assign(chosen.size(), StretchStart{});
        if (frames == &Array::first) {
            planned.copied.resize(chosen.size() * layout.frame_bytes);
            planned.frames = planned.copied.data();
        }
        std::uint8_t* lead_ins = planned.lead_ins.data();
        for (std::size_t at = 0; at < chosen.size(); ++at) {
            const std::uint8_t* const observation = array.row(rows, chosen[at]);
            if (frames == &Array::first) {
                copy_newest_frame(observation, layout, planned.copied.data() + at * layout.frame_bytes);
            }
            planned.starts[at] = StretchStart{paddings[at], nullptr};
            if (paddings[at] == StretchPadding::kLeadIns) {
                copy_older_frames(observation, layout, lead_ins);
                planned.starts[at].lead_ins = lead_ins;
                lead_ins += lead_in_bytes;
            }
        }
    }
}

nb::tuple WriterPlanner::frames_of(Frames Array::* frames, const std::vector<std::int32_t>& env_ids,
                                   const std::vector<std::uint8_t>& bits) const {
    const std::size_t count = env_ids.size();
    std::vector<std::uint8_t> paddings(count);
    nb::list parts, lead_ins;
    bool has_lead_ins = false;
    for (const Array& array : arrays_) {
        const Frames& planned = array.*frames;
        const std::size_t frame_bytes = array.layout.frame_bytes,
                          lead_in_bytes = (array.layout.depth - 1) * frame_bytes;
        void *bytes = nullptr, *older = nullptr;
        parts.append(array.stored.new_rows(count, bytes));
        std::copy_n(planned.frames, count * frame_bytes, static_cast<std::uint8_t*>(bytes));
        lead_ins.append(array.stored.new_rows(nb::make_tuple(count, array.layout.depth - 1), older));
        for (std::size_t row = 0; row < count && !planned.starts.empty(); ++row) {
            paddings[row] = static_cast<std::uint8_t>(planned.starts[row].padding);
            if (planned.starts[row].padding == StretchPadding::kLeadIns) {
                has_lead_ins = true;
                std::copy_n(planned.starts[row].lead_ins, lead_in_bytes,
                            static_cast<std::uint8_t*>(older) + row * lead_in_bytes);
            }
        }
    }
    return nb::make_tuple(to_array(env_ids), to_array(bits), nb::tuple(parts), to_array(paddings),
                          has_lead_ins ? nb::object(nb::tuple(lead_ins)) : nb::none());
}

}  // namespace framestow
