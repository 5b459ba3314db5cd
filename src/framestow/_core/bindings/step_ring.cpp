// StepRing, over arrays that Python makes: the ring borrows them for as long as it lives. The GIL is kept.
#include "../step_ring.hpp"

#include <optional>
#include <stdexcept>

#include "arguments.hpp"
#include "new_arrays.hpp"
#include "parts.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

constexpr std::int64_t kMaxStack = 256;  // the history of a slot is one byte

// A ring, the arrays that it works on, and the step that was checked and waits to be appended.
class BoundStepRing {
public:
    BoundStepRing(nb::handle slots, nb::handle newest_positions, nb::handle episode_starts, nb::handle is_open,
                  nb::handle actions_like, nb::handle frames_like, nb::object action_range, const RingRules& rules);

    StepRing& ring() { return *ring_; }
    const StepRing& ring() const { return *ring_; }

    bool begin(nb::handle streams);
    bool stage(nb::handle streams, nb::handle actions, nb::handle rewards, nb::handle terminated,
               nb::handle truncated, nb::handle frames);
    nb::list make_room();
    std::int64_t append_staged();
    nb::tuple resolve(nb::handle indices) const;

private:
    bool read_step(nb::handle streams, nb::handle actions, nb::handle rewards, nb::handle terminated,
                   nb::handle truncated, nb::handle frames);

    BorrowedArray slots_, newest_positions_, episode_starts_, is_open_;
    RowPattern action_pattern_, frame_pattern_;
    std::optional<ActionRange> action_range_;
    std::optional<StepRing> ring_;

    std::vector<std::int32_t> all_streams_;
    std::vector<std::int32_t> streams_;
    std::vector<float> rewards_;
    std::vector<std::uint8_t> actions_;
    std::vector<std::uint8_t> flags_;
    std::size_t num_staged_ = 0;
    std::vector<Eviction> evictions_;

    nb::object action_dtype_;
    nb::tuple action_shape_;
};

void borrow(BorrowedArray& array, nb::handle argument, const char* name, int num_axes, Py_ssize_t item_bytes) {
    if (!array.borrow(argument, true) || array.view().ndim != num_axes || array.view().itemsize != item_bytes) {
        refuse(name, "is not a writable array of " + std::to_string(num_axes) + " axes and items of " +
                         std::to_string(item_bytes) + " bytes in C order: see replay/timeline.py");
    }
}

BoundStepRing::BoundStepRing(nb::handle slots, nb::handle newest_positions, nb::handle episode_starts,
                             nb::handle is_open, nb::handle actions_like, nb::handle frames_like,
                             nb::object action_range, const RingRules& rules)
    : action_pattern_(actions_like), frame_pattern_(frames_like) {
    borrow(slots_, slots, "slots", 2, 1);
    borrow(newest_positions_, newest_positions, "newest_positions", 1, sizeof(std::int64_t));
    borrow(episode_starts_, episode_starts, "episode_starts", 1, sizeof(std::int64_t));
    borrow(is_open_, is_open, "is_open", 1, sizeof(bool));
    const std::size_t num_streams = is_open_.num_rows();
    RingRules own_rules = rules;
    own_rules.action = ActionLayout{action_pattern_.row_bytes(), !action_range.is_none(),
                                    action_pattern_.format().find_first_of("bhilq") != std::string::npos};
    const std::size_t record_bytes = StepRing::record_bytes(num_streams, own_rules.action.bytes);
    if (static_cast<std::size_t>(slots_.view().shape[1]) != record_bytes || slots_.num_rows() < 1 ||
        num_streams < 1 || newest_positions_.num_rows() != num_streams || episode_starts_.num_rows() != num_streams) {
        refuse("slots", "has rows of " + std::to_string(slots_.view().shape[1]) + " bytes: " +
                            std::to_string(num_streams) + " streams and such actions take " +
                            std::to_string(record_bytes) + ", and every array of streams one entry a stream");
    }
    if (rules.stack < 1 || rules.stack > kMaxStack || rules.segment_frames < 1) {
        refuse("stack and segment_frames", "are " + std::to_string(rules.stack) + " and " +
                                               std::to_string(rules.segment_frames) +
                                               ": must be 1 to 256 and at least 1");
    }
    if (own_rules.action.is_counted) {
        action_range_ = ActionRange{nb::cast<std::int64_t>(action_range[0]), nb::cast<std::int64_t>(action_range[1])};
    }
    ring_.emplace(RingMemory{slots_.values<std::uint8_t>(), newest_positions_.values<std::int64_t>(),
                             episode_starts_.values<std::int64_t>(), is_open_.values<bool>(), slots_.num_rows(),
                             num_streams},
                  own_rules);
    for (std::size_t stream = 0; stream < num_streams; ++stream) {
        all_streams_.push_back(static_cast<std::int32_t>(stream));
    }
    action_dtype_ = own_rules.action.is_counted ? numpy_dtypes().int64 : nb::object(actions_like.attr("dtype"));
    nb::list sides;
    for (const Py_ssize_t side : action_pattern_.shape()) {
        sides.append(side);
    }
    action_shape_ = nb::tuple(sides);
}

bool BoundStepRing::begin(nb::handle streams) {
    std::vector<std::int32_t> numbers;
    if (!read_streams(streams, numbers)) {
        return false;
    }
    for (const std::int32_t number : numbers) {
        if (static_cast<std::size_t>(number) >= ring().num_streams()) {
            return false;
        }
    }
    ring().begin(numbers.data(), numbers.size());
    return true;
}

