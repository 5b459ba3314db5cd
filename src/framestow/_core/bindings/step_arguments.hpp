// Reads the arguments of a step: NumPy arrays of any fitting dtype, or lists of Python numbers.
//
// Every reader returns whether it could take the argument as it is, and otherwise keeps the first reason as a Refusal.
// framestow/replay/step_checks.py converts unusual forms into arrays, asks again, and says why those are refused. The
// reasons are those of arrays, and every rule of a step stands here.
//
// `is_one`: the step is of one environment, and may lack the axis of environments.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "../step_record.hpp"
#include "arguments.hpp"

namespace framestow {

// Why an argument is refused: the name of a row of framestow/refusals.py, and where, as far as that row says it.
struct Refusal {
    const char* name = nullptr;  // null: nothing is refused
    const char* argument = "";   // which of two with the same rules
    std::size_t array = 0;       // number of the array of an observation, or of the extra
    std::size_t row = 0;         // of the argument, or a frame of a segment
    std::size_t element = 0;     // of an action
};

// Name, argument, array, row and element; none if nothing is refused.
using RefusalTuple = TupleOf<nb::str, nb::str, std::size_t, std::size_t, std::size_t>;
std::optional<RefusalTuple> tuple_of(const Refusal& refusal);

// The shape and dtype of one row of an argument.
class RowPattern {
public:
    explicit RowPattern(nb::handle array);  // the first axis counts the rows

    bool fits(const BorrowedArray& array, std::size_t num_rows, bool is_one = false) const;
    bool fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows, bool is_one = false) const;
    std::size_t num_elements() const { return num_elements_; }  // per row
    std::size_t row_bytes() const { return row_bytes_; }
    Scalar scalar() const { return scalar_; }
    const std::vector<Py_ssize_t>& shape() const { return shape_; }
    const nb::object& dtype() const { return dtype_; }
    const nb::tuple& row_shape() const { return row_shape_; }

    // Returns a new array of so many rows, with further axes before the row's.
    nb::object new_rows(std::size_t num_rows, void*& bytes) const { return new_rows(nb::make_tuple(num_rows), bytes); }
    nb::object new_rows(const nb::tuple& leading, void*& bytes) const;

private:
    nb::object dtype_;
    nb::tuple row_shape_;
    Scalar scalar_;
    std::vector<Py_ssize_t> shape_;  // without the axis of rows
    std::size_t num_elements_ = 1;
    std::size_t row_bytes_;
};

struct ActionRange {  // inclusive
    std::int64_t low;
    std::int64_t high;
};

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

    // The first reason since the last `forget_refusal`.
    const Refusal& refusal() const { return refusal_; }
    void forget_refusal() { refusal_ = Refusal{}; }
    bool refuse_as(const Refusal& refusal) {  // returns false
        refusal_ = refusal_.name == nullptr ? refusal : refusal_;
        return false;
    }

    // A number alone is one environment.
    bool read_env_ids(nb::handle argument, std::vector<std::int32_t>& env_ids);

    // Reads the flags of the steps that led to the frames of a segment, from the bits of each; `is_open`: whether an
    // episode is open before the first.
    bool read_bits(ByteSpan bits, bool is_open, std::vector<std::uint8_t>& flags);

    // Read what belongs to `count` environments; false if an argument breaks a rule or has a form that only Python
    // converts. `flags` of the second are those of the steps already.
    bool read(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle terminated, nb::handle truncated,
              nb::handle extras, bool is_one = false);
    bool read(std::vector<std::uint8_t> flags, nb::handle actions, nb::handle rewards, nb::handle extras);

    std::vector<std::uint8_t>& flags() { return flags_; }

    // Returns `count` of the steps that were read, from `first` on.
    PlannedSteps steps(const std::int32_t* env_ids, std::size_t first, std::size_t count) const {
        return {env_ids + first,
                actions_.data() + first * rules_.action.bytes,
                rewards_.data() + first,
                flags_.data() + first,
                count,
                column_rows_.data() + first * columns_bytes_};
    }

    // Makes arrays for `size` steps with that many windows, and points `out` to their elements. `extra` receives the
    // outputs of the extra fields if they are requested.
    TupleOf<WindowsTuple, StepFieldsTuple> new_columns(std::size_t size, std::size_t num_windows, bool with_extra,
                                                       ResolvedSteps& out, std::vector<std::uint8_t*>& extra) const;

    // Read one of the fields of `count` steps.
    bool read_actions(nb::handle argument, std::size_t count, bool is_one = false);
    bool read_rewards(nb::handle argument, std::size_t count, bool is_one = false);
    bool read_extras(nb::handle argument, std::size_t count, bool is_one = false);

    // Return new arrays of what was read last.
    nb::object actions_array() const;
    ArrayOf<float> rewards_array() const { return to_array(rewards_); }
    nb::dict extras_arrays() const;

private:
    bool has_all_extras(nb::handle dict);
    bool read_flag(nb::handle argument, std::uint8_t bit, const char* name, bool is_one);
    bool read_counted_actions(nb::handle argument, std::size_t count, bool is_one);
    bool read_action_rows(nb::handle argument, std::size_t count, bool is_one);
    bool read_array_actions(nb::handle argument, std::size_t count, bool is_one);

    RowPattern action_pattern_;                   // what the argument of one step must look like
    std::vector<ActionRange> action_ranges_;      // per element; empty if actions are not counted
    std::vector<ColumnPattern> column_patterns_;  // of the extras, by name
    std::size_t columns_bytes_ = 0;               // bytes per step
    StepRules rules_;
    nb::object stored_dtype_, action_dtype_;  // of actions as they are stored, and in batches

    Refusal refusal_;
    std::size_t num_read_ = 0;    // steps whose actions or extras were read last
    std::vector<float> rewards_;  // of the steps that were read, and so are the others
    std::vector<std::uint8_t> actions_;
    std::vector<std::uint8_t> flags_;
    std::vector<std::uint8_t> column_rows_;
};

}  // namespace framestow
