// Reads the arguments of a step: NumPy arrays of any fitting dtype, or lists of Python numbers.
//
// Every reader returns whether it could take the argument as it is, without a reason. framestow/replay/step_checks.py
// converts unusual forms and raises the errors; its table names the counterpart of every reader. Arrays are borrowed
// through the buffer protocol, in 35 ns per argument instead of 80 with nb::ndarray.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace framestow {

// Borrows the memory of a C-ordered array and releases it on destruction.
class BorrowedArray {
public:
    BorrowedArray() = default;
    BorrowedArray(const BorrowedArray&) = delete;
    BorrowedArray& operator=(const BorrowedArray&) = delete;
    ~BorrowedArray();

    // Call one of them at most once; false for any other argument.
    bool borrow(nanobind::handle argument, bool writable = false);
    bool borrow_number(nanobind::handle argument);  // one number in the form of NumPy, without axes

    std::size_t num_rows() const { return static_cast<std::size_t>(view_.shape[0]); }
    const Py_buffer& view() const { return view_; }

    template <typename Scalar>
    Scalar* values() const {
        return static_cast<Scalar*>(view_.buf);
    }

private:
    bool borrow_any(nanobind::handle argument, bool writable);

    Py_buffer view_{};  // released by the destructor if it is borrowed
    bool is_borrowed_ = false;
};

// The shape and dtype of one row of an argument.
class RowPattern {
public:
    explicit RowPattern(nanobind::handle array);  // the first axis counts the rows

    bool fits(const BorrowedArray& array, std::size_t num_rows) const;
    bool fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows) const;
    std::size_t num_elements() const { return num_elements_; }  // per row
    std::size_t row_bytes() const { return row_bytes_; }
    const std::string& format() const { return format_; }
    const std::vector<Py_ssize_t>& shape() const { return shape_; }

private:
    std::string format_;             // dtype, as Python's buffers name it
    std::vector<Py_ssize_t> shape_;  // without the axis of rows
    std::size_t num_elements_ = 1;
    std::size_t row_bytes_;
};

struct ActionRange {  // inclusive
    std::int64_t low;
    std::int64_t high;
};

bool read_env_ids(nanobind::handle argument, std::vector<std::int32_t>& env_ids);

// Reads rewards that are finite in float32.
bool read_rewards(nanobind::handle argument, std::size_t count, std::vector<float>& rewards);

// Sets `bit` of flags[i] if the argument is true there.
bool read_flags(nanobind::handle argument, std::uint8_t bit, std::vector<std::uint8_t>& flags);

// Reads integers, each element within its range, and stores them in the integer type of `pattern`.
bool read_counted_actions(nanobind::handle argument, std::size_t count, const std::vector<ActionRange>& ranges,
                          const RowPattern& pattern, std::vector<std::uint8_t>& actions);

// Reads arrays of exactly `pattern`; floats must be finite.
bool read_array_actions(nanobind::handle argument, std::size_t count, const RowPattern& pattern,
                        std::vector<std::uint8_t>& actions);

// An extra field of a step: its name and the pattern of one row.
struct ColumnPattern {
    nanobind::object name;
    RowPattern row;
};

// Reads a dict with exactly one array per pattern (None if there are no patterns); any values are allowed. Writes rows
// of `row_bytes` one after the other.
bool read_columns(nanobind::handle argument, std::size_t count, const std::vector<ColumnPattern>& patterns,
                  std::size_t row_bytes, std::vector<std::uint8_t>& rows);

}  // namespace framestow
