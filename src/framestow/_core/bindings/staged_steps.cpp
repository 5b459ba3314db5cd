#include "staged_steps.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace framestow {
namespace {

constexpr std::int64_t kMaxStack = 256;  // a slot stores its history in one byte
constexpr std::int64_t kMaxSteps = 255;  // rewards per return; ReplayMemory has the same rule

nb::tuple as_tuple(const std::vector<Py_ssize_t>& sides) {
    nb::list list;
    for (const Py_ssize_t side : sides) {
        list.append(side);
    }
    return nb::tuple(list);
}

nb::object rows_of(const nb::object& count, const nb::tuple& row_shape) {
    return row_shape.size() == 0 ? count : nb::make_tuple(count) + row_shape;
}

}  // namespace

void borrow(BorrowedArray& array, nb::handle argument, const char* name, int num_axes, Py_ssize_t item_bytes) {
    if (!array.borrow(argument, true) || array.view().ndim != num_axes || array.view().itemsize != item_bytes) {
        refuse(name, "has the wrong form: it must be writable, with " + std::to_string(num_axes) +
                         " axes and items of " + std::to_string(item_bytes) + " bytes in C order");
    }
}

BorrowedColumn::BorrowedColumn(nb::handle argument, const char* name) {
    if (!array_.borrow(argument) || array_.view().ndim != 1 || array_.view().itemsize != sizeof(std::int64_t) ||
        std::strchr("lq", array_.view().format[0]) == nullptr || array_.view().format[1] != '\0') {
        refuse(name, "has the wrong form: it must be int64 in C order with one axis");
    }
}

nb::object to_array(const std::vector<std::int64_t>& values) {
    std::int64_t* elements = nullptr;
    nb::object array = new_array(nb::int_(values.size()), numpy_dtypes().int64, elements);
    if (!values.empty()) {
        std::memcpy(elements, values.data(), values.size() * sizeof(std::int64_t));
    }
    return array;
}

StagedSteps::StagedSteps(const StepStoreArguments& arguments)
    : action_pattern_(arguments.settings.attr("actions_like")),
      rules_{nb::cast<std::int64_t>(arguments.settings.attr("stack")),
             nb::cast<std::int64_t>(arguments.settings.attr("segment_frames")),
             nb::cast<double>(arguments.settings.attr("discount")), ActionLayout{}} {
    rules_.n_step = nb::cast<std::int64_t>(arguments.settings.attr("n_step"));
    for (const nb::handle array : arguments.settings.attr("frames_like")) {
        frame_patterns_.emplace_back(array);
    }
    const auto borrow_env_arrays = [&](BorrowedArray& array, const char* name, Py_ssize_t item_bytes) {
        borrow(array, arguments.envs.attr(name), name, 1, item_bytes);
    };
    borrow_env_arrays(newest_positions_, "newest_positions", sizeof(std::int64_t));
    borrow_env_arrays(episode_starts_, "episode_starts", sizeof(std::int64_t));
    borrow_env_arrays(run_starts_, "run_starts", sizeof(std::int64_t));
    borrow_env_arrays(unreadable_before_, "unreadable_before", sizeof(std::int64_t));
    borrow_env_arrays(is_open_, "is_open", sizeof(bool));
    const std::size_t num_envs = is_open_.num_rows();
    if (num_envs < 1 || newest_positions_.num_rows() != num_envs || episode_starts_.num_rows() != num_envs ||
        run_starts_.num_rows() != num_envs || unreadable_before_.num_rows() != num_envs) {
        refuse("is_open",
               "has " + std::to_string(num_envs) +
                   " entries: every array of environments must have one entry for each environment, at least one");
    }
    if (rules_.stack < 1 || rules_.stack > kMaxStack || rules_.segment_frames < 1) {
        refuse("stack and segment_frames", "are " + std::to_string(rules_.stack) + " and " +
                                               std::to_string(rules_.segment_frames) +
                                               ": they must be 1 to 256 and at least 1");
    }
    if (rules_.n_step < 1 || rules_.n_step > kMaxSteps) {
        refuse("n_step", "is " + std::to_string(rules_.n_step) + ": it must be 1 to " + std::to_string(kMaxSteps));
    }
    read_action_ranges(arguments.settings.attr("action_ranges"));
    rules_.action = ActionLayout{action_pattern_.row_bytes(), !action_ranges_.empty(),
                                 action_pattern_.format().find_first_of("bhilq") != std::string::npos,
                                 std::max<std::size_t>(action_ranges_.size(), 1)};
    read_column_patterns(arguments.settings.attr("extras_like"));
    for (std::size_t env_id = 0; env_id < num_envs; ++env_id) {
        all_env_ids_.push_back(static_cast<std::int32_t>(env_id));
    }
    action_dtype_ = rules_.action.is_counted ? numpy_dtypes().int64
                                             : nb::object(arguments.settings.attr("actions_like").attr("dtype"));
    action_shape_ = as_tuple(action_pattern_.shape());
}

