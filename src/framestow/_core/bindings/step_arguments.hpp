// Reads the arguments of a step: NumPy arrays of any fitting dtype, or lists of Python numbers.
//
// Every reader returns whether it could take the argument as it is, without a reason. framestow/replay/step_checks.py
// converts unusual forms and raises the errors; its table names the counterpart of every reader.
//
// `is_one`: the step is of one environment, and may lack the axis of environments.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../step_record.hpp"
#include "arguments.hpp"

namespace framestow {

// The shape and dtype of one row of an argument.
class RowPattern {
public:
    explicit RowPattern(nb::handle array);  // the first axis counts the rows

    bool fits(const BorrowedArray& array, std::size_t num_rows, bool is_one = false) const;
    bool fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows, bool is_one = false) const;
    std::size_t num_elements() const { return num_elements_; }  // per row
    std::size_t row_bytes() const { return row_bytes_; }
    const std::string& format() const { return format_; }
    const std::vector<Py_ssize_t>& shape() const { return shape_; }
    const nb::object& dtype() const { return dtype_; }
    const nb::tuple& row_shape() const { return row_shape_; }

    // Returns a new array of so many rows, with further axes before the row's.
    nb::object new_rows(std::size_t num_rows, void*& bytes) const { return new_rows(nb::make_tuple(num_rows), bytes); }
    nb::object new_rows(const nb::tuple& leading, void*& bytes) const;

private:
    nb::object dtype_;
    nb::tuple row_shape_;
    std::string format_;             // dtype, as Python's buffers name it
    std::vector<Py_ssize_t> shape_;  // without the axis of rows
    std::size_t num_elements_ = 1;
    std::size_t row_bytes_;
};

struct ActionRange {  // inclusive
    std::int64_t low;
    std::int64_t high;
};

// A number alone is one environment.
bool read_env_ids(nb::handle argument, std::vector<std::int32_t>& env_ids);

// Sets `bit` of flags[i] if the argument is true there.
bool read_flags(nb::handle argument, std::uint8_t bit, std::vector<std::uint8_t>& flags, bool is_one = false);

// An extra field of a step: its name and the pattern of one row.
struct ColumnPattern {
    nb::object name;
    RowPattern row;
};

// Reads the fields of a step but for its frames, into stored form.
class StepArguments {
public:
    explicit StepArguments(nb::handle settings);  // a StepSettings

    const StepRules& rules() const { return rules_; }

    // Read what belongs to `count` environments; false if an argument breaks a rule or has a form that only Python
    // converts. `flags` of the second are those of the steps already.
    bool read(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle terminated, nb::handle truncated,
              nb::handle extras, bool is_one = false);
    bool read(std::vector<std::uint8_t> flags, nb::handle actions, nb::handle rewards, nb::handle extras);

    std::vector<std::uint8_t>& flags() { return flags_; }

    // Returns `count` of the steps that were read, from `first` on.
    Steps steps(const std::int32_t* env_ids, std::size_t first, std::size_t count) const {
        return {env_ids + first,
                actions_.data() + first * rules_.action.bytes,
                rewards_.data() + first,
                flags_.data() + first,
                count,
                column_rows_.data() + first * columns_bytes_};
    }

    // Returns new arrays of what was read: actions in stored form, rewards, and a dict of extras or None.
    nb::tuple arrays() const;

    // Makes arrays for `size` steps with that many windows, and points `out` to their elements. `extra` receives the
    // outputs of the extra fields if they are requested.
    TupleOf<WindowsTuple, StepFieldsTuple> new_columns(std::size_t size, std::size_t num_windows, bool with_extra,
                                                       ResolvedSteps& out, std::vector<std::uint8_t*>& extra) const;

private:
    bool read_fields(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle extras, bool is_one);
    bool read_rewards(nb::handle argument, std::size_t count, bool is_one);
    bool read_counted_actions(nb::handle argument, std::size_t count, bool is_one);
    bool read_action_rows(nb::handle argument, std::size_t count, bool is_one);
    bool read_array_actions(nb::handle argument, std::size_t count, bool is_one);
    bool read_columns(nb::handle argument, std::size_t count, bool is_one);

    RowPattern action_pattern_;                   // what the argument of one step must look like
    std::vector<ActionRange> action_ranges_;      // per element; empty if actions are not counted
    std::vector<ColumnPattern> column_patterns_;  // of the extras, by name
    std::size_t columns_bytes_ = 0;               // bytes per step
    StepRules rules_;
    nb::object stored_dtype_, action_dtype_;  // of actions as they are stored, and in batches

    std::vector<float> rewards_;  // of the steps that were read, and so are the others
    std::vector<std::uint8_t> actions_;
    std::vector<std::uint8_t> flags_;
    std::vector<std::uint8_t> column_rows_;
};

}  // namespace framestow
