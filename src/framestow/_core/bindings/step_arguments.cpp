#include "step_arguments.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace nb = nanobind;

namespace framestow {
namespace {

// Kind and size of the elements of an array: S8 is a signed byte, U64 an unsigned integer of 64 bits.
enum class Scalar { kOther, kBool, kS8, kS16, kS32, kS64, kU8, kU16, kU32, kU64, kF16, kF32, kF64, kLongDouble };

Scalar of_size(Py_ssize_t bytes, Scalar one, Scalar two, Scalar four, Scalar eight) {
    return bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : bytes == 8 ? eight : Scalar::kOther;
}

Scalar scalar_of(const char* format, Py_ssize_t bytes) {
    if (format == nullptr || format[0] == '\0' || format[1] != '\0') {
        return Scalar::kOther;  // another byte order or a record
    }
    switch (format[0]) {
        case '?':
            return Scalar::kBool;
        case 'b':
        case 'h':
        case 'i':
        case 'l':
        case 'q':
            return of_size(bytes, Scalar::kS8, Scalar::kS16, Scalar::kS32, Scalar::kS64);
        case 'B':
        case 'H':
        case 'I':
        case 'L':
        case 'Q':
            return of_size(bytes, Scalar::kU8, Scalar::kU16, Scalar::kU32, Scalar::kU64);
        case 'e':
            return Scalar::kF16;
        case 'f':
            return Scalar::kF32;
        case 'd':
            return Scalar::kF64;
        case 'g':
            return Scalar::kLongDouble;
        default:
            return Scalar::kOther;
    }
}

template <typename Value>
Value load(const void* bytes, std::size_t index) {
    Value value;
    std::memcpy(&value, static_cast<const unsigned char*>(bytes) + index * sizeof value, sizeof value);
    return value;
}

bool load_integer(const void* bytes, std::size_t index, Scalar scalar, std::int64_t& value) {
    switch (scalar) {
        case Scalar::kS8:
            value = load<std::int8_t>(bytes, index);
            return true;
        case Scalar::kS16:
            value = load<std::int16_t>(bytes, index);
            return true;
        case Scalar::kS32:
            value = load<std::int32_t>(bytes, index);
            return true;
        case Scalar::kS64:
            value = load<std::int64_t>(bytes, index);
            return true;
        case Scalar::kU8:
            value = load<std::uint8_t>(bytes, index);
            return true;
        case Scalar::kU16:
            value = load<std::uint16_t>(bytes, index);
            return true;
        case Scalar::kU32:
            value = load<std::uint32_t>(bytes, index);
            return true;
        case Scalar::kU64: {
            const auto number = load<std::uint64_t>(bytes, index);
            value = static_cast<std::int64_t>(number);
            return value >= 0;
        }
        default:
            return false;
    }
}

// Returns false unless the number is finite in float32. A float64 that only rounding brings into range is refused.
bool narrow(double number, float& value) {
    value = static_cast<float>(number);
    return std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max());
}

bool load_reward(const void* bytes, std::size_t index, Scalar scalar, float& value) {
    if (scalar == Scalar::kF64) {
        return narrow(load<double>(bytes, index), value);
    }
    if (scalar == Scalar::kF32) {
        value = load<float>(bytes, index);
        return std::isfinite(value);
    }
    std::int64_t integer;
    if (!load_integer(bytes, index, scalar, integer)) {
        return false;
    }
    value = static_cast<float>(integer);
    return true;
}

bool is_finite(const void* bytes, std::size_t index, Scalar scalar) {
    switch (scalar) {
        case Scalar::kF16:
            return (load<std::uint16_t>(bytes, index) & 0x7C00) != 0x7C00;
        case Scalar::kF32:
            return std::isfinite(load<float>(bytes, index));
        case Scalar::kF64:
            return std::isfinite(load<double>(bytes, index));
        case Scalar::kLongDouble:
            return std::isfinite(load<long double>(bytes, index));
        default:
            return true;
    }
}

bool integer_of(PyObject* number, std::int64_t& value) {
    if (!PyLong_Check(number) || PyBool_Check(number)) {
        return false;
    }
    int overflow = 0;
    value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return overflow == 0;
}

bool reward_of(PyObject* number, float& value) {
    if (PyFloat_Check(number)) {
        return narrow(PyFloat_AsDouble(number), value);
    }
    std::int64_t integer;
    if (!integer_of(number, integer)) {
        return false;
    }
    value = static_cast<float>(integer);
    return true;
}

// Calls from_number(item, row) or from_array(bytes, index, row, scalar) for each of `count` numbers while they return
// true. A list may have NumPy's numbers, which actions of a space are.
template <typename FromNumber, typename FromArray>
bool read_each(nb::handle argument, std::size_t count, FromNumber from_number, FromArray from_array) {
    if (PyList_Check(argument.ptr())) {
        bool good = static_cast<std::size_t>(PyList_Size(argument.ptr())) == count;
        for (std::size_t row = 0; good && row < count; ++row) {
            PyObject* const item = PyList_GetItem(argument.ptr(), static_cast<Py_ssize_t>(row));
            if (PyLong_Check(item) || PyFloat_Check(item)) {  // also True, and float64
                good = from_number(item, row);
                continue;
            }
            BorrowedArray array;
            good = array.borrow_number(item) &&
                   from_array(array.view().buf, 0, row, scalar_of(array.view().format, array.view().itemsize));
        }
        return good;
    }
    BorrowedArray array;
    if (!array.borrow(argument) || array.view().ndim != 1 || array.num_rows() != count) {
        return false;
    }
    const Scalar scalar = scalar_of(array.view().format, array.view().itemsize);
    bool good = true;
    for (std::size_t row = 0; good && row < count; ++row) {
        good = from_array(array.view().buf, row, row, scalar);
    }
    return good;
}

void store_lowest(std::int64_t number, std::size_t num_bytes, std::uint8_t* out) {
    const auto narrow_to = [out](auto value) { std::memcpy(out, &value, sizeof value); };
    switch (num_bytes) {
        case 1:
            narrow_to(static_cast<std::uint8_t>(number));
            break;
        case 2:
            narrow_to(static_cast<std::uint16_t>(number));
            break;
        case 4:
            narrow_to(static_cast<std::uint32_t>(number));
            break;
        default:
            narrow_to(number);
    }
}

bool read_action_rows(nb::handle argument, std::size_t count, const std::vector<ActionRange>& ranges,
                      const RowPattern& pattern, std::vector<std::uint8_t>& actions) {
    BorrowedArray array;
    if (!array.borrow(argument) || !pattern.fits_but_for_dtype(array, count)) {
        return false;
    }
    const Scalar scalar = scalar_of(array.view().format, array.view().itemsize);
    const std::size_t stored_bytes = pattern.row_bytes() / ranges.size();
    actions.resize(count * pattern.row_bytes());
    std::int64_t number = 0;
    for (std::size_t at = 0, element = 0; at < count * ranges.size(); ++at, element = at % ranges.size()) {
        const bool is_integer = load_integer(array.view().buf, at, scalar, number);
        if (!is_integer || number < ranges[element].low || number > ranges[element].high) {
            return false;
        }
        store_lowest(number, stored_bytes, actions.data() + at * stored_bytes);
    }
    return true;
}

}  // namespace

