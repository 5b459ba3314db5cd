// Binding of StepBlocks. The GIL is not released.
#include "../step_blocks.hpp"

#include <cstring>

#include "parts.hpp"
#include "staged_steps.hpp"
#include "step_sequences.hpp"

namespace framestow {
namespace {

class BoundStepBlocks : public BoundSteps<StepBlocks> {
public:
    explicit BoundStepBlocks(const StepStoreArguments& arguments) : BoundSteps<StepBlocks>(arguments) {
        const auto capacity = nb::cast<std::int64_t>(arguments.settings.attr("capacity"));
        if (capacity < 1) {
            refuse("capacity", "is " + std::to_string(capacity) + ": it must be at least 1");
        }
        core_.emplace(static_cast<std::size_t>(capacity), staged_.envs(), staged_.rules());
    }

    bool staged_exceeds_capacity() const { return core().staged_exceeds_capacity(staged_.num_staged()); }

    void evict_sealed(std::int64_t rank) {
        if (rank < 0 || static_cast<std::size_t>(rank) >= core().num_sealed()) {
            throw std::out_of_range("rank " + std::to_string(rank) + " is not one of the " +
                                    std::to_string(core().num_sealed()) + " sealed blocks");
        }
        unneeded_.push_back(core().evict_sealed(static_cast<std::size_t>(rank)));
    }

    nb::bytes records(std::int64_t env_id, std::int64_t segment) const {
        const StepBlock* block = env_id < 0 || static_cast<std::size_t>(env_id) >= core().num_envs()
                                     ? nullptr
                                     : core().find(static_cast<std::size_t>(env_id), segment);
        if (block == nullptr) {
            throw std::out_of_range("segment " + std::to_string(segment) + " of environment " + std::to_string(env_id) +
                                    " is not stored: it was evicted or never appended");
        }
        return nb::bytes(block->records.data(), block->records.size());
    }

    nb::tuple blocks() const {
        const std::vector<const StepBlock*> blocks = core().blocks();
        const nb::object count = nb::int_(blocks.size());
        std::int64_t *numbers = nullptr, *segments = nullptr;
        std::int32_t *env_ids = nullptr, *num_steps = nullptr;
        bool* are_sealed = nullptr;
        nb::object number_array = new_array(count, numpy_dtypes().int64, numbers);
        nb::object env_array = new_array(count, numpy_dtypes().int32, env_ids);
        nb::object segment_array = new_array(count, numpy_dtypes().int64, segments);
        nb::object num_steps_array = new_array(count, numpy_dtypes().int32, num_steps);
        nb::object sealed_array = new_array(count, numpy_dtypes().boolean, are_sealed);
        for (std::size_t row = 0; row < blocks.size(); ++row) {
            numbers[row] = blocks[row]->number;
            env_ids[row] = static_cast<std::int32_t>(blocks[row]->env_id);
            segments[row] = blocks[row]->segment;
            num_steps[row] = static_cast<std::int32_t>(blocks[row]->num_steps);
            are_sealed[row] = blocks[row]->is_sealed;
        }
        return nb::make_tuple(number_array, env_array, segment_array, num_steps_array, sealed_array);
    }

    nb::object first_slots() const {
        std::vector<std::int64_t> slots;
        for (const StepBlock* block : core().blocks()) {
            slots.push_back(block->first_slot);
        }
        return to_array(slots);
    }

    void restore_block(std::int64_t number, std::int64_t env_id, std::int64_t segment, nb::handle records,
                       std::int64_t first_slot) {
        const bool is_known = env_id >= 0 && static_cast<std::size_t>(env_id) < core().num_envs();
        if (!is_known || segment < 0 || number < core().next_number() ||
            core().find(static_cast<std::size_t>(env_id), segment) != nullptr) {
            refuse("number, environment and segment",
                   "are " + std::to_string(number) + ", " + std::to_string(env_id) + " and " + std::to_string(segment) +
                       ": blocks must be restored in ascending order of numbers, each once");
        }
        if (first_slot != -1 && !core().has_free_slots(first_slot)) {
            refuse("first_slot", "is " + std::to_string(first_slot) + ": it must be a multiple of " +
                                     std::to_string(core().rules().segment_frames) +
                                     " that no other block uses, or -1");
        }
        if (records.is_none()) {
            core().restore(number, static_cast<std::size_t>(env_id), segment, nullptr, first_slot);
            return;
        }
        const ReadArray bytes = as_bytes(records, "records");
        if (bytes.nbytes() != core().block_bytes()) {
            refuse("records", "has " + std::to_string(bytes.nbytes()) + " bytes: it must have those of a block, " +
                                  std::to_string(core().block_bytes()));
        }
        core().restore(number, static_cast<std::size_t>(env_id), segment, span_of(bytes).bytes, first_slot);
    }

    std::size_t lose_leading_to(std::int64_t env_id, std::int64_t position) {
        if (env_id < 0 || static_cast<std::size_t>(env_id) >= core().num_envs()) {
            refuse("env_id",
                   "is " + std::to_string(env_id) + ": it must be 0 to " + std::to_string(core().num_envs() - 1));
        }
        return core().lose_leading_to(static_cast<std::size_t>(env_id), position);
    }

    void restore_next_number(std::int64_t number) {
        if (number < core().next_number()) {
            refuse("number", "is " + std::to_string(number) + ": block " + std::to_string(core().next_number() - 1) +
                                 " exists, so it must be greater");
        }
        core().restore_next_number(number);
    }
};

void py_new_step_blocks(BoundStepBlocks* self, nb::handle settings, nb::handle env_ids) {
    new (self) BoundStepBlocks(StepStoreArguments{settings, env_ids});
}

}  // namespace

void bind_step_blocks(nb::module_& module) {
    nb::class_<BoundStepBlocks> bound(module, "StepBlocks");
    bound.def("__init__", &py_new_step_blocks, nb::arg("settings"), nb::arg("env_ids"))
        .def("evict_sealed", &BoundStepBlocks::evict_sealed, nb::arg("rank"))
        .def("records", &BoundStepBlocks::records, nb::arg("env_id"), nb::arg("segment"))
        .def("blocks", &BoundStepBlocks::blocks)
        .def("sampleable_indices",
             [](const BoundStepBlocks& self) { return to_array(self.core().sampleable_indices()); })
        .def("lost_indices", [](const BoundStepBlocks& self) { return to_array(self.core().lost_indices()); })
        .def("lose_leading_to", &BoundStepBlocks::lose_leading_to, nb::arg("env_id"), nb::arg("position"))
        .def("restore_block", &BoundStepBlocks::restore_block, nb::arg("number"), nb::arg("env_id"), nb::arg("segment"),
             nb::arg("records").none(), nb::arg("first_slot") = -1)
        .def("first_slots", &BoundStepBlocks::first_slots)
        .def("restore_next_number", &BoundStepBlocks::restore_next_number, nb::arg("number"))
        .def_prop_ro("staged_exceeds_capacity", &BoundStepBlocks::staged_exceeds_capacity)
        .def_prop_ro("num_sealed", [](const BoundStepBlocks& self) { return self.core().num_sealed(); })
        .def_prop_ro("num_steps", [](const BoundStepBlocks& self) { return self.core().num_steps(); })
        .def_prop_ro("next_number", [](const BoundStepBlocks& self) { return self.core().next_number(); })
        .def_prop_ro("nbytes", [](const BoundStepBlocks& self) { return self.core().nbytes(); });
    bind_steps(bound);
    bind_step_sequences(bound);
}

}  // namespace framestow
