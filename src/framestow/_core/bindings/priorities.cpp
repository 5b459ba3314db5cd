// Bindings of Priorities and of uniform draws. The GIL is not released.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "../priorities.hpp"
#include "arguments.hpp"
#include "module.hpp"

namespace framestow {
namespace {

TupleOf<Indices, ArrayOf<float>> py_draw_uniformly(nb::handle random_argument, std::int64_t start, std::int64_t stop) {
    const Column<double> random(random_argument, "random");
    if (start < 0 || stop <= start) {
        refuse("start and stop", "are " + std::to_string(start) + " and " + std::to_string(stop) +
                                     ": they must hold at least one index, from 0 on");
    }
    std::int64_t* indices = nullptr;
    float* weights = nullptr;
    Indices index_array = new_array(random.size(), indices);
    ArrayOf<float> weight_array = new_array(random.size(), weights);
    // A double below 1 times a span of up to 2**53 stays below the span, however it is rounded.
    const auto span = static_cast<double>(stop - start);
    for (std::size_t row = 0; row < random.size(); ++row) {
        if (!(random[row] >= 0.0 && random[row] < 1.0)) {
            refuse("random", "has " + std::to_string(random[row]) + ": it must be at least 0 and below 1");
        }
        indices[row] = start + static_cast<std::int64_t>(random[row] * span);
        weights[row] = 1.0F;
    }
    return nb::make_tuple(index_array, weight_array);
}

}  // namespace

void bind_draws(nb::module_& module) {
    module.def("draw_uniformly", &py_draw_uniformly, nb::arg("random"), nb::arg("start"), nb::arg("stop"));
}

namespace {

template <typename Real>
bool are_finite(const BorrowedArray& array) {
    const Real* values = array.values<const Real>();
    return std::all_of(values, values + array.num_rows(), [](Real value) { return std::isfinite(value); });
}

bool py_are_priorities(nb::handle indices_argument, nb::handle priorities_argument) {
    BorrowedArray indices, priorities;
    if (!indices.borrow(indices_argument) || !priorities.borrow(priorities_argument) || indices.view().ndim != 1 ||
        priorities.view().ndim != 1 || indices.num_rows() != priorities.num_rows() ||
        indices.scalar() != Scalar::kS64) {
        return false;
    }
    const Scalar scalar = priorities.scalar();
    return (scalar == Scalar::kF32 && are_finite<float>(priorities)) ||
           (scalar == Scalar::kF64 && are_finite<double>(priorities));
}

void check_count(std::size_t count, const IndexColumn& slots, const char* name) {
    if (count != slots.size()) {
        refuse(name, "has " + std::to_string(count) + " entries: it must have one for each of the " +
                         std::to_string(slots.size()) + " slots");
    }
}

class BoundPriorities {
public:
    BoundPriorities(double alpha, double epsilon) : core_(alpha, epsilon) {
        if (!(alpha >= 0.0 && std::isfinite(alpha)) || !(epsilon >= 0.0 && std::isfinite(epsilon))) {
            refuse("alpha and epsilon", "are " + std::to_string(alpha) + " and " + std::to_string(epsilon) +
                                            ": they must be finite and not negative");
        }
    }

    BoundPriorities(const BoundPriorities&) = delete;
    BoundPriorities& operator=(const BoundPriorities&) = delete;

    const Priorities& core() const { return core_; }

    void mark_changed(nb::handle slots_argument, nb::handle indices_argument) {
        const IndexColumn slots(slots_argument, "slots"), indices(indices_argument, "indices");
        check_count(indices.size(), slots, "indices");
        core_.mark_changed(slots.values(), indices.values(), slots.size());
    }

    bool update(nb::handle slots_argument, nb::handle priorities_argument) {
        const IndexColumn slots(slots_argument, "slots");
        const BorrowedArray priorities(priorities_argument, "priorities", Scalar::kOther);
        const Scalar scalar = priorities.scalar();
        if (priorities.num_axes() != 1 || (scalar != Scalar::kF32 && scalar != Scalar::kF64)) {
            refuse("priorities", "has the wrong form: it must be float32 or float64 with one axis");
        }
        check_count(priorities.num_rows(), slots, "priorities");
        return scalar == Scalar::kF32 ? core_.update(slots.values(), priorities.values<const float>(), slots.size())
                                      : core_.update(slots.values(), priorities.values<const double>(), slots.size());
    }

    TupleOf<Indices, ArrayOf<float>> draw(nb::handle random_argument, double beta) {
        const Column<double> random(random_argument, "random");
        const double* values = random.values();
        const std::size_t count = random.size();
        if (!std::all_of(values, values + count, [](double value) { return value >= 0.0 && value < 1.0; })) {
            refuse("random", "has a number outside of [0, 1): each must be at least 0 and below 1");
        }
        if (!(core_.tree().total() > 0.0)) {
            refuse("priorities", "are all zero: one must be above 0 to be drawn");
        }
        std::int64_t* slots = nullptr;
        float* corrections = nullptr;
        Indices slot_array = new_array(count, slots);
        ArrayOf<float> correction_array = new_array(count, corrections);
        core_.draw(values, count, beta, slots, corrections);
        return nb::make_tuple(slot_array, correction_array);
    }

    ArrayOf<float> weights(nb::handle slots_argument) const {
        const IndexColumn slots(slots_argument, "slots");
        float* weights = nullptr;
        ArrayOf<float> array = new_array(slots.size(), weights);
        for (std::size_t row = 0; row < slots.size(); ++row) {
            weights[row] = slots[row] < 0 ? 0.0F : core_.tree().weight(static_cast<std::size_t>(slots[row]));
        }
        return array;
    }

    void restore(nb::handle slots_argument, nb::handle weights_argument, float largest) {
        const IndexColumn slots(slots_argument, "slots");
        const Column<float> weights(weights_argument, "weights");
        check_count(weights.size(), slots, "weights");
        const float* values = weights.values();
        const auto is_weight = [](float value) { return value >= 0.0F && std::isfinite(value); };
        if (!std::all_of(values, values + slots.size(), is_weight) || !is_weight(largest)) {
            refuse("weights", "has a number that is negative or not finite: all must be finite and at least 0");
        }
        core_.restore(slots.values(), values, slots.size(), largest);
    }

private:
    Priorities core_;
};

}  // namespace

void bind_priorities(nb::module_& module) {
    module.def("are_priorities", &py_are_priorities, nb::arg("indices").none(), nb::arg("priorities").none());
    nb::class_<BoundPriorities>(module, "Priorities")
        .def(nb::init<double, double>(), nb::arg("alpha"), nb::arg("epsilon"))
        .def("mark_changed", &BoundPriorities::mark_changed, nb::arg("slots"), nb::arg("indices"))
        .def("update", &BoundPriorities::update, nb::arg("slots"), nb::arg("priorities"))
        .def("draw", &BoundPriorities::draw, nb::arg("random"), nb::arg("beta"))
        .def("weights", &BoundPriorities::weights, nb::arg("slots"))
        .def("restore", &BoundPriorities::restore, nb::arg("slots"), nb::arg("weights"), nb::arg("largest"))
        .def_prop_ro("total", [](const BoundPriorities& self) { return self.core().tree().total(); })
        .def_prop_ro("smallest", [](const BoundPriorities& self) { return self.core().tree().smallest(); })
        .def_prop_ro("largest", [](const BoundPriorities& self) { return self.core().largest(); })
        .def_prop_ro("nbytes", [](const BoundPriorities& self) { return self.core().nbytes(); });
}

}  // namespace framestow