void StagedSteps::read_action_ranges(nb::handle ranges) {
    for (const nb::handle range : ranges) {
        action_ranges_.push_back(ActionRange{nb::cast<std::int64_t>(range[0]), nb::cast<std::int64_t>(range[1])});
    }
    if (!action_ranges_.empty() && action_ranges_.size() != action_pattern_.num_elements()) {
        refuse("action_ranges", "has " + std::to_string(action_ranges_.size()) + " ranges: it must have " +
                                    std::to_string(action_pattern_.num_elements()) +
                                    ", one for each element of an action");
    }
}

void StagedSteps::read_column_patterns(nb::handle extras_like) {
    for (const auto& [name, array] : nb::cast<nb::dict>(extras_like)) {
        column_patterns_.push_back(ColumnPattern{nb::borrow(name), RowPattern(array)});
        const RowPattern& row = column_patterns_.back().row;
        rules_.column_bytes.push_back(row.row_bytes());
        columns_bytes_ += row.row_bytes();
        column_dtypes_.push_back(array.attr("dtype"));
        column_shapes_.push_back(as_tuple(row.shape()));
    }
}

EnvMemory StagedSteps::envs() const {
    return EnvMemory{newest_positions_.values<std::int64_t>(),
                     episode_starts_.values<std::int64_t>(),
                     run_starts_.values<std::int64_t>(),
                     unreadable_before_.values<std::int64_t>(),
                     is_open_.values<bool>(),
                     is_open_.num_rows()};
}

std::size_t StagedSteps::record_bytes() const { return StepRecords::record_bytes(is_open_.num_rows(), rules_); }

bool StagedSteps::read(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated,
                       nb::handle truncated, nb::handle frames, nb::handle columns, nb::handle borders) {
    if (env_ids.is_none()) {
        env_ids_ = all_env_ids_;
    } else if (!read_env_ids(env_ids, env_ids_)) {
        return false;
    }
    const std::size_t count = env_ids_.size();
    flags_.assign(count, 0);
    return read_fields(count, actions, rewards, columns) && read_flags(terminated, kTerminated, flags_) &&
           read_flags(truncated, kTruncated, flags_) && (borders.is_none() || read_flags(borders, kBorder, flags_)) &&
           fit_frames(count, frames);
}

bool StagedSteps::fit_frames(std::size_t count, nb::handle frames) const {
    const auto fit = [count](const RowPattern& pattern, nb::handle given) {
        BorrowedArray rows;
        return rows.borrow(given) && pattern.fits(rows, count);
    };
    if (!PyTuple_Check(frames.ptr())) {
        return frame_patterns_.size() == 1 && fit(frame_patterns_.front(), frames);
    }
    bool are_good = nb::len(frames) == frame_patterns_.size();
    for (std::size_t array = 0; are_good && array < frame_patterns_.size(); ++array) {
        are_good = fit(frame_patterns_[array], PyTuple_GetItem(frames.ptr(), static_cast<Py_ssize_t>(array)));
    }
    return are_good;
}

bool StagedSteps::read_of_env(std::int32_t env_id, std::vector<std::uint8_t> flags, nb::handle actions,
                              nb::handle rewards, nb::handle columns) {
    flags_ = std::move(flags);
    env_ids_.assign(flags_.size(), env_id);
    return read_fields(flags_.size(), actions, rewards, columns);
}

bool StagedSteps::read_fields(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle columns) {
    const bool has_actions = rules_.action.is_counted
                                 ? read_counted_actions(actions, count, action_ranges_, action_pattern_, actions_)
                                 : read_array_actions(actions, count, action_pattern_, actions_);
    return has_actions && read_rewards(rewards, count, rewards_) &&
           read_columns(columns, count, column_patterns_, columns_bytes_, column_rows_);
}

