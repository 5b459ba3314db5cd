#include "arguments.hpp"

namespace framestow {
namespace {

// Never destroyed: the references cannot be released after the interpreter has ended.
template <typename Value, typename Make>
const Value& kept(Make make) {
    static const Value* value = new Value(make());
    return *value;
}

}  // namespace

nb::object new_array(nb::handle shape, nb::handle dtype, void*& bytes) {
    const nb::object& empty = kept<nb::object>([] { return nb::object(nb::module_::import_("numpy").attr("empty")); });
    nb::object array = empty(shape, dtype);
    Py_buffer view;
    if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_WRITABLE) != 0) {
        throw nb::python_error();
    }
    bytes = view.buf;
    PyBuffer_Release(&view);  // the array owns its memory and stays where it is
    return array;
}

AnyArray array_over(nb::handle shape, nb::handle dtype, nb::handle memory) {
    const nb::object& ndarray =
        kept<nb::object>([] { return nb::object(nb::module_::import_("numpy").attr("ndarray")); });
    return nb::steal<AnyArray>(ndarray(shape, dtype, memory).release());
}

nb::object numpy_dtype(nb::handle dtype_like) {
    return kept<nb::object>([] { return nb::object(nb::module_::import_("numpy").attr("dtype")); })(dtype_like);
}

#define FRAMESTOW_DTYPE(Scalar, name)                                       \
    const nb::object& Numpy<Scalar>::dtype() {                              \
        return kept<nb::object>([] { return numpy_dtype(nb::str(name)); }); \
    }
FRAMESTOW_DTYPE(bool, "bool")
FRAMESTOW_DTYPE(std::uint8_t, "uint8")
FRAMESTOW_DTYPE(std::int32_t, "int32")
FRAMESTOW_DTYPE(std::int64_t, "int64")
FRAMESTOW_DTYPE(float, "float32")
FRAMESTOW_DTYPE(double, "float64")
#undef FRAMESTOW_DTYPE

namespace {

struct NamedTuples {
    nb::object windows, step_fields, new_tuple;
};

const NamedTuples& named_tuples() {
    return kept<NamedTuples>([] {
        const nb::module_ classes = nb::module_::import_("framestow._core.resolved_steps");
        const nb::handle tuple(reinterpret_cast<PyObject*>(&PyTuple_Type));
        return NamedTuples{classes.attr("Windows"), classes.attr("StepFields"), tuple.attr("__new__")};
    });
}

}  // namespace

WindowsTuple new_windows(const nb::tuple& values) {
    return nb::steal<WindowsTuple>(named_tuples().new_tuple(named_tuples().windows, values).release());
}

StepFieldsTuple new_step_fields(const nb::tuple& values) {
    return nb::steal<StepFieldsTuple>(named_tuples().new_tuple(named_tuples().step_fields, values).release());
}

StackPadding padding_named(std::string_view name) {
    if (name == "first_frame") {
        return StackPadding::kFirstFrame;
    }
    if (name != "zeros") {
        refuse("padding", "is '" + std::string(name) + "': it must be 'first_frame' or 'zeros'");
    }
    return StackPadding::kZeros;
}

nb::bytes to_bytes(const std::vector<std::uint8_t>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

FrameGeometry make_geometry(std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t pixel_bytes,
                            bool channels_first) {
    const FrameGeometry geometry{rows, row_bytes, pixel_bytes, channels_first};
    check_geometry(geometry);
    return geometry;
}

}  // namespace framestow
