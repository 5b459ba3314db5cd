#include "new_arrays.hpp"

namespace nb = nanobind;

namespace framestow {
namespace {

// Never destroyed: at the interpreter's end there is no Python left to give the references back to.
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
        return NumpyDtypes{dtype("bool"), dtype("int32"), dtype("int64"), dtype("float32"), dtype("float64")};
    });
}

}  // namespace framestow
