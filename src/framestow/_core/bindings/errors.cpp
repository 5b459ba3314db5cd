#include <nanobind/nanobind.h>

#include <exception>

#include "../damaged_segment.hpp"
#include "parts.hpp"

namespace nb = nanobind;

namespace framestow {

// Native code raises the package's own error, so that no caller has to translate.
void bind_errors() {
    static PyObject* damaged_data_error = nullptr;
    nb::object error = nb::module_::import_("framestow.errors").attr("DamagedDataError");
    damaged_data_error = error.release().ptr();
    nb::register_exception_translator(
        [](const std::exception_ptr& pointer, void*) {
            try {
                std::rethrow_exception(pointer);
            } catch (const DamagedSegment& damaged) {
                PyErr_SetString(damaged_data_error, damaged.what());
            }
        },
        nullptr);
}

}  // namespace framestow
