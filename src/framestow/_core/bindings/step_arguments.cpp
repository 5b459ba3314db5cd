#include "step_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

namespace framestow {
namespace {

constexpr std::int64_t kMaxStack = 256;  // a slot stores its history in one byte
constexpr std::int64_t kMaxSteps = 255;  // rewards per return; ReplayMemory has the same rule

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

bool is_integer(Scalar scalar) { return scalar >= Scalar::kS8 && scalar <= Scalar::kU64; }

bool is_reward(Scalar scalar) { return is_integer(scalar) || scalar == Scalar::kF32 || scalar == Scalar::kF64; }

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
bool read_each(nb::handle argument, std::size_t count, bool is_one, FromNumber from_number, FromArray from_array) {
    const auto read_item = [&](PyObject* item, std::size_t row) {
        if (PyLong_Check(item) || PyFloat_Check(item)) {  // also True, and float64
            return from_number(item, row);
        }
        BorrowedArray number;
        return number.borrow_number(item) && from_array(number.view().buf, 0, row, number.scalar());
    };
    if (PyList_Check(argument.ptr())) {
        bool good = static_cast<std::size_t>(PyList_Size(argument.ptr())) == count;
        for (std::size_t row = 0; good && row < count; ++row) {
            good = read_item(PyList_GetItem(argument.ptr(), static_cast<Py_ssize_t>(row)), row);
        }
        return good;
    }
    BorrowedArray array;
    if (!array.borrow(argument)) {
        return is_one && read_item(argument.ptr(), 0);
    }
    if (array.view().ndim != 1 || array.num_rows() != count) {
        return false;
    }
    const Scalar scalar = array.scalar();
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

}  // namespace

std::optional<RefusalTuple> tuple_of(const Refusal& refusal) {
    if (refusal.name == nullptr) {
        return std::nullopt;
    }
    return nb::make_tuple(refusal.name, refusal.argument, refusal.array, refusal.row, refusal.element);
}

RowPattern::RowPattern(nb::handle array) : dtype_(array.attr("dtype")) {
    BorrowedArray borrowed;
    if (!borrowed.borrow(array)) {
        throw nb::type_error("a pattern is not an array: it must be a NumPy array whose first axis counts rows");
    }
    const Py_buffer& view = borrowed.view();
    scalar_ = borrowed.scalar();
    shape_.assign(view.shape + 1, view.shape + view.ndim);
    nb::list sides;
    for (const Py_ssize_t side : shape_) {
        num_elements_ *= static_cast<std::size_t>(side);
        sides.append(side);
    }
    row_shape_ = nb::tuple(sides);
    row_bytes_ = static_cast<std::size_t>(view.itemsize) * num_elements_;
}

bool RowPattern::fits(const BorrowedArray& array, std::size_t num_rows, bool is_one) const {
    return fits_but_for_dtype(array, num_rows, is_one) && scalar_ == array.scalar();
}

bool RowPattern::fits_but_for_dtype(const BorrowedArray& array, std::size_t num_rows, bool is_one) const {
    const Py_buffer& view = array.view();
    const std::size_t num_axes = static_cast<std::size_t>(view.ndim), num_before = num_axes - shape_.size();
    return (num_axes == shape_.size() + 1 ? array.num_rows() == num_rows : is_one && num_axes == shape_.size()) &&
           std::equal(shape_.begin(), shape_.end(), view.shape + num_before);
}

nb::object RowPattern::new_rows(const nb::tuple& leading, void*& bytes) const {
    return new_array(leading + row_shape_, dtype_, bytes);
}

bool StepArguments::read_env_ids(nb::handle argument, std::vector<std::int32_t>& env_ids) {
    const bool is_one = PyLong_Check(argument.ptr());
    const Py_ssize_t count = is_one ? 1 : PyObject_Size(argument.ptr());
    if (count < 0) {
        PyErr_Clear();
        return refuse_as({"ENV_IDS_FORM"});
    }
    env_ids.resize(static_cast<std::size_t>(count));
    std::int64_t env_id = 0;
    const auto keep = [&](std::size_t row) {
        env_ids[row] = static_cast<std::int32_t>(env_id);
        return env_id >= 0 && env_id <= std::numeric_limits<std::int32_t>::max();
    };
    return read_each(
               argument, env_ids.size(), is_one,
               [&](PyObject* number, std::size_t row) { return integer_of(number, env_id) && keep(row); },
               [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
                   return (load_integer(bytes, index, scalar, env_id) && keep(row)) ||
                          refuse_as({is_integer(scalar) ? "ENV_IDS_UNKNOWN" : "ENV_IDS_FORM"});
               }) ||
           refuse_as({"ENV_IDS_FORM"});
}

bool StepArguments::read_bits(ByteSpan bits, bool is_open, std::vector<std::uint8_t>& flags) {
    for (std::size_t frame = 0; frame < bits.size; ++frame) {
        const std::uint8_t of_frame = bits.bytes[frame];
        if (of_frame == kBeginsEpisode) {
            is_open = true;
            continue;
        }
        if ((of_frame & ~(kTerminated | kTruncated | kBorder)) != 0) {
            return refuse_as({"SEGMENT_BITS", "", 0, frame});
        }
        if (!is_open) {
            return refuse_as({"SEGMENT_OUTSIDE", "", 0, frame});
        }
        flags.push_back(of_frame);
        is_open = !ends_episode(of_frame);
    }
    return true;
}

bool read_flags(nb::handle argument, std::uint8_t bit, std::vector<std::uint8_t>& flags, bool is_one) {
    const auto set = [&](std::size_t row, bool is_true) {
        if (is_true) {
            flags[row] = static_cast<std::uint8_t>(flags[row] | bit);
        }
        return true;
    };
    return read_each(
        argument, flags.size(), is_one,
        [&](PyObject* truth, std::size_t row) { return PyBool_Check(truth) && set(row, truth == Py_True); },
        [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
            return scalar == Scalar::kBool && set(row, load<std::uint8_t>(bytes, index) != 0);
        });
}

StepArguments::StepArguments(nb::handle settings)
    : action_pattern_(settings.attr("actions_like")),
      rules_{nb::cast<std::int64_t>(settings.attr("stack")), nb::cast<std::int64_t>(settings.attr("segment_frames")),
             nb::cast<double>(settings.attr("discount")), ActionLayout{}},
      stored_dtype_(action_pattern_.dtype()) {
    rules_.n_step = nb::cast<std::int64_t>(settings.attr("n_step"));
    if (rules_.stack < 1 || rules_.stack > kMaxStack || rules_.segment_frames < 1) {
        refuse("stack and segment_frames", "are " + std::to_string(rules_.stack) + " and " +
                                               std::to_string(rules_.segment_frames) +
                                               ": they must be 1 to 256 and at least 1");
    }
    if (rules_.n_step < 1 || rules_.n_step > kMaxSteps) {
        refuse("n_step", "is " + std::to_string(rules_.n_step) + ": it must be 1 to " + std::to_string(kMaxSteps));
    }
    for (const nb::handle range : settings.attr("action_ranges")) {
        action_ranges_.push_back(ActionRange{nb::cast<std::int64_t>(range[0]), nb::cast<std::int64_t>(range[1])});
    }
    if (!action_ranges_.empty() && action_ranges_.size() != action_pattern_.num_elements()) {
        refuse("action_ranges", "has " + std::to_string(action_ranges_.size()) + " ranges: it must have " +
                                    std::to_string(action_pattern_.num_elements()) +
                                    ", one for each element of an action");
    }
    rules_.action = ActionLayout{action_pattern_.row_bytes(), !action_ranges_.empty(),
                                 action_pattern_.scalar() >= Scalar::kS8 && action_pattern_.scalar() <= Scalar::kS64,
                                 std::max<std::size_t>(action_ranges_.size(), 1)};
    action_dtype_ = rules_.action.is_counted ? Numpy<std::int64_t>::dtype() : stored_dtype_;
    for (const auto& [name, array] : nb::cast<nb::dict>(settings.attr("extras_like"))) {
        column_patterns_.push_back(ColumnPattern{nb::borrow(name), RowPattern(array)});
        const std::size_t bytes = column_patterns_.back().row.row_bytes();
        rules_.column_bytes.push_back(bytes);
        columns_bytes_ += bytes;
    }
}

bool StepArguments::read(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle terminated,
                         nb::handle truncated, nb::handle extras, bool is_one) {
    flags_.assign(count, 0);
    return read_actions(actions, count, is_one) && read_rewards(rewards, count, is_one) &&
           read_flag(terminated, kTerminated, "terminated", is_one) &&
           read_flag(truncated, kTruncated, "truncated", is_one) && read_extras(extras, count, is_one);
}

bool StepArguments::read(std::vector<std::uint8_t> flags, nb::handle actions, nb::handle rewards, nb::handle extras) {
    flags_ = std::move(flags);
    return read_actions(actions, flags_.size()) && read_rewards(rewards, flags_.size()) &&
           read_extras(extras, flags_.size());
}

bool StepArguments::read_flag(nb::handle argument, std::uint8_t bit, const char* name, bool is_one) {
    return read_flags(argument, bit, flags_, is_one) || refuse_as({"FLAGS", name});
}

// Reads rewards that are finite in float32.
bool StepArguments::read_rewards(nb::handle argument, std::size_t count, bool is_one) {
    rewards_.resize(count);
    return read_each(
               argument, count, is_one,
               [&](PyObject* number, std::size_t row) { return reward_of(number, rewards_[row]); },
               [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
                   return load_reward(bytes, index, scalar, rewards_[row]) ||
                          refuse_as({is_reward(scalar) ? "REWARD_NOT_FINITE" : "REWARDS_DTYPE", "", 0, row});
               }) ||
           refuse_as({"REWARDS_SHAPE"});
}

bool StepArguments::read_actions(nb::handle argument, std::size_t count, bool is_one) {
    num_read_ = count;
    return rules_.action.is_counted ? read_counted_actions(argument, count, is_one)
                                    : read_array_actions(argument, count, is_one);
}

// Reads integers, each element within its range, and stores them in the integer type of the pattern.
bool StepArguments::read_counted_actions(nb::handle argument, std::size_t count, bool is_one) {
    if (!action_pattern_.shape().empty()) {
        return read_action_rows(argument, count, is_one);
    }
    const ActionRange range = action_ranges_.front();
    const std::size_t stored_bytes = action_pattern_.row_bytes();
    actions_.resize(count * stored_bytes);
    std::int64_t action = 0;
    const auto keep = [&](std::size_t row) {
        store_lowest(action, stored_bytes, actions_.data() + row * stored_bytes);
        return action >= range.low && action <= range.high;
    };
    return read_each(
               argument, count, is_one,
               [&](PyObject* number, std::size_t row) { return integer_of(number, action) && keep(row); },
               [&](const void* bytes, std::size_t index, std::size_t row, Scalar scalar) {
                   return (load_integer(bytes, index, scalar, action) && keep(row)) ||
                          refuse_as({is_integer(scalar) ? "ACTION_OUTSIDE" : "ACTIONS_NO_INTEGERS", "", 0, row});
               }) ||
           refuse_as({"ACTIONS_SHAPE"});
}

bool StepArguments::read_action_rows(nb::handle argument, std::size_t count, bool is_one) {
    BorrowedArray array;
    if (!array.borrow(argument) || !action_pattern_.fits_but_for_dtype(array, count, is_one)) {
        return refuse_as({"ACTIONS_SHAPE"});
    }
    const Scalar scalar = array.scalar();
    if (!is_integer(scalar)) {
        return refuse_as({"ACTIONS_NO_INTEGERS"});
    }
    const std::size_t stored_bytes = action_pattern_.row_bytes() / action_ranges_.size();
    actions_.resize(count * action_pattern_.row_bytes());
    std::int64_t number = 0;
    for (std::size_t at = 0, element = 0; at < count * action_ranges_.size();
         ++at, element = at % action_ranges_.size()) {
        if (!load_integer(array.view().buf, at, scalar, number) || number < action_ranges_[element].low ||
            number > action_ranges_[element].high) {
            return refuse_as({"ACTION_OUTSIDE", "", 0, at / action_ranges_.size(), element});
        }
        store_lowest(number, stored_bytes, actions_.data() + at * stored_bytes);
    }
    return true;
}

// Reads arrays of exactly the pattern; floats must be finite.
bool StepArguments::read_array_actions(nb::handle argument, std::size_t count, bool is_one) {
    BorrowedArray array;
    if (!array.borrow_any(argument) || !action_pattern_.fits_but_for_dtype(array, count, is_one)) {
        return refuse_as({"ACTIONS_SHAPE"});
    }
    const Scalar scalar = array.scalar();
    if (scalar != action_pattern_.scalar()) {
        return refuse_as({"ACTIONS_DTYPE"});
    }
    const std::size_t num_elements = array.nbytes() / static_cast<std::size_t>(array.view().itemsize);
    for (std::size_t element = 0; element < num_elements; ++element) {
        if (!is_finite(array.view().buf, element, scalar)) {
            return refuse_as({"ACTION_NOT_FINITE", "", 0, element / action_pattern_.num_elements()});
        }
    }
    const auto* bytes = array.values<const std::uint8_t>();
    actions_.assign(bytes, bytes + array.nbytes());
    return true;
}

// Reads a dict with exactly one array per pattern (None if there are no patterns); any values are allowed.
bool StepArguments::read_extras(nb::handle argument, std::size_t count, bool is_one) {
    num_read_ = count;
    if (argument.is_none()) {
        return column_patterns_.empty() || refuse_as({"EXTRAS_MISSING"});
    }
    if (!PyDict_Check(argument.ptr())) {
        return refuse_as({"EXTRAS_NO_DICT"});
    }
    if (static_cast<std::size_t>(PyDict_Size(argument.ptr())) != column_patterns_.size()) {
        return has_all_extras(argument);
    }
    column_rows_.resize(count * columns_bytes_);
    std::size_t offset = 0;
    for (std::size_t number = 0; number < column_patterns_.size(); ++number) {
        const RowPattern& pattern = column_patterns_[number].row;
        PyObject* values = PyDict_GetItemWithError(argument.ptr(), column_patterns_[number].name.ptr());
        BorrowedArray array;
        if (values == nullptr || !array.borrow_any(values) || !pattern.fits(array, count, is_one)) {
            return has_all_extras(argument) &&
                   refuse_as(
                       {pattern.fits_but_for_dtype(array, count, is_one) ? "EXTRA_DTYPE" : "EXTRA_SHAPE", "", number});
        }
        const std::size_t bytes = pattern.row_bytes();
        for (std::size_t row = 0; row < count; ++row) {
            std::memcpy(column_rows_.data() + row * columns_bytes_ + offset,
                        array.values<const std::uint8_t>() + row * bytes, bytes);
        }
        offset += bytes;
    }
    return true;
}

// Whether a dict has exactly the extras as keys.
bool StepArguments::has_all_extras(nb::handle dict) {
    std::size_t num_found = 0;
    for (const ColumnPattern& pattern : column_patterns_) {
        num_found += PyDict_GetItemWithError(dict.ptr(), pattern.name.ptr()) != nullptr ? 1 : 0;
        PyErr_Clear();  // a key that cannot be compared
    }
    if (static_cast<std::size_t>(PyDict_Size(dict.ptr())) != num_found) {
        return refuse_as({"EXTRAS_UNKNOWN"});
    }
    return num_found == column_patterns_.size() || refuse_as({"EXTRAS_MISSING"});
}

nb::object StepArguments::actions_array() const {
    void* bytes = nullptr;
    nb::object actions = action_pattern_.new_rows(num_read_, bytes);
    std::copy(actions_.begin(), actions_.end(), static_cast<std::uint8_t*>(bytes));
    return actions;
}

nb::dict StepArguments::extras_arrays() const {
    void* bytes = nullptr;
    nb::dict extras;
    std::size_t offset = 0;
    for (const ColumnPattern& pattern : column_patterns_) {
        extras[pattern.name] = pattern.row.new_rows(num_read_, bytes);
        for (std::size_t row = 0; row < num_read_; ++row) {
            std::memcpy(static_cast<std::uint8_t*>(bytes) + row * pattern.row.row_bytes(),
                        column_rows_.data() + row * columns_bytes_ + offset, pattern.row.row_bytes());
        }
        offset += pattern.row.row_bytes();
    }
    return extras;
}

TupleOf<WindowsTuple, StepFieldsTuple> StepArguments::new_columns(std::size_t size, std::size_t num_windows,
                                                                  bool with_extra, ResolvedSteps& out,
                                                                  std::vector<std::uint8_t*>& extra) const {
    const nb::int_ count(size), window_count(num_windows);
    nb::object env_ids = new_array(window_count, out.env_ids);
    nb::object last_positions = new_array(window_count, out.last_positions);
    nb::object counts = new_array(window_count, out.counts);
    void* bytes = nullptr;
    nb::object actions = action_pattern_.shape().empty()
                             ? new_array(count, action_dtype_, bytes)
                             : new_array(nb::make_tuple(count) + action_pattern_.row_shape(), action_dtype_, bytes);
    out.actions = static_cast<std::uint8_t*>(bytes);
    nb::object rewards = new_array(count, out.rewards);
    nb::object discounts = new_array(count, out.discounts);
    nb::object terminated = new_array(count, out.terminated);
    nb::object truncated = new_array(count, out.truncated);
    nb::dict extra_columns;
    extra.resize(with_extra ? column_patterns_.size() : 0);
    for (std::size_t column = 0; column < extra.size(); ++column) {
        extra_columns[column_patterns_[column].name] = column_patterns_[column].row.new_rows(size, bytes);
        extra[column] = static_cast<std::uint8_t*>(bytes);
    }
    out.columns = extra.empty() ? nullptr : extra.data();
    const nb::tuple fields = nb::make_tuple(actions, rewards, discounts, terminated, truncated, extra_columns);
    return nb::make_tuple(new_windows(nb::make_tuple(env_ids, last_positions, counts)), new_step_fields(fields));
}

}  // namespace framestow
