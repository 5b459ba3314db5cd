// Binding of FrameStacks over arrays that Python makes, borrowed while it lives. The GIL is not released.
#include <stdexcept>

#include "array_stores.hpp"
#include "parts.hpp"

namespace framestow {
BoundFrameStacks::BoundFrameStacks(nb::handle recent, nb::handle ages, const char* padding) {
    if (!recent_.borrow(recent, true) || recent_.view().ndim < 3 || !ages_.borrow(ages, true) ||
        ages_.view().itemsize != sizeof(std::int64_t) || ages_.num_rows() != recent_.num_rows()) {
        refuse("recent and ages", "do not fit: they must be (num_envs, stack, *frame) and (num_envs,) of int64");
    }
    const auto stack = static_cast<std::size_t>(recent_.view().shape[1]);
    const auto total_bytes = static_cast<std::size_t>(recent_.view().len);
    if (total_bytes == 0) {
        refuse("recent", "is empty: it must have at least one frame");
    }
    stacks_ =
        FrameStacks{recent_.values<std::uint8_t>(),           ages_.values<std::int64_t>(), recent_.num_rows(), stack,
                    total_bytes / recent_.num_rows() / stack, padding_named(padding)};
}

void BoundFrameStacks::begin(nb::handle env_ids, nb::handle frames) {
    BorrowedArray rows;
    check(env_ids, frames, rows);
    stacks_.begin(env_ids_.data(), rows.values<const std::uint8_t>(), env_ids_.size());
}

void BoundFrameStacks::append(nb::handle env_ids, nb::handle frames, nb::handle paddings, nb::handle lead_ins) {
    BorrowedArray rows;
    check(env_ids, frames, rows);
    RunStarts runs;
    runs.read(paddings, lead_ins, env_ids_.size(), stacks_.stack - 1, stacks_.frame_bytes);
    if (runs.starts() == nullptr) {
        stacks_.append(env_ids_.data(), rows.values<const std::uint8_t>(), env_ids_.size());
    } else {
        stacks_.advance(env_ids_.data(), rows.values<const std::uint8_t>(), env_ids_.size(), runs.starts());
    }
}

void BoundFrameStacks::write(nb::handle out) const {
    BorrowedArray rows;
    if (!rows.borrow(out, true) || rows.view().len != recent_.view().len) {
        refuse("out", "does not fit: it must be a writable array of the shape of recent");
    }
    stacks_.write(rows.values<std::uint8_t>());
}

// Puts the environment numbers into env_ids_ and one frame for each into `rows`.
void BoundFrameStacks::check(nb::handle env_ids, nb::handle frames, BorrowedArray& rows) {
    if (!read_env_ids(env_ids, env_ids_)) {
        refuse("env_ids", "is not an array of environment numbers: it must be integers in C order, with one axis");
    }
    for (const std::int32_t env_id : env_ids_) {
        if (static_cast<std::size_t>(env_id) >= stacks_.num_envs) {
            throw std::out_of_range("environment is " + std::to_string(env_id) + ": it must be 0 to " +
                                    std::to_string(stacks_.num_envs - 1));
        }
    }
    if (!rows.borrow(frames) || static_cast<std::size_t>(rows.view().len) != env_ids_.size() * stacks_.frame_bytes) {
        refuse("frames", "does not fit: it must be an array in C order with one frame of " +
                             std::to_string(stacks_.frame_bytes) + " bytes for each of " +
                             std::to_string(env_ids_.size()) + " environments");
    }
}

void bind_frame_stacks(nb::module_& module) {
    nb::class_<BoundFrameStacks>(module, "FrameStacks")
        .def(nb::init<nb::handle, nb::handle, const char*>(), nb::arg("recent"), nb::arg("ages"),
             nb::arg("padding") = "first_frame")
        .def("begin", &BoundFrameStacks::begin, nb::arg("env_ids"), nb::arg("frames"))
        .def("append", &BoundFrameStacks::append, nb::arg("env_ids"), nb::arg("frames"),
             nb::arg("paddings").none() = nb::none(), nb::arg("lead_ins").none() = nb::none())
        .def("write", &BoundFrameStacks::write, nb::arg("out"));
}

}  // namespace framestow
