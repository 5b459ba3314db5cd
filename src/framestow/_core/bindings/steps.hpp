// The bound step stores, with what reads the arguments of a step.
#pragma once

#include <memory>

#include "../step_store.hpp"
#include "step_arguments.hpp"

namespace framestow {

// Returns whether each environment has an open episode, as a new array.
ArrayOf<bool> open_episodes(const EnvCursors& cursors);

// Overwrites the reward or extra fields of stored steps. Each of `fields` is an offset in a record, and the bytes that
// go there, a row for each step. If a step is repeated, its last row stays. Nothing changes if an argument is refused.
void overwrite_steps(StepStore& steps, nb::handle indices, nb::handle fields);

// As StepStore::forget; IndexError for a step that is not stored.
std::size_t forget_steps(StepStore& steps, nb::handle indices);

class BoundSteps {
public:
    StepStore& store() const { return *store_; }
    StepArguments& arguments() { return arguments_; }
    const StepRules& rules() const { return arguments_.rules(); }

    // Throws std::out_of_range for another environment.
    std::size_t checked_env(std::int64_t env_id) const;

protected:
    explicit BoundSteps(nb::handle settings) : arguments_(settings) {}

    StepArguments arguments_;
    std::unique_ptr<StepStore> store_;
};

}  // namespace framestow
