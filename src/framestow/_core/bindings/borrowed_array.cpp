#include "borrowed_array.hpp"

#include <stdexcept>

namespace framestow {
namespace {

constexpr const char* kDtypeNames[] = {"another dtype", "bool",    "int8",    "int16",     "int32",
                                       "int64",         "uint8",   "uint16",  "uint32",    "uint64",
                                       "float16",       "float32", "float64", "longdouble"};

Scalar of_size(Py_ssize_t bytes, Scalar one, Scalar two, Scalar four, Scalar eight) {
    return bytes == 1 ? one : bytes == 2 ? two : bytes == 4 ? four : bytes == 8 ? eight : Scalar::kOther;
}

[[noreturn]] void refuse_type(const std::string& fault) { throw nb::type_error(fault.c_str()); }

}  // namespace

void refuse(const char* name, const std::string& fault) {
    throw std::invalid_argument(std::string(name) + " " + fault);
}

Scalar BorrowedArray::scalar() const {
    const char* const format = view_.format;
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
            return of_size(view_.itemsize, Scalar::kS8, Scalar::kS16, Scalar::kS32, Scalar::kS64);
        case 'B':
        case 'H':
        case 'I':
        case 'L':
        case 'Q':
            return of_size(view_.itemsize, Scalar::kU8, Scalar::kU16, Scalar::kU32, Scalar::kU64);
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

void BorrowedArray::release() {
    if (is_borrowed_) {
        PyBuffer_Release(&view_);
        is_borrowed_ = false;
    }
}

bool BorrowedArray::export_buffer(nb::handle argument, int flags) {
    release();
    if (PyObject_GetBuffer(argument.ptr(), &view_, PyBUF_FORMAT | flags) != 0) {
        PyErr_Clear();
        return false;
    }
    is_borrowed_ = true;
    return true;
}

bool BorrowedArray::borrow(nb::handle argument) { return borrow_any(argument) && view_.ndim > 0; }

bool BorrowedArray::borrow_any(nb::handle argument) {
    return !PyBytes_Check(argument.ptr()) && !PyByteArray_Check(argument.ptr()) &&
           export_buffer(argument, PyBUF_C_CONTIGUOUS);
}

bool BorrowedArray::borrow_number(nb::handle argument) { return borrow_any(argument) && view_.ndim == 0; }

bool BorrowedArray::borrow_strided(nb::handle argument) { return export_buffer(argument, PyBUF_STRIDES); }

void BorrowedArray::borrow_named(nb::handle argument, const char* name, Scalar wanted, Access access) {
    const int writable = access == Access::kWrite ? PyBUF_WRITABLE : 0;
    const bool is_whole = export_buffer(argument, PyBUF_C_CONTIGUOUS | writable);
    if (is_whole && (wanted == Scalar::kOther || scalar() == wanted)) {
        return;
    }
    const std::string dtype = wanted == Scalar::kOther ? "" : kDtypeNames[static_cast<int>(wanted)];
    if (!is_whole && !export_buffer(argument, PyBUF_STRIDES | writable)) {
        refuse_type(std::string(name) + " is not " + (writable != 0 ? "a writable" : "an") +
                    " array: it must be a NumPy array" + (dtype.empty() ? "" : " of " + dtype));
    }
    if (wanted != Scalar::kOther && scalar() != wanted) {
        refuse_type(std::string(name) + " has another dtype than " + dtype + ": nothing is cast silently; pass " +
                    name + ".astype(np." + dtype + ")");
    }
    refuse(name, "is not in C order: pass np.ascontiguousarray(" + std::string(name) + ")");
}

std::string BorrowedArray::shape_text() const {
    std::string text = "(";
    for (int axis = 0; axis < view_.ndim; ++axis) {
        text += std::to_string(view_.shape[axis]) + (view_.ndim == 1 ? "," : axis + 1 < view_.ndim ? ", " : "");
    }
    return text + ")";
}

bool BorrowedArray::is_c_ordered_from(int axis) const {
    Py_ssize_t expected = view_.itemsize;
    for (int inner = view_.ndim; --inner >= axis;) {
        if (view_.shape[inner] != 1 && view_.strides[inner] != expected) {
            return false;
        }
        expected *= view_.shape[inner];
    }
    return true;
}

void check_frames(const BorrowedArray& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes) {
    bool fits = array.num_axes() >= leading.size();
    std::size_t axis = 0, expected = frame_bytes;
    std::string wanted;
    for (const std::size_t length : leading) {
        fits = fits && static_cast<std::size_t>(array.view().shape[axis]) == length;
        expected *= length;
        wanted += std::to_string(length) + ", ";
        ++axis;
    }
    if (!fits || array.nbytes() != expected) {
        refuse(name, "has shape " + array.shape_text() + " and " + std::to_string(array.nbytes()) +
                         " bytes: it must have the shape (" + wanted + "*frame) with frames of " +
                         std::to_string(frame_bytes) + " bytes");
    }
}

}  // namespace framestow
