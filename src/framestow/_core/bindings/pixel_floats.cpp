// Binding of write_pixel_floats over a batch.
#include "../pixel_floats.hpp"

#include "arguments.hpp"
#include "module.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

std::size_t side(const Py_buffer& view, int axis) { return static_cast<std::size_t>(view.shape[axis]); }

// `pixels`: (batch, channels, height, width), whole planes in any order. `floats`: the same, channels last.
void py_write_pixel_floats(nb::handle pixels_argument, nb::handle floats_argument) {
    BorrowedArray pixels;
    const Py_buffer& view = pixels.view();
    if (!pixels.borrow_strided(pixels_argument) || pixels.scalar() != Scalar::kU8 || view.ndim != 4 ||
        !pixels.is_c_ordered_from(2)) {
        refuse("pixels",
               "does not fit: it must be an array of uint8, (batch, channels, height, width), each plane in C order");
    }
    const std::size_t rows = pixels.num_rows(), channels = side(view, 1), height = side(view, 2), width = side(view, 3);
    const BorrowedArray floats(floats_argument, "floats", Scalar::kF32, Access::kWrite);
    check_frames(floats, "floats", {rows, height, width, channels}, sizeof(float));
    const auto* from = pixels.values<const std::uint8_t>();
    auto* to = floats.values<float>();
    const ReleaseGil released;
    for (std::size_t row = 0; row < rows; ++row) {
        write_pixel_floats(from + static_cast<Py_ssize_t>(row) * view.strides[0], view.strides[1], channels,
                           height * width, to + row * height * width * channels);
    }
}

}  // namespace

void bind_pixel_floats(nb::module_& module) {
    module.def("write_pixel_floats", &py_write_pixel_floats, nb::arg("pixels"), nb::arg("floats"));
}

}  // namespace framestow
