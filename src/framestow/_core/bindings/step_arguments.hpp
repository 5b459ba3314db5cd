// The arguments of a step as callers have them: NumPy arrays of any dtype that fits, or lists of Python numbers.
//
// Every reader answers whether it could take the argument as it is; if not, nothing is said about why.
// framestow/replay/step_checks.py converts what is unusual and has the one message for each thing that is wrong.
// Arrays are borrowed through the buffer protocol, at half the cost of nb::ndarray (35 ns against 80 an argument).
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace framestow {

// Borrows the memory of an array in C order; gives it back at its end.
class BorrowedArray {
public:
    BorrowedArray() = default;
    BorrowedArray(const BorrowedArray&) = delete;
    BorrowedArray& operator=(const BorrowedArray&) = delete;
    ~BorrowedArray();

    bool borrow(nanobind::handle argument, bool writable = false);  // once; false for what is no such array

    std::size_t num_rows() const { return static_cast<std::size_t>(view_.shape[0]); }
    const Py_buffer& view() const { return view_; }

    template <typename Scalar>
    Scalar* values() const {
        return static_cast<Scalar*>(view_.buf);
    }

private:
    Py_buffer view_{};
    bool is_borrowed_ = false;
};

// Shape and dtype that each row of an argument must have.
class RowPattern {
public:
    explicit RowPattern(nanobind::handle array);  // its first axis counts the rows

    bool fits(const BorrowedArray& array, std::size_t num_rows) const;
    bool fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows) const;
    std::size_t num_elements() const { return num_elements_; }  // of a row
    std::size_t row_bytes() const { return row_bytes_; }
    const std::string& format() const { return format_; }
    const std::vector<Py_ssize_t>& shape() const { return shape_; }

private:
    std::string format_;
    std::vector<Py_ssize_t> shape_;
    std::size_t num_elements_ = 1;
    std::size_t row_bytes_;
};

struct ActionRange {  // inclusive
    std::int64_t low;
    std::int64_t high;
};

bool read_streams(nanobind::handle argument, std::vector<std::int32_t>& streams);

// Rewards that are finite in float32.
bool read_rewards(nanobind::handle argument, std::size_t count, std::vector<float>& rewards);

// Sets `bit` of flags[i] where the argument is true.
bool read_flags(nanobind::handle argument, std::uint8_t bit, std::vector<std::uint8_t>& flags);

// Integers, an element of an action in its one of `ranges`, stored as `pattern` says in the lowest bytes of the number.
bool read_counted_actions(nanobind::handle argument, std::size_t count, const std::vector<ActionRange>& ranges,
                          const RowPattern& pattern, std::vector<std::uint8_t>& actions);

// Arrays of exactly `pattern`, finite where they are floats.
bool read_array_actions(nanobind::handle argument, std::size_t count, const RowPattern& pattern,
                        std::vector<std::uint8_t>& actions);

// An extra column of a step: its name, and what one row of it is.
struct ColumnPattern {
    nanobind::object name;
    RowPattern row;
};

// A dict with exactly one array of its pattern for each of `patterns`, or None where there is none; whatever is in them.
// Rows are written one behind the other, `row_bytes` each.
bool read_columns(nanobind::handle argument, std::size_t count, const std::vector<ColumnPattern>& patterns,
                  std::size_t row_bytes, std::vector<std::uint8_t>& rows);

}  // namespace framestow
