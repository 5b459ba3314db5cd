// Bindings of ../step_sequences.hpp for the step stores. The GIL is not released.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../step_sequences.hpp"
#include "arguments.hpp"
#include "staged_steps.hpp"

namespace framestow {

constexpr std::int64_t kLongest = std::int64_t{1} << 32;  // steps: more frames than an environment can store

// Returns the place of a readable step; throws std::out_of_range for another one.
template <typename Core>
StepPlace located(const Core& core, std::int64_t index) {
    StepPlace place{};
    if (!core.locate(index, place)) {
        throw std::out_of_range("transition " + std::to_string(index) +
                                " is not stored: it was evicted or never appended");
    }
    return place;
}

template <typename Core>
nb::tuple py_step_sequences(const Core& core, nb::handle indices_argument, std::int64_t length, bool crosses) {
    const BorrowedColumn starts(indices_argument, "indices");
    if (length < 1 || length > kLongest) {
        refuse("length", "is " + std::to_string(length) + ": it must be 1 to " + std::to_string(kLongest));
    }
    const nb::tuple shape = nb::make_tuple(starts.size(), length);
    std::int64_t* indices = nullptr;
    bool* is_first = nullptr;
    nb::object index_array = new_array(shape, numpy_dtypes().int64, indices);
    nb::object first_array = new_array(shape, numpy_dtypes().boolean, is_first);
    const auto steps = static_cast<std::size_t>(length);
    for (std::size_t row = 0; row < starts.size(); ++row) {
        step_sequence(core, starts[row], steps, crosses ? EpisodeEnds::kCross : EpisodeEnds::kStop,
                      indices + row * steps, is_first + row * steps);
    }
    return nb::make_tuple(index_array, first_array);
}

template <typename Core>
nb::object py_aligned_starts(const Core& core, nb::handle indices_argument, std::int64_t stride, bool exact) {
    const BorrowedColumn indices(indices_argument, "indices");
    if (stride < 1) {
        refuse("stride", "is " + std::to_string(stride) + ": it must be at least 1");
    }
    std::int64_t* starts = nullptr;
    nb::object array = new_array(nb::int_(indices.size()), numpy_dtypes().int64, starts);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        starts[row] = aligned_start(core, indices[row], stride, exact);
    }
    return array;
}

template <typename Core>
nb::object py_find_steps(const Core& core, nb::handle env_ids_argument, nb::handle positions_argument) {
    const BorrowedColumn env_ids(env_ids_argument, "env_ids"), positions(positions_argument, "positions");
    if (env_ids.size() != positions.size()) {
        refuse("positions", "has " + std::to_string(positions.size()) +
                                " entries: it must have as many as environments, " + std::to_string(env_ids.size()));
    }
    std::int64_t* indices = nullptr;
    nb::object array = new_array(nb::int_(env_ids.size()), numpy_dtypes().int64, indices);
    for (std::size_t row = 0; row < env_ids.size(); ++row) {
        StepPlace place{};
        const bool is_known = env_ids[row] >= 0 && static_cast<std::size_t>(env_ids[row]) < core.num_envs();
        const bool is_found = is_known && core.find(static_cast<std::size_t>(env_ids[row]), positions[row], place);
        indices[row] = is_found ? place.index : kNoStep;
    }
    return array;
}

template <typename Core>
nb::tuple py_places(const Core& core, nb::handle indices_argument) {
    const BorrowedColumn indices(indices_argument, "indices");
    std::int64_t *env_ids = nullptr, *positions = nullptr;
    const nb::object count = nb::int_(indices.size());
    nb::object env_array = new_array(count, numpy_dtypes().int64, env_ids);
    nb::object position_array = new_array(count, numpy_dtypes().int64, positions);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        StepPlace place{};
        const bool is_here = core.locate(indices[row], place);
        env_ids[row] = is_here ? static_cast<std::int64_t>(place.env_id) : kNoStep;
        positions[row] = is_here ? place.position : kNoPosition;
    }
    return nb::make_tuple(env_array, position_array);
}