bool BoundStepRing::read_step(nb::handle streams, nb::handle actions, nb::handle rewards, nb::handle terminated,
                              nb::handle truncated, nb::handle frames) {
    if (streams.is_none()) {
        streams_ = all_streams_;
    } else if (!read_streams(streams, streams_)) {
        return false;
    }
    const std::size_t count = streams_.size();
    flags_.assign(count, 0);
    const bool has_actions =
        action_range_ ? read_counted_actions(actions, count, *action_range_, ring().rules().action.bytes, actions_)
                      : read_array_actions(actions, count, action_pattern_, actions_);
    BorrowedArray frame_rows;
    return has_actions && read_rewards(rewards, count, rewards_) && read_flags(terminated, kTerminated, flags_) &&
           read_flags(truncated, kTruncated, flags_) && frame_rows.borrow(frames) &&
           frame_pattern_.fits(frame_rows, count) && ring().may_append(streams_.data(), count);
}

bool BoundStepRing::stage(nb::handle streams, nb::handle actions, nb::handle rewards, nb::handle terminated,
                          nb::handle truncated, nb::handle frames) {
    num_staged_ = 0;
    const bool is_good = read_step(streams, actions, rewards, terminated, truncated, frames);
    num_staged_ = is_good ? streams_.size() : 0;
    return is_good;
}

nb::list BoundStepRing::make_room() {
    evictions_.clear();
    ring().make_room(num_staged_, evictions_);
    nb::list pairs;
    for (const Eviction& eviction : evictions_) {
        pairs.append(nb::make_tuple(eviction.stream, eviction.before));
    }
    return pairs;
}

std::int64_t BoundStepRing::append_staged() {
    ring().append(Steps{streams_.data(), actions_.data(), rewards_.data(), flags_.data(), num_staged_});
    num_staged_ = 0;
    return ring().next_index();
}

nb::tuple BoundStepRing::resolve(nb::handle indices_argument) const {
    const auto indices = as_column<std::int64_t>(indices_argument, "indices");
    for (std::size_t row = 0; row < indices.size; ++row) {
        if (!ring().is_held(indices.values[row])) {
            throw std::out_of_range("transition " + std::to_string(indices.values[row]) + " is not held: indices " +
                                    std::to_string(ring().oldest()) + " to " +
                                    std::to_string(ring().next_index() - 1) + " are");
        }
    }
    const nb::object count = nb::int_(indices.size);
    const nb::object action_shape = action_shape_.size() == 0 ? count : nb::make_tuple(count) + action_shape_;
    const NumpyDtypes& dtypes = numpy_dtypes();
    ResolvedSteps out{};
    nb::object streams = new_array(count, dtypes.int32, out.streams);
    nb::object last_positions = new_array(count, dtypes.int64, out.last_positions);
    nb::object counts = new_array(count, dtypes.int32, out.counts);
    nb::object actions = new_array(action_shape, action_dtype_, out.actions);
    nb::object rewards = new_array(count, dtypes.float32, out.rewards);
    nb::object discounts = new_array(count, dtypes.float32, out.discounts);
    nb::object terminated = new_array(count, dtypes.boolean, out.terminated);
    nb::object truncated = new_array(count, dtypes.boolean, out.truncated);
    ring().resolve(indices.values, indices.size, out);
    return nb::make_tuple(nb::make_tuple(streams, last_positions, counts),
                          nb::make_tuple(actions, rewards, discounts, terminated, truncated));
}

void py_init(BoundStepRing* self, nb::handle slots, nb::handle newest_positions, nb::handle episode_starts,
             nb::handle is_open, nb::handle actions_like, nb::handle frames_like, nb::object action_range,
             std::int64_t stack, std::int64_t segment_frames, float discount) {
    const RingRules rules{stack, segment_frames, discount, ActionLayout{}};
    new (self) BoundStepRing(slots, newest_positions, episode_starts, is_open, actions_like, frames_like,
                             std::move(action_range), rules);
}

}  // namespace

void bind_step_ring(nb::module_& module) {
    nb::class_<BoundStepRing>(module, "StepRing")
        .def("__init__", &py_init, nb::arg("slots"), nb::arg("newest_positions"), nb::arg("episode_starts"),
             nb::arg("is_open"), nb::arg("actions_like"), nb::arg("frames_like"), nb::arg("action_range").none(),
             nb::arg("stack"), nb::arg("segment_frames"), nb::arg("discount"))
        .def("stage", &BoundStepRing::stage, nb::arg("streams").none(), nb::arg("actions").none(),
             nb::arg("rewards").none(), nb::arg("terminated").none(), nb::arg("truncated").none(),
             nb::arg("frames").none())
        .def("make_room", &BoundStepRing::make_room)
        .def("append_staged", &BoundStepRing::append_staged)
        .def("begin", &BoundStepRing::begin, nb::arg("streams"))
        .def("resolve", &BoundStepRing::resolve, nb::arg("indices"))
        .def(
            "restore_span",
            [](BoundStepRing& self, std::int64_t oldest, std::int64_t next_index) {
                self.ring().restore_span(oldest, next_index);
            },
            nb::arg("oldest"), nb::arg("next_index"))
        .def_prop_ro("oldest", [](const BoundStepRing& self) { return self.ring().oldest(); })
        .def_prop_ro("next_index", [](const BoundStepRing& self) { return self.ring().next_index(); });
}

}  // namespace framestow
