// The Python module _native. Only the files of this folder include nanobind.
#include <nanobind/nanobind.h>
#include <cerrno>
#include <exception>
#include <string>

#include "../segment_files.hpp"
#include "../segment_header.hpp"
#include "../step_record.hpp"
#include "module.hpp"

namespace nb = nanobind;

namespace framestow {
namespace {

// Never released: the module lives as long as the process.
PyObject* error_class(const char* name) {
    return nb::object(nb::module_::import_("framestow.errors").attr(name)).release().ptr();
}

// Decodes a message whose path may contain any bytes.
nb::object text(const char* message) {
    return nb::steal(PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::char_traits<char>::length(message)),
                                          "backslashreplace"));
}

void raise_damaged_segment(PyObject* kind, const DamagedStoredSegment& damaged) {
    const nb::object error = nb::borrow(kind)(text(damaged.what()), damaged.env_id(), damaged.number());
    PyErr_SetObject(kind, error.ptr());
}

void raise_not_opened(const FileNotOpened& not_opened) {
#ifdef _WIN32
    PyErr_SetFromWindowsErrWithFilename(not_opened.error(), not_opened.what());
#else
    errno = not_opened.error();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, not_opened.what());
#endif
}

}  // namespace

// Native code raises the package's errors directly, so callers need no translation.
void bind_errors() {
    static PyObject* const damaged_data_error = error_class("DamagedDataError");
    static PyObject* const damaged_segment_error = error_class("DamagedSegmentError");
    nb::register_exception_translator(
        [](const std::exception_ptr& pointer, void*) {
            try {
                std::rethrow_exception(pointer);
            } catch (const DamagedStoredSegment& damaged) {
                raise_damaged_segment(damaged_segment_error, damaged);
            } catch (const DamagedSegment& damaged) {
                PyErr_SetString(damaged_data_error, damaged.what());
            } catch (const FileNotOpened& not_opened) {
                raise_not_opened(not_opened);
            }
        },
        nullptr);
}

}  // namespace framestow

namespace {

constexpr int kAbiVersion = 21;  // incremented with every change of the Python API; _core/__init__.py checks it

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Packs frames, reads windows of them, stores steps, shrinks screens.";
    module.attr("ABI_VERSION") = kAbiVersion;
    module.attr("TERMINATED") = framestow::kTerminated;
    module.attr("TRUNCATED") = framestow::kTruncated;
    module.attr("TAKEN") = framestow::kTaken;
    module.attr("BEGINS_EPISODE") = framestow::kBeginsEpisode;
    module.attr("BORDER") = framestow::kBorder;
    // A daemon thread that runs when the process ends keeps what its frames hold. nanobind calls that a leak of ours.
    nb::set_leak_warnings(false);
    module.def("set_leak_warnings", &nb::set_leak_warnings, nb::arg("enabled"));
    framestow::bind_errors();
    framestow::bind_segments(module);
    framestow::bind_frame_store(module);
    framestow::bind_steps(module);
    framestow::bind_core(module);
    framestow::bind_draws(module);
    framestow::bind_priorities(module);
    framestow::bind_output_pool(module);
    framestow::bind_palette_screen(module);
    framestow::bind_pixel_floats(module);
    framestow::bind_join_frames(module);
}