template <typename Core>
nb::object py_flags_of(const Core& core, nb::handle indices_argument) {
    const BorrowedColumn indices(indices_argument, "indices");
    std::uint8_t* flags = nullptr;
    nb::object array = new_array(nb::int_(indices.size()), numpy_dtypes().uint8, flags);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        const std::uint8_t of_step = StepRecords::flags_of(core.record(located(core, indices[row])));
        flags[row] = static_cast<std::uint8_t>(of_step & ~kTaken);
    }
    return array;
}

template <typename Core>
nb::tuple py_episode_spans(const Core& core, nb::handle indices_argument) {
    const BorrowedColumn indices(indices_argument, "indices");
    const nb::object count = nb::int_(indices.size());
    std::int64_t *env_ids = nullptr, *positions = nullptr, *firsts = nullptr, *lasts = nullptr;
    nb::object env_array = new_array(count, numpy_dtypes().int64, env_ids);
    nb::object position_array = new_array(count, numpy_dtypes().int64, positions);
    nb::object first_array = new_array(count, numpy_dtypes().int64, firsts);
    nb::object last_array = new_array(count, numpy_dtypes().int64, lasts);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        const StepPlace place = located(core, indices[row]);
        const std::int64_t behind = core.episode_starts().start_behind(place.env_id, place.position);
        env_ids[row] = static_cast<std::int64_t>(place.env_id);
        positions[row] = place.position;
        firsts[row] = std::max<std::int64_t>(core.episode_starts().start_of(place.env_id, place.position), 0);
        lasts[row] = behind == kNoPosition ? core.cursors().newest_position(place.env_id) : behind - 1;
    }
    return nb::make_tuple(env_array, position_array, first_array, last_array);
}

template <typename Core>
nb::object py_returns_to_go(const Core& core, nb::handle indices_argument, double discount) {
    const BorrowedColumn indices(indices_argument, "indices");
    if (!std::isfinite(discount)) {
        refuse("discount", "is not finite: it must be a finite number");
    }
    double* returns = nullptr;
    nb::object array = new_array(nb::int_(indices.size()), numpy_dtypes().float64, returns);
    returns_to_go(core, indices.values(), indices.size(), discount, returns);
    return array;
}

template <typename Core>
nb::object py_sampleable_after(const Core& core, std::int64_t after, std::int64_t count) {
    return to_array(core.sampleable_after(after, count < 0 ? 0 : static_cast<std::size_t>(count)));
}

template <typename Core>
nb::tuple py_readable_runs(Core& core) {
    const std::vector<StepRun> runs = core.readable_runs();
    const nb::object count = nb::int_(runs.size());
    std::int64_t *env_ids = nullptr, *positions = nullptr, *num_steps = nullptr, *episodes = nullptr;
    bool *are_whole = nullptr, *are_open = nullptr;
    nb::object env_array = new_array(count, numpy_dtypes().int64, env_ids);
    nb::object position_array = new_array(count, numpy_dtypes().int64, positions);
    nb::object num_steps_array = new_array(count, numpy_dtypes().int64, num_steps);
    nb::object whole_array = new_array(count, numpy_dtypes().boolean, are_whole);
    nb::object open_array = new_array(count, numpy_dtypes().boolean, are_open);
    nb::object episode_array = new_array(count, numpy_dtypes().int64, episodes);
    for (std::size_t row = 0; row < runs.size(); ++row) {
        episodes[row] = runs[row].episode;
        env_ids[row] = static_cast<std::int64_t>(runs[row].env_id);
        positions[row] = runs[row].position;
        num_steps[row] = runs[row].num_steps;
        are_whole[row] = runs[row].is_whole;
        are_open[row] = runs[row].is_open;
    }
    return nb::make_tuple(env_array, position_array, num_steps_array, whole_array, open_array, episode_array);
}

