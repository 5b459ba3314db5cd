// Checked access to arguments from Python and new NumPy arrays for results, so that the core sees plain pointers and
// counts.
//
// An argument array is borrowed for one call; nothing is cast or copied. std::invalid_argument (ValueError) and
// nb::type_error (TypeError) name the argument before anything changes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../bytes.hpp"
#include "../frame_geometry.hpp"
#include "../frame_stacks.hpp"

namespace framestow {

// Calls numpy.empty(shape, dtype): 0.13 µs, against 0.5 for an nb::ndarray with an owner. Sets `bytes` to its elements,
// which live as long as the array.
nanobind::object new_array(nanobind::handle shape, nanobind::handle dtype, void*& bytes);

// The dtypes of results, alive as long as the interpreter.
struct NumpyDtypes {
    nanobind::object boolean, uint8, int32, int64, float32, float64;
};
const NumpyDtypes& numpy_dtypes();

// The classes of framestow/_core/resolved_steps.py, and tuple.__new__; alive as long as the interpreter.
struct NamedTuples {
    nanobind::object windows, step_fields, new_tuple;
};
const NamedTuples& named_tuples();

// Returns a named tuple by tuple.__new__, since the __new__ of its class is a Python function.
nanobind::object new_named(const nanobind::object& named_tuple, const nanobind::tuple& values);

template <typename Scalar>
nanobind::object new_array(nanobind::handle shape, nanobind::handle dtype, Scalar*& values) {
    void* bytes = nullptr;
    nanobind::object array = new_array(shape, dtype, bytes);
    values = static_cast<Scalar*>(bytes);
    return array;
}

namespace nb = nanobind;

using ReadArray = nb::ndarray<nb::ro>;
using WriteArray = nb::ndarray<>;

[[noreturn]] void refuse(const char* name, const std::string& fault);

template <typename Array>
std::string shape_text(const Array& array) {
    std::string text = "(";
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
        text += std::to_string(array.shape(axis)) + (array.ndim() == 1 ? "," : axis + 1 < array.ndim() ? ", " : "");
    }
    return text + ")";
}

template <typename Array>
bool is_c_contiguous(const Array& array) {
    std::int64_t expected = 1;
    for (std::size_t axis = array.ndim(); axis-- > 0;) {
        if (array.shape(axis) != 1 && array.stride(axis) != expected) {
            return array.size() == 0;
        }
        expected *= static_cast<std::int64_t>(array.shape(axis));
    }
    return true;
}

template <typename Scalar>
constexpr const char* dtype_name() {
    return sizeof(Scalar) == 1 ? "uint8" : sizeof(Scalar) == 4 ? "int32" : "int64";
}

// Borrows an argument as a C-ordered array of `Scalar`; `Array` decides whether it must be writable.
template <typename Array, typename Scalar>
Array as_array(nb::handle argument, const char* name) {
    Array array;
    if (!nb::try_cast(argument, array, false)) {
        throw nb::type_error((std::string(name) + " is not " + (Array::ReadOnly ? "an" : "a writable") +
                              " array: it must be a NumPy array of " + dtype_name<Scalar>())
                                 .c_str());
    }
    if (array.dtype() != nb::dtype<Scalar>() || array.device_type() != nb::device::cpu::value) {
        throw nb::type_error((std::string(name) + " has another dtype than " + dtype_name<Scalar>() +
                              ": nothing is cast silently; pass " + name + ".astype(np." + dtype_name<Scalar>() + ")")
                                 .c_str());
    }
    if (!is_c_contiguous(array)) {
        refuse(name, "is not in C order: pass np.ascontiguousarray(" + std::string(name) + ")");
    }
    return array;
}

template <typename Scalar>
struct Column {  // a one-dimensional argument, with a reference to its array
    ReadArray array;
    const Scalar* values;
    std::size_t size;
};

template <typename Scalar>
Column<Scalar> as_column(nb::handle argument, const char* name) {
    ReadArray array = as_array<ReadArray, Scalar>(argument, name);
    if (array.ndim() != 1) {
        refuse(name, "has shape " + shape_text(array) + ": it must have one axis");
    }
    const std::size_t size = array.shape(0);
    const auto* values = static_cast<const Scalar*>(array.data());
    return Column<Scalar>{std::move(array), values, size};
}

// Checks that the first axes are `leading` and that the others together are one frame.
template <typename Array>
void check_frames(const Array& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes) {
    std::string wanted;
    std::size_t expected = frame_bytes;
    bool fits = array.ndim() >= leading.size();
    std::size_t axis = 0;
    for (const std::size_t length : leading) {
        wanted += std::to_string(length) + ", ";
        fits = fits && array.shape(axis) == length;
        expected *= length;
        ++axis;
    }
    if (!fits || array.size() != expected) {
        refuse(name, "has shape " + shape_text(array) + ": it must be (" + wanted + "and one frame of " +
                         std::to_string(frame_bytes) + " bytes)");
    }
}

// How each frame of a step continues or begins a run, from arguments that stay borrowed: `paddings`, uint8 with a
// RunPadding for each frame, and `lead_ins`, (frames, num_lead_ins, *frame), where only the rows of runs with lead-ins
// are read. Only the first axis of `lead_ins` may have gaps, so a part of larger observations is taken as it is.
class RunStarts {
public:
    RunStarts() = default;
    ~RunStarts();
    RunStarts(const RunStarts&) = delete;
    RunStarts& operator=(const RunStarts&) = delete;

    void read(nb::handle paddings, nb::handle lead_ins, std::size_t num_frames, std::size_t num_lead_ins,
              std::size_t frame_bytes);

    // Returns one for each frame, or null without paddings.
    const RunStart* starts() const { return starts_.empty() ? nullptr : starts_.data(); }

private:
    std::vector<RunStart> starts_;
    Py_buffer lead_ins_{};
    bool is_borrowed_ = false;
};

StackPadding padding_named(std::string_view name);

std::size_t first_axis(const ReadArray& array, const char* name);

ReadArray as_bytes(nb::handle argument, const char* name);

ByteSpan span_of(const ReadArray& array);

nb::bytes to_bytes(const std::vector<std::uint8_t>& bytes);

FrameGeometry make_geometry(std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t pixel_bytes,
                            bool channels_first = false);

}  // namespace framestow