BorrowedArray::~BorrowedArray() {
    if (is_borrowed_) {
        PyBuffer_Release(&view_);
    }
}

bool BorrowedArray::borrow(nb::handle argument, bool writable) {
    return borrow_any(argument, writable) && view_.ndim > 0;
}

bool BorrowedArray::borrow_number(nb::handle argument) { return borrow_any(argument, false) && view_.ndim == 0; }

bool BorrowedArray::borrow_any(nb::handle argument, bool writable) {
    if (PyBytes_Check(argument.ptr()) || PyByteArray_Check(argument.ptr())) {
        return false;  // NumPy reads them as one string
    }
    const int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(argument.ptr(), &view_, flags) != 0) {
        PyErr_Clear();
        return false;
    }
    is_borrowed_ = true;
    return true;
}

RowPattern::RowPattern(nb::handle array) {
    BorrowedArray borrowed;
    if (!borrowed.borrow(array)) {
        throw nb::type_error("a pattern is not an array: it must be a NumPy array whose first axis counts rows");
    }
    const Py_buffer& view = borrowed.view();
    format_ = view.format;
    shape_.assign(view.shape + 1, view.shape + view.ndim);
    for (const Py_ssize_t side : shape_) {
        num_elements_ *= static_cast<std::size_t>(side);
    }
    row_bytes_ = static_cast<std::size_t>(view.itemsize) * num_elements_;
}

bool RowPattern::fits(const BorrowedArray& array, std::size_t num_rows) const {
    return fits_but_for_dtype(array, num_rows) && format_ == array.view().format;
}

bool RowPattern::fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows) const {
    const Py_buffer& view = array.view();
    if (static_cast<std::size_t>(view.ndim) != shape_.size() + 1 || array.num_rows() != num_rows) {
        return false;
    }
    for (std::size_t axis = 0; axis < shape_.size(); ++axis) {
        if (view.shape[axis + 1] != shape_[axis]) {
            return false;
        }
    }
    return true;
}