template <typename Core>
nb::tuple py_starts(const Core& core) {
    std::vector<std::int64_t> counts, positions;
    for (std::size_t env_id = 0; env_id < core.num_envs(); ++env_id) {
        const EpisodeStarts& starts = core.episode_starts();
        counts.push_back(static_cast<std::int64_t>(starts.size(env_id)));
        positions.insert(positions.end(), starts.begin(env_id), starts.end(env_id));
    }
    return nb::make_tuple(to_array(counts), to_array(positions));
}

template <typename Core>
void py_restore_starts(Core& core, nb::handle counts_argument, nb::handle positions_argument) {
    const BorrowedColumn counts(counts_argument, "counts"), positions(positions_argument, "positions");
    std::int64_t left = static_cast<std::int64_t>(positions.size());
    for (std::size_t env_id = 0; env_id < counts.size(); ++env_id) {
        left = counts[env_id] < 0 || counts[env_id] > left ? -1 : left - counts[env_id];
    }
    if (counts.size() != core.num_envs() || left != 0) {
        refuse("counts", "does not fit: it must divide " + std::to_string(positions.size()) + " starts among " +
                             std::to_string(core.num_envs()) + " environments");
    }
    const std::int64_t* next = positions.values();
    for (std::size_t env_id = 0; env_id < counts.size(); ++env_id) {
        core.restore_starts(env_id, std::vector<std::int64_t>(next, next + counts[env_id]));
        next += counts[env_id];
    }
}

template <typename Bound>
void bind_step_sequences(nb::class_<Bound>& bound) {
    bound
        .def(
            "follow",
            [](const Bound& self, nb::handle indices, std::int64_t length, bool crosses) {
                return py_step_sequences(self.core(), indices, length, crosses);
            },
            nb::arg("indices"), nb::arg("length"), nb::arg("crosses") = false)
        .def(
            "aligned_starts",
            [](const Bound& self, nb::handle indices, std::int64_t stride, bool exact) {
                return py_aligned_starts(self.core(), indices, stride, exact);
            },
            nb::arg("indices"), nb::arg("stride"), nb::arg("exact") = false)
        .def(
            "find_steps",
            [](const Bound& self, nb::handle env_ids, nb::handle positions) {
                return py_find_steps(self.core(), env_ids, positions);
            },
            nb::arg("env_ids"), nb::arg("positions"))
        .def(
            "places", [](const Bound& self, nb::handle indices) { return py_places(self.core(), indices); },
            nb::arg("indices"))
        .def(
            "flags_of", [](const Bound& self, nb::handle indices) { return py_flags_of(self.core(), indices); },
            nb::arg("indices"))
        .def(
            "episode_spans",
            [](const Bound& self, nb::handle indices) { return py_episode_spans(self.core(), indices); },
            nb::arg("indices"))
        .def(
            "returns_to_go",
            [](const Bound& self, nb::handle indices, double discount) {
                return py_returns_to_go(self.core(), indices, discount);
            },
            nb::arg("indices"), nb::arg("discount"))
        .def(
            "sampleable_after",
            [](const Bound& self, std::int64_t after, std::int64_t count) {
                return py_sampleable_after(self.core(), after, count);
            },
            nb::arg("after"), nb::arg("count"))
        .def("readable_runs", [](Bound& self) { return py_readable_runs(self.core()); })
        .def("starts", [](const Bound& self) { return py_starts(self.core()); })
        .def(
            "restore_starts",
            [](Bound& self, nb::handle counts, nb::handle positions) {
                py_restore_starts(self.core(), counts, positions);
            },
            nb::arg("counts"), nb::arg("positions"))
        .def("rebuild_starts", [](Bound& self) { self.core().rebuild_starts(); })
        .def_prop_ro("starts_nbytes", [](const Bound& self) { return self.core().episode_starts().nbytes(); });
}

}  // namespace framestow
