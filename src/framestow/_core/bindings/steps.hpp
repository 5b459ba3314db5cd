// The bound step stores, with what reads the arguments of a step.
#pragma once

#include <memory>

#include "../step_store.hpp"
#include "step_arguments.hpp"

namespace framestow {

// Returns whether each environment has an open episode, as a new array.
ArrayOf<bool> open_episodes(const EnvCursors& cursors);

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
