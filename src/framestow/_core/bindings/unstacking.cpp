// Binding of the comparison of stacked observations with the frames that an environment stored before.
#include "../unstacking.hpp"

#include <string>

#include "arguments.hpp"
#include "parts.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

constexpr std::uint8_t kContinues = 1, kShifted = 2;  // bits of the flags

FrameStacks stacks_of(BorrowedArray& recent, BorrowedArray& ages, const char* padding) {
    if (recent.view().ndim < 3 || recent.view().len == 0 || ages.view().itemsize != sizeof(std::int64_t) ||
        ages.num_rows() != recent.num_rows()) {
        refuse("recent and ages", "do not fit: must be (num_envs, stack, *frame) and (num_envs,) of int64");
    }
    const auto stack = static_cast<std::size_t>(recent.view().shape[1]);
    const std::size_t frame_bytes = static_cast<std::size_t>(recent.view().len) / recent.num_rows() / stack;
    return FrameStacks{
        recent.values<std::uint8_t>(), ages.values<std::int64_t>(), recent.num_rows(), stack, frame_bytes,
        padding_named(padding)};
}

bool unstack(nb::handle recent, nb::handle ages, const char* padding, nb::handle env_ids, nb::handle is_open,
             nb::handle observations, nb::handle next_observations, std::size_t depth, std::size_t piece_bytes,
             nb::handle frames, nb::handle flags) {
    BorrowedArray ring, age, numbers, open, now, next, newest, relations;
    if (!ring.borrow(recent) || !age.borrow(ages) || !numbers.borrow(env_ids) || !open.borrow(is_open) ||
        !now.borrow(observations) || !next.borrow(next_observations) || !newest.borrow(frames, true) ||
        !relations.borrow(flags, true)) {
        refuse("an argument", "does not fit: all must be arrays in C order, and frames and flags writable");
    }
    const FrameStacks stacks = stacks_of(ring, age, padding);
    const std::size_t count = numbers.num_rows();
    if (depth < 1 || depth > stacks.stack || piece_bytes < 1 || stacks.frame_bytes % piece_bytes != 0) {
        refuse("depth and piece_bytes", "do not fit: must be 1 to stack, and a divisor of a frame's bytes");
    }
    const StackedLayout layout{stacks.frame_bytes, depth, piece_bytes};
    const std::size_t observation_bytes = depth * stacks.frame_bytes;
    const auto has_bytes = [](const BorrowedArray& array, std::size_t bytes) {
        return static_cast<std::size_t>(array.view().len) == bytes;
    };
    if (!has_bytes(numbers, count * sizeof(std::int32_t)) || !has_bytes(open, stacks.num_envs) ||
        !has_bytes(now, count * observation_bytes) || !has_bytes(next, count * observation_bytes) ||
        !has_bytes(newest, count * stacks.frame_bytes) || !has_bytes(relations, count)) {
        refuse("an argument", "does not fit: must be " + std::to_string(count) + " observations of " +
                                  std::to_string(observation_bytes) +
                                  " bytes, int32 environments, and a byte for each flag");
    }
    const auto* const env_id_values = numbers.values<const std::int32_t>();
    auto* const bits = relations.values<std::uint8_t>();
    bool are_usual = true;
    for (std::size_t row = 0; row < count; ++row) {
        const auto env_id = static_cast<std::size_t>(env_id_values[row]);
        if (env_id >= stacks.num_envs) {
            refuse("env_ids",
                   "has " + std::to_string(env_id_values[row]) + ": must be below " + std::to_string(stacks.num_envs));
        }
        const std::uint8_t* const observation = now.values<const std::uint8_t>() + row * observation_bytes;
        const std::uint8_t* const following = next.values<const std::uint8_t>() + row * observation_bytes;
        const bool is_begun = open.values<const std::uint8_t>()[env_id] != 0 && stacks.ages[env_id] >= 0;
        if (!is_begun || !shows_newest_frames(stacks, env_id, observation, layout)) {
            bits[row] = static_cast<std::uint8_t>(bits[row] & ~kContinues);
        }
        if (!is_shifted(observation, following, layout)) {
            bits[row] = static_cast<std::uint8_t>(bits[row] & ~kShifted);
        }
        are_usual = are_usual && bits[row] == (kContinues | kShifted);
        copy_newest_frame(following, layout, newest.values<std::uint8_t>() + row * stacks.frame_bytes);
    }
    return are_usual;
}

}  // namespace

void bind_unstacking(nb::module_& module) {
    module.def("unstack", &unstack, nb::arg("recent"), nb::arg("ages"), nb::arg("padding"), nb::arg("env_ids"),
               nb::arg("is_open"), nb::arg("observations"), nb::arg("next_observations"), nb::arg("depth"),
               nb::arg("piece_bytes"), nb::arg("frames"), nb::arg("flags"));
}

}  // namespace framestow