bool read_env_ids(nb::handle argument, std::vector<std::int32_t>& env_ids) {
    const Py_ssize_t count = PyObject_Size(argument.ptr());
    if (count < 0) {
        PyErr_Clear();
        return false;
    }
    env_ids.resize(static_cast<std::size_t>(count));
    std::int64_t env_id = 0;
    const auto keep = [&](std::size_t row) {
        env_ids[row] = static_cast<std::int32_t>(env_id);
        return env_id >= 0 && env_id <= std::numeric_limits<std::int32_t>::max();
    };
    return read_each(
        argument, env_ids.size(),
        [&](PyObject* number, std::size_t row) { return integer_of(number, env_id) && keep(row); },
        [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
            return load_integer(bytes, index, scalar, env_id) && keep(row);
        });
}

bool read_rewards(nb::handle argument, std::size_t count, std::vector<float>& rewards) {
    rewards.resize(count);
    return read_each(
        argument, count, [&](PyObject* number, std::size_t row) { return reward_of(number, rewards[row]); },
        [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
            return load_reward(bytes, index, scalar, rewards[row]);
        });
}

bool read_flags(nb::handle argument, std::uint8_t bit, std::vector<std::uint8_t>& flags) {
    const auto set = [&](std::size_t row, bool is_true) {
        if (is_true) {
            flags[row] = static_cast<std::uint8_t>(flags[row] | bit);
        }
        return true;
    };
    return read_each(
        argument, flags.size(),
        [&](PyObject* truth, std::size_t row) { return PyBool_Check(truth) && set(row, truth == Py_True); },
        [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
            return scalar == Scalar::kBool && set(row, load<std::uint8_t>(bytes, index) != 0);
        });
}

bool read_counted_actions(nb::handle argument, std::size_t count, const std::vector<ActionRange>& ranges,
                          const RowPattern& pattern, std::vector<std::uint8_t>& actions) {
    if (!pattern.shape().empty()) {
        return read_action_rows(argument, count, ranges, pattern, actions);
    }
    const ActionRange range = ranges.front();
    const std::size_t stored_bytes = pattern.row_bytes();
    actions.resize(count * stored_bytes);
    std::int64_t action = 0;
    const auto keep = [&](std::size_t row) {
        store_lowest(action, stored_bytes, actions.data() + row * stored_bytes);
        return action >= range.low && action <= range.high;
    };
    return read_each(
        argument, count, [&](PyObject* number, std::size_t row) { return integer_of(number, action) && keep(row); },
        [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
            return load_integer(bytes, index, scalar, action) && keep(row);
        });
}

bool read_array_actions(nb::handle argument, std::size_t count, const RowPattern& pattern,
                        std::vector<std::uint8_t>& actions) {
    BorrowedArray array;
    if (!array.borrow(argument) || !pattern.fits(array, count)) {
        return false;
    }
    const Scalar scalar = scalar_of(array.view().format, array.view().itemsize);
    const std::size_t num_elements = static_cast<std::size_t>(array.view().len / array.view().itemsize);
    for (std::size_t element = 0; element < num_elements; ++element) {
        if (!is_finite(array.view().buf, element, scalar)) {
            return false;
        }
    }
    const auto* bytes = array.values<const std::uint8_t>();
    actions.assign(bytes, bytes + array.view().len);
    return true;
}

bool read_columns(nb::handle argument, std::size_t count, const std::vector<ColumnPattern>& patterns,
                  std::size_t row_bytes, std::vector<std::uint8_t>& rows) {
    if (argument.is_none()) {
        return patterns.empty();
    }
    if (!PyDict_Check(argument.ptr()) || static_cast<std::size_t>(PyDict_Size(argument.ptr())) != patterns.size()) {
        return false;
    }
    rows.resize(count * row_bytes);
    std::size_t offset = 0;
    for (const ColumnPattern& pattern : patterns) {
        PyObject* values = PyDict_GetItemWithError(argument.ptr(), pattern.name.ptr());
        BorrowedArray array;
        if (values == nullptr || !array.borrow(values) || !pattern.row.fits(array, count)) {
            PyErr_Clear();  // a key that cannot be compared
            return false;
        }
        const std::size_t bytes = pattern.row.row_bytes();
        for (std::size_t row = 0; row < count; ++row) {
            std::memcpy(rows.data() + row * row_bytes + offset, array.values<const std::uint8_t>() + row * bytes,
                        bytes);
        }
        offset += bytes;
    }
    return true;
}

}  // namespace framestow
