// Binding of write_pixel_floats over a batch.
#include "../pixel_floats.hpp"

#include "arguments.hpp"
#include "parts.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

using Pixels = nb::ndarray<nb::ro, const std::uint8_t, nb::ndim<4>, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

void py_write_pixel_floats(const Pixels& pixels, const Floats& floats) {
    const std::size_t rows = pixels.shape(0), channels = pixels.shape(1);
    const std::size_t height = pixels.shape(2), width = pixels.shape(3);
    if (floats.shape(0) != rows || floats.shape(1) != height || floats.shape(2) != width ||
        floats.shape(3) != channels) {
        refuse("floats", "has shape " + shape_text(floats) + ": it must have that of pixels, channels last");
    }
    if (pixels.stride(3) != 1 || pixels.stride(2) != static_cast<std::int64_t>(width)) {
        refuse("pixels", "has gaps in a plane: pass np.ascontiguousarray(pixels)");
    }
    const ReleaseGil released;
    for (std::size_t row = 0; row < rows; ++row) {
        write_pixel_floats(pixels.data() + static_cast<std::int64_t>(row) * pixels.stride(0), pixels.stride(1),
                           channels, height * width, floats.data() + row * height * width * channels);
    }
}

}  // namespace

void bind_pixel_floats(nb::module_& module) {
    module.def("write_pixel_floats", &py_write_pixel_floats, nb::arg("pixels").noconvert(),
               nb::arg("floats").noconvert());
}

}  // namespace framestow
