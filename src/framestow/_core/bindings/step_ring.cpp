// Binding of StepRing over slots that Python makes, borrowed while it lives. The GIL is not released.
#include "../step_ring.hpp"

#include "parts.hpp"
#include "staged_steps.hpp"
#include "step_sequences.hpp"

namespace framestow {
namespace {

class BoundStepRing : public BoundSteps<StepRing> {
public:
    BoundStepRing(nb::handle slots, const StepStoreArguments& arguments) : BoundSteps<StepRing>(arguments) {
        borrow(slots_, slots, "slots", 2, 1);
        if (static_cast<std::size_t>(slots_.view().shape[1]) != staged_.record_bytes() || slots_.num_rows() < 1) {
            refuse("slots", "has " + std::to_string(slots_.num_rows()) + " rows of " +
                                std::to_string(slots_.view().shape[1]) + " bytes: it must have at least one, of " +
                                std::to_string(staged_.record_bytes()) + " bytes, as " +
                                std::to_string(staged_.envs().num_envs) + " environments and such actions take");
        }
        core_.emplace(slots_.values<std::uint8_t>(), slots_.num_rows(), staged_.envs(), staged_.rules());
    }

    nb::list evict_for_staged() {
        core().evict_for_staged(staged_.num_staged(), unneeded_);
        return unreferenced_frames();
    }

    nb::list evict_next() {
        core().evict_segment(unneeded_);
        return unreferenced_frames();
    }

    std::size_t forget(nb::handle indices_argument) {
        return core().forget(BorrowedColumn(indices_argument, "indices").copy());
    }

    void restore_span(std::int64_t oldest, std::int64_t next_index) {
        if (oldest < 0 || next_index < oldest || static_cast<std::size_t>(next_index - oldest) > slots_.num_rows()) {
            refuse("oldest and next_index", "are " + std::to_string(oldest) + " and " + std::to_string(next_index) +
                                                ": they must span 0 to " + std::to_string(slots_.num_rows()) +
                                                " indices");
        }
        core().restore_span(oldest, next_index);
    }

    nb::object lost() const { return to_array(core().lost_indices()); }

private:
    BorrowedArray slots_;
};

void py_new_step_ring(BoundStepRing* self, nb::handle settings, nb::handle env_ids, nb::handle slots) {
    new (self) BoundStepRing(slots, StepStoreArguments{settings, env_ids});
}

}  // namespace

void bind_step_ring(nb::module_& module) {
    nb::class_<BoundStepRing> bound(module, "StepRing");
    bound.def("__init__", &py_new_step_ring, nb::arg("settings"), nb::arg("env_ids"), nb::arg("slots"))
        .def("stage_segment", &BoundStepRing::stage_segment, nb::arg("storage"), nb::arg("env_id"), nb::arg("segment"),
             nb::arg("bits"), nb::arg("actions"), nb::arg("rewards"), nb::arg("extras").none())
        .def("append_segment", &BoundStepRing::append_segment, nb::arg("storage"), nb::arg("stacks"))
        .def("evict_for_staged", &BoundStepRing::evict_for_staged)
        .def("evict_next", &BoundStepRing::evict_next)
        .def("forget", &BoundStepRing::forget, nb::arg("indices"))
        .def("restore_span", &BoundStepRing::restore_span, nb::arg("oldest"), nb::arg("next_index"))
        .def_prop_ro("lost", &BoundStepRing::lost)
        .def_prop_ro("oldest", [](const BoundStepRing& self) { return self.core().oldest(); })
        .def_prop_ro("next_index", [](const BoundStepRing& self) { return self.core().next_index(); });
    bind_steps(bound);
    bind_step_sequences(bound);
}

}  // namespace framestow
