#include "arguments.hpp"

namespace nb = nanobind;

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

const NumpyDtypes& numpy_dtypes() {
    return kept<NumpyDtypes>([] {
        const nb::object dtype = nb::module_::import_("numpy").attr("dtype");
        return NumpyDtypes{dtype("bool"), dtype("uint8"), dtype("int32"), dtype("int64"), dtype("float32"), dtype("float64")};
    });
}

void refuse(const char* name, const std::string& fault) {
    throw std::invalid_argument(std::string(name) + " " + fault);
}

StackPadding padding_named(std::string_view name) {
    if (name == "first_frame") {
        return StackPadding::kFirstFrame;
    }
    if (name != "zeros") {
        refuse("padding", "is '" + std::string(name) + "': must be 'first_frame' or 'zeros'");
    }
    return StackPadding::kZeros;
}

std::size_t first_axis(const ReadArray& array, const char* name) {
    if (array.ndim() == 0) {
        refuse(name, "has no axis: must have a first axis that counts the frames");
    }
    return array.shape(0);
}

ReadArray as_bytes(nb::handle argument, const char* name) { return as_array<ReadArray, std::uint8_t>(argument, name); }

ByteSpan span_of(const ReadArray& array) {
    return ByteSpan{static_cast<const std::uint8_t*>(array.data()), array.size()};
}

nb::bytes to_bytes(const std::vector<std::uint8_t>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

FrameGeometry make_geometry(std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t pixel_bytes,
                            bool channels_first) {
    const FrameGeometry geometry{rows, row_bytes, pixel_bytes, channels_first};
    check_geometry(geometry);
    return geometry;
}

}  // namespace framestow