StagedSegment::StagedSegment(const FrameFormat& format, std::int32_t env_id, ByteSpan segment, ByteSpan bits,
                             std::size_t stack)
    : env_id_(env_id),
      frame_bytes_(format.frame_bytes()),
      padded_(segment.size + kReadPadding),
      bits_(bits.bytes, bits.bytes + bits.size) {
    std::memcpy(padded_.data(), segment.bytes, segment.size);
    const SegmentView view = view_verified_segment(format, this->segment());
    if (view.header.num_frames != bits_.size()) {
        throw DamagedSegment("segment has " + std::to_string(view.header.num_frames) + " frames: its steps belong to " +
                             std::to_string(bits_.size()) + "; send it again");
    }
    const std::size_t num_newest = std::min(stack, bits_.size());
    newest_frames_.resize(num_newest * frame_bytes_);
    DecodingScratch scratch;
    unpack_frames(format, view, bits_.size() - num_newest, num_newest, scratch, newest_frames_.data());
    for (std::size_t run = 0; run < view.runs.num_runs; ++run) {
        if (!begins_run(view.runs.place(run))) {
            throw DamagedSegment("segment has a run that begins at frame " + std::to_string(view.runs.place(run)) +
                                 ": its steps have none there; send it again");
        }
    }
    newest_run_ = bits_.size();
    while (newest_run_ > 0 && !begins_run(newest_run_ - 1)) {
        --newest_run_;
    }
    newest_run_ = newest_run_ > 0 ? newest_run_ - 1 : bits_.size();
    if (newest_run_ < bits_.size()) {
        lead_ins_.resize(format.lead_ins * frame_bytes_);
        if (!unpack_padding(format, view, newest_run_, format.lead_ins, scratch, lead_ins_.data())) {
            lead_ins_.clear();
        }
    }
}

bool StagedSegment::read_flags(bool is_open, std::vector<std::uint8_t>& flags) const {
    for (const std::uint8_t bits : bits_) {
        if (bits == kBeginsEpisode) {
            is_open = true;
            continue;
        }
        constexpr std::uint8_t kEnds = kTerminated | kTruncated;
        if (!is_open || (bits & ~(kEnds | kBorder)) != 0) {
            return false;
        }
        flags.push_back(bits);
        is_open = (bits & kEnds) == 0;
    }
    return true;
}

void StagedSegment::advance(const FrameStacks& stacks) const {
    const std::size_t num_skipped = bits_.size() - newest_frames_.size() / frame_bytes_;
    for (std::size_t place = 0; place < bits_.size(); ++place) {
        if (place < num_skipped) {  // the frame has left the stack at the end of the segment
            std::int64_t& age = stacks.ages[env_id_];
            age = begins_run(place) ? 0 : age + 1;
            continue;
        }
        const std::uint8_t* const frame = newest_frames_.data() + (place - num_skipped) * frame_bytes_;
        if (place == newest_run_ && !lead_ins_.empty()) {
            const RunStart start{RunPadding::kLeadIns, lead_ins_.data()};
            stacks.advance(&env_id_, frame, 1, &start);
        } else {
            (stacks.*(begins_run(place) ? &FrameStacks::begin : &FrameStacks::append))(&env_id_, frame, 1);
        }
    }
}

nb::tuple StagedSteps::new_columns(std::size_t size, std::size_t num_windows, bool with_extra, ResolvedSteps& out,
                                   std::vector<std::uint8_t*>& extra) const {
    const nb::object count = nb::int_(size);
    const nb::object window_count = num_windows == size ? count : nb::int_(num_windows);
    const nb::object action_shape = rows_of(count, action_shape_);
    const NumpyDtypes& dtypes = numpy_dtypes();
    nb::object env_ids = new_array(window_count, dtypes.int32, out.env_ids);
    nb::object last_positions = new_array(window_count, dtypes.int64, out.last_positions);
    nb::object counts = new_array(window_count, dtypes.int32, out.counts);
    nb::object actions = new_array(action_shape, action_dtype_, out.actions);
    nb::object rewards = new_array(count, dtypes.float32, out.rewards);
    nb::object discounts = new_array(count, dtypes.float32, out.discounts);
    nb::object terminated = new_array(count, dtypes.boolean, out.terminated);
    nb::object truncated = new_array(count, dtypes.boolean, out.truncated);
    nb::dict extra_columns;
    extra.resize(with_extra ? column_patterns_.size() : 0);
    for (std::size_t column = 0; column < extra.size(); ++column) {
        extra_columns[column_patterns_[column].name] =
            new_array(rows_of(count, column_shapes_[column]), column_dtypes_[column], extra[column]);
    }
    out.columns = extra.empty() ? nullptr : extra.data();
    const nb::tuple fields = nb::make_tuple(actions, rewards, discounts, terminated, truncated, extra_columns);
    return nb::make_tuple(new_named(named_tuples().windows, nb::make_tuple(env_ids, last_positions, counts)),
                          new_named(named_tuples().step_fields, fields));
}

}  // namespace framestow
