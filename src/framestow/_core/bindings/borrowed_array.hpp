// The one kind of array that native calls take from Python: memory of the buffer protocol, borrowed for a call. Nothing
// is cast or copied. It takes 35 ns per argument; an nb::ndarray takes 80.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "../bytes.hpp"

namespace framestow {

namespace nb = nanobind;

// Kind and size of elements in native byte order: S8 is a signed byte, U64 an unsigned integer of 64 bits.
enum class Scalar { kOther, kBool, kS8, kS16, kS32, kS64, kU8, kU16, kU32, kU64, kF16, kF32, kF64, kLongDouble };

template <typename Element>
constexpr Scalar kScalarOf = Scalar::kOther;
template <>
inline constexpr Scalar kScalarOf<std::uint8_t> = Scalar::kU8;
template <>
inline constexpr Scalar kScalarOf<std::int32_t> = Scalar::kS32;
template <>
inline constexpr Scalar kScalarOf<std::int64_t> = Scalar::kS64;
template <>
inline constexpr Scalar kScalarOf<float> = Scalar::kF32;
template <>
inline constexpr Scalar kScalarOf<double> = Scalar::kF64;

enum class Access { kRead, kWrite };

// Throws std::invalid_argument (ValueError): the argument's name, and what is wrong with it.
[[noreturn]] void refuse(const char* name, const std::string& fault);

// Borrows the memory of an array, until it borrows another one or is destroyed.
class BorrowedArray {
public:
    BorrowedArray() = default;
    // Borrows an array in C order, or bytes, with elements of that kind; kOther takes any. Throws nb::type_error or
    // std::invalid_argument, which name the argument, for all else: also for what exports no buffer, such as a tensor
    // on a device.
    BorrowedArray(nb::handle argument, const char* name, Scalar wanted, Access access = Access::kRead) {
        borrow_named(argument, name, wanted, access);
    }
    BorrowedArray(const BorrowedArray&) = delete;
    BorrowedArray& operator=(const BorrowedArray&) = delete;
    ~BorrowedArray() { release(); }

    void borrow_named(nb::handle argument, const char* name, Scalar wanted, Access access = Access::kRead);

    // They return false for any other argument, and for bytes, which NumPy reads as one string.
    bool borrow(nb::handle argument);          // in C order, with an axis
    bool borrow_any(nb::handle argument);      // in C order
    bool borrow_number(nb::handle argument);   // one number in the form of NumPy, without axes
    bool borrow_strided(nb::handle argument);  // in any order

    void release();

    const Py_buffer& view() const { return view_; }
    std::size_t num_axes() const { return static_cast<std::size_t>(view_.ndim); }
    std::size_t num_rows() const { return static_cast<std::size_t>(view_.shape[0]); }
    std::size_t nbytes() const { return static_cast<std::size_t>(view_.len); }
    Scalar scalar() const;
    std::string shape_text() const;

    // Whether the axes from `axis` on lie in C order, without gaps.
    bool is_c_ordered_from(int axis) const;

    template <typename Element>
    Element* values() const {
        return static_cast<Element*>(view_.buf);
    }
    ByteSpan bytes() const { return ByteSpan{values<const std::uint8_t>(), nbytes()}; }

private:
    bool export_buffer(nb::handle argument, int flags);

    Py_buffer view_{};  // released by the destructor if it is borrowed
    bool is_borrowed_ = false;
};

// An argument with one axis. The constructor throws an error that names any other one.
template <typename Element>
class Column {
public:
    Column(nb::handle argument, const char* name) : array_(argument, name, kScalarOf<Element>) {
        if (array_.num_axes() != 1) {
            refuse(name, "has shape " + array_.shape_text() + ": it must have one axis");
        }
    }

    std::size_t size() const { return array_.num_rows(); }
    const Element* values() const { return array_.values<const Element>(); }
    Element operator[](std::size_t row) const { return values()[row]; }
    std::vector<Element> copy() const { return std::vector<Element>(values(), values() + size()); }

private:
    BorrowedArray array_;
};

using IndexColumn = Column<std::int64_t>;

// Throws if `array` has not these first axes, and one frame in the others together.
void check_frames(const BorrowedArray& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes);

}  // namespace framestow
