// What samplers do for every transition of a batch.
#include <stdexcept>

#include "arguments.hpp"
#include "new_arrays.hpp"
#include "parts.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

nb::tuple py_draw_uniformly(nb::handle random_argument, std::int64_t start, std::int64_t stop) {
    BorrowedArray random;
    if (!random.borrow(random_argument) || random.view().ndim != 1 || std::string(random.view().format) != "d") {
        refuse("random", "is not an array of float64 in C order with one axis");
    }
    if (start < 0 || stop <= start) {
        refuse("start and stop", "are " + std::to_string(start) + " and " + std::to_string(stop) +
                                     ": must hold at least one index, from 0 on");
    }
    const auto* values = random.values<const double>();
    const nb::object count = nb::int_(random.num_rows());
    std::int64_t* indices = nullptr;
    float* weights = nullptr;
    nb::object index_array = new_array(count, numpy_dtypes().int64, indices);
    nb::object weight_array = new_array(count, numpy_dtypes().float32, weights);
    // A double below 1 times a span of up to 2**53 stays below the span, however it is rounded.
    const auto span = static_cast<double>(stop - start);
    for (std::size_t row = 0; row < random.num_rows(); ++row) {
        if (!(values[row] >= 0.0 && values[row] < 1.0)) {
            refuse("random", "holds " + std::to_string(values[row]) + ": must lie in 0 to 1, 1 excluded");
        }
        indices[row] = start + static_cast<std::int64_t>(values[row] * span);
        weights[row] = 1.0F;
    }
    return nb::make_tuple(index_array, weight_array);
}

}  // namespace

void bind_draws(nb::module_& module) {
    module.def("draw_uniformly", &py_draw_uniformly, nb::arg("random"), nb::arg("start"), nb::arg("stop"));
}

}  // namespace framestow
