// Bindings of Planner, and of Core: the frames, the steps and the planner of one memory. The GIL is not released but to
// wait for readers.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "../segment.hpp"
#include "array_stores.hpp"
#include "module.hpp"
#include "planner.hpp"
#include "steps.hpp"

namespace framestow {
namespace {

// A packed segment of one environment, verified, with the bits of its frames and its newest frames unpacked.
class ReceivedSegment {
public:
    // Throws DamagedSegment for other bytes than a segment of as many frames as there are bits.
    ReceivedSegment(const FrameFormat& format, ByteSpan segment, ByteSpan bits, std::size_t depth);

    ByteSpan segment() const { return ByteSpan{padded_.data(), padded_.size() - kReadPadding}; }
    const std::vector<std::uint8_t>& bits() const { return bits_; }

    // Advances the environment's stack over all frames.
    void advance(FrameStacks& stacks, std::int32_t env_id) const;

private:
    bool begins_stretch(std::size_t place) const {
        return place < bits_.size() && (bits_[place] & (kBeginsEpisode | kBorder)) != 0;
    }

    std::size_t frame_bytes_;
    std::vector<std::uint8_t> padded_;  // the segment, and kReadPadding more bytes
    std::vector<std::uint8_t> bits_;    // of its frames
    std::vector<std::uint8_t> newest_frames_;
    std::size_t newest_stretch_;          // place of the first frame of the newest one; bits_.size() if none begins
    std::vector<std::uint8_t> lead_ins_;  // of that stretch if they are stored and the stack may show them; else empty
};

ReceivedSegment::ReceivedSegment(const FrameFormat& format, ByteSpan segment, ByteSpan bits, std::size_t depth)
    : frame_bytes_(format.frame_bytes()),
      padded_(segment.size + kReadPadding),
      bits_(bits.bytes, bits.bytes + bits.size) {
    std::memcpy(padded_.data(), segment.bytes, segment.size);
    const SegmentView view = view_verified_segment(format, this->segment());
    if (view.header.num_frames != bits_.size()) {
        throw DamagedSegment("segment has " + std::to_string(view.header.num_frames) + " frames: its steps belong to " +
                             std::to_string(bits_.size()) + "; send it again");
    }
    const std::size_t num_newest = std::min(depth, bits_.size());
    newest_frames_.resize(num_newest * frame_bytes_);
    DecodingScratch scratch;
    unpack_frames(format, view, bits_.size() - num_newest, num_newest, scratch, newest_frames_.data());
    for (std::size_t stretch = 0; stretch < view.stretches.num_stretches; ++stretch) {
        if (!begins_stretch(view.stretches.place(stretch))) {
            throw DamagedSegment("segment has a stretch that begins at frame " +
                                 std::to_string(view.stretches.place(stretch)) +
                                 ": its steps have none there; send it again");
        }
    }
    newest_stretch_ = bits_.size();
    while (newest_stretch_ > 0 && !begins_stretch(newest_stretch_ - 1)) {
        --newest_stretch_;
    }
    newest_stretch_ = newest_stretch_ > 0 ? newest_stretch_ - 1 : bits_.size();
    if (newest_stretch_ < bits_.size()) {
        lead_ins_.resize(format.lead_ins * frame_bytes_);
        if (!unpack_padding(format, view, newest_stretch_, format.lead_ins, scratch, lead_ins_.data())) {
            lead_ins_.clear();
        }
    }
}

void ReceivedSegment::advance(FrameStacks& stacks, std::int32_t env_id) const {
    const std::size_t num_skipped = bits_.size() - newest_frames_.size() / frame_bytes_;
    for (std::size_t place = 0; place < bits_.size(); ++place) {
        if (place < num_skipped) {  // the frame has left the stack at the end of the segment
            stacks.skip(static_cast<std::size_t>(env_id), begins_stretch(place));
            continue;
        }
        StretchStart start{begins_stretch(place) ? StretchPadding::kUsual : StretchPadding::kContinues, nullptr};
        if (place == newest_stretch_ && !lead_ins_.empty()) {
            start = StretchStart{StretchPadding::kLeadIns, lead_ins_.data()};
        }
        stacks.advance(&env_id, newest_frames_.data() + (place - num_skipped) * frame_bytes_, 1, &start);
    }
}

// Reads single fields of steps, for calls that store none: an import, a change of stored steps.
class BoundFields {
public:
    explicit BoundFields(nb::handle settings) : arguments_(settings) {}

    // They return the field in stored form, as new arrays, and None; or None, and what is refused.
    using Read = TupleOf<nb::any, std::optional<RefusalTuple>>;
    Read actions(nb::handle values, std::size_t count) {
        arguments_.forget_refusal();
        return read(arguments_.read_actions(values, count), [&] { return arguments_.actions_array(); });
    }
    Read rewards(nb::handle values, std::size_t count) {
        arguments_.forget_refusal();
        return read(arguments_.read_rewards(values, count), [&] { return arguments_.rewards_array(); });
    }
    Read extras(nb::handle values, std::size_t count) {
        arguments_.forget_refusal();
        return read(arguments_.read_extras(values, count), [&] { return arguments_.extras_arrays(); });
    }

    // What is refused of the bits of a segment's frames; `is_open`: whether an episode is open before it.
    std::optional<RefusalTuple> bits(nb::handle bits, bool is_open) {
        arguments_.forget_refusal();
        std::vector<std::uint8_t> flags;
        arguments_.read_bits(BorrowedArray(bits, "bits", Scalar::kU8).bytes(), is_open, flags);
        return tuple_of(arguments_.refusal());
    }

private:
    template <typename Arrays>
    Read read(bool is_good, const Arrays& arrays) const {
        return nb::make_tuple(is_good ? nb::object(arrays()) : nb::none(), tuple_of(arguments_.refusal()));
    }

    StepArguments arguments_;
};

using Evicted = std::vector<std::tuple<std::int32_t, std::int64_t, std::int64_t>>;

class Core : public Planner {
public:
    Core(BoundSteps& steps, const ArrayStores& stores, nb::handle layout, const char* padding)
        : Planner(steps.arguments(), steps.store().cursors(), layout, padding),
          bound_steps_(steps),
          steps_(steps.store()),
          stores_(stores) {
        bool fits = stores.size() == arrays_.size() &&
                    stores.num_envs() == static_cast<std::int64_t>(steps_.num_envs()) &&
                    stores.first().frames_per_segment() == steps_.rules().segment_frames;
        for (std::size_t array = 0; fits && array < arrays_.size(); ++array) {
            const FrameFormat& format = stores[array].format();
            const StackedLayout& stacked = arrays_[array].layout;
            fits = format.frame_bytes() == stacked.frame_bytes && format.lead_ins + 1 == stacked.depth;
        }
        if (!fits) {
            refuse("layout", "does not fit: storage and steps must be of the same arrays, environments and segments");
        }
    }

    std::size_t charged_bytes() const { return framestow::charged_bytes(stores_) + steps_.charged_bytes(); }

    // Evicts what a full memory lacks room for, and stores the plan: frames, stacks and steps. No signal is handled in
    // this call, so the plan is stored whole or not at all. Returns the indices of the steps, none if there are none.
    std::optional<Indices> apply() {
        evict_for(env_ids_.size());
        begin_storing();
        if (!first_env_ids_.empty()) {
            append_planned(&Array::first, first_env_ids_);
            steps_.begin(first_env_ids_.data(), first_env_ids_.size());
        }
        if (!has_steps_) {
            finish();
            return std::nullopt;
        }
        std::int64_t* indices = nullptr;
        Indices array = new_array(env_ids_.size(), indices);
        append_planned(&Array::following, env_ids_);
        steps_.append(planned_steps(), indices);
        finish();
        return array;
    }

    // Stores consecutive frames of an environment as they were packed, with the steps that led to them, as `apply`
    // stores a step; false if the steps break a rule (`refusal` says which). Throws DamagedSegment for other bytes than
    // a segment.
    bool append_segment(std::int64_t env_id, nb::handle segment_argument, nb::handle bits_argument, nb::handle actions,
                        nb::handle rewards, nb::handle extras) {
        clear_plan();
        FrameStore& store = stores_.first();
        const std::int64_t length = store.frames_per_segment();
        if (stores_.size() != 1 || env_id < 0 || env_id >= stores_.num_envs() ||
            store.next_position(env_id) % length != 0) {
            refuse("env_id", "is " + std::to_string(env_id) +
                                 ": it must be one whose next frame begins a segment, in a storage of one array");
        }
        const BorrowedArray segment_bytes(segment_argument, "segment", Scalar::kU8);
        const BorrowedArray bits(bits_argument, "bits", Scalar::kU8);
        if (bits.nbytes() != static_cast<std::size_t>(length)) {
            refuse("bits", "has " + std::to_string(bits.nbytes()) + " bytes: it must be one for each of " +
                               std::to_string(length) + " frames");
        }
        const ReceivedSegment segment(store.format(), segment_bytes.bytes(), bits.bytes(),
                                      arrays_.front().layout.depth);
        std::vector<std::uint8_t> flags;
        arguments_.forget_refusal();
        if (!arguments_.read_bits(bits.bytes(), cursors_.is_open(static_cast<std::size_t>(env_id)), flags) ||
            !arguments_.read(std::move(flags), actions, rewards, extras)) {
            return false;
        }
        env_ids_.assign(arguments_.flags().size(), static_cast<std::int32_t>(env_id));
        evict_for(env_ids_.size());
        store.restore(env_id, store.next_position(env_id) / length, segment.segment());
        begin_storing();
        segment.advance(arrays_.front().stacks, static_cast<std::int32_t>(env_id));
        append_steps_of(segment.bits(), static_cast<std::int32_t>(env_id));
        finish();
        return true;
    }

    // Evicts transitions, as the retention says, until a segment of frames is free, and the segment; returns what was
    // evicted: environment, first frame, the one behind the last. None if no segment would be free.
    Evicted evict_next() {
        std::vector<Eviction> evictions;
        steps_.evict_next(evictions);
        return evict(evictions);
    }

    // Ends every open episode, and evicts all steps and the frames that no later step needs.
    void clear() {
        std::vector<Eviction> evictions;
        steps_.clear(evictions);
        evict(evictions);
    }

    // Ends the open episode of an environment, or every open episode, as truncated.
    void close_episode(std::int64_t env_id) { steps_.close_episode(bound_steps_.checked_env(env_id)); }
    void close_episodes() { steps_.close_episodes(); }

    void overwrite(nb::handle indices, nb::handle fields) { overwrite_steps(steps_, indices, fields); }
    std::size_t forget(nb::handle indices) { return forget_steps(steps_, indices); }
    std::size_t lose_indices(nb::handle indices) { return steps_.lose_indices(IndexColumn(indices, "indices").copy()); }

    // Evicts a segment of frames that is damaged, and loses the steps that use one of them. They return how many steps
    // were sampleable.
    std::size_t lose_segment(std::int64_t env_id, std::int64_t number) {
        const std::int64_t first = number * stores_.first().frames_per_segment();
        const std::int64_t before = first + stores_.first().frames_per_segment();
        const std::size_t num_lost = steps_.lose(bound_steps_.checked_env(env_id), first, before);
        evict_frames(stores_, env_id, before, first);
        return num_lost;
    }

    // Loses the steps that use frames before the first stored one of their environment, of any array.
    std::size_t lose_steps_without_frames() {
        std::size_t num_lost = 0;
        for (std::size_t array = 0; array < stores_.size(); ++array) {
            for (std::int64_t env_id = 0; env_id < stores_.num_envs(); ++env_id) {
                num_lost += steps_.lose(static_cast<std::size_t>(env_id), kBeforeAllPositions,
                                        stores_[array].first_position(env_id));
            }
        }
        return num_lost;
    }

    // What is unusual about the steps of a plan: how many observations are stored whole; how many rows of running
    // episodes have an observation that changed with its array, which is the next one's too; how many follow the end
    // of an episode, a truncated one; and of these, how many begin with its last next observation: as the beginning of
    // another episode, or of a step that resets.
    TupleOf<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t> unusual() const {
        std::size_t num_in_one_array = 0, num_ends = 0, num_truncated = 0, num_wrong_last = 0, num_resets = 0;
        for (std::size_t row = 0; has_observations_ && row < env_ids_.size(); ++row) {
            const auto env_id = static_cast<std::size_t>(env_ids_[row]);
            if (cursors_.is_open(env_id)) {
                num_in_one_array += changed_in_one_array(env_id, row) ? 1 : 0;
                continue;
            }
            StepPlace last{};
            if (!steps_.find(env_id, cursors_.newest_position(env_id) - 1, last)) {
                continue;
            }
            const std::uint8_t flags = StepRecords::flags_of(steps_.record(last));
            const bool was_truncated = (flags & (kTerminated | kTruncated)) == kTruncated;
            const bool was_border = (flags & kBorder) != 0, is_border = (bits_[row] & kShifted) == 0;
            ++num_ends;
            num_truncated += was_truncated ? 1 : 0;
            if (ends_episode(flags) && repeats_current(env_id, row)) {
                if (is_border && !was_border) {
                    ++num_resets;
                } else if (was_truncated && (was_border || steps_.rules().stack == 1)) {
                    ++num_wrong_last;
                }
            }
        }
        return nb::make_tuple(num_whole_, num_in_one_array, num_ends, num_truncated, num_wrong_last, num_resets);
    }

    // Sets the stack of an environment to `windows`, (1, depth, *frame) of each array.
    void restore_stack(std::int32_t env_id, nb::handle windows) {
        const BorrowedArrays given(windows, arrays_.size(), "windows");
        for (std::size_t number = 0; number < arrays_.size(); ++number) {
            Array& array = arrays_[number];
            check_frames(given[number], "windows", {1, array.layout.depth}, array.layout.frame_bytes);
            const auto* frames = given[number].values<const std::uint8_t>();
            const StretchStart start{StretchPadding::kLeadIns, frames};
            array.stacks.advance(&env_id, frames + (array.layout.depth - 1) * array.layout.frame_bytes, 1, &start);
        }
    }

private:
    void evict_for(std::size_t num_steps) {
        if (is_torn_) {
            throw std::runtime_error(
                "memory ran out while a step was stored: this memory takes no more steps; load a save");
        }
        std::vector<Eviction> evictions;
        try {
            steps_.evict_for(num_steps, evictions);
        } catch (...) {  // a Ctrl-C while Python chooses the next segment
            evict(evictions);
            throw;
        }
        evict(evictions);
    }

    Evicted evict(const std::vector<Eviction>& evictions) {
        Evicted evicted;
        for (const Eviction& eviction : evictions) {
            evict_frames(stores_, eviction.env_id, eviction.before, eviction.first);
            evicted.emplace_back(eviction.env_id, eviction.first, eviction.before);
        }
        return evicted;
    }

    // Only a lack of memory can prevent `finish`. No memory is reserved before, since a patch's size is known only
    // after packing.
    void begin_storing() { is_torn_ = true; }
    void finish() {
        is_torn_ = false;
        clear_plan();
    }

    void append_planned(Frames Array::* frames, const std::vector<std::int32_t>& env_ids) {
        for (std::size_t array = 0; array < arrays_.size(); ++array) {
            const Frames& planned = arrays_[array].*frames;
            append_frames(stores_[array], env_ids.data(), planned.frames, env_ids.size(), planned.stretch_starts());
        }
        advance_stacks(frames, env_ids);
    }

    // Appends the steps that were read, and begins episodes where frames do.
    void append_steps_of(const std::vector<std::uint8_t>& bits_of_frames, std::int32_t env_id) {
        std::vector<std::int64_t> indices(env_ids_.size());
        std::size_t num_done = 0, num_seen = 0;
        const auto append = [&] {
            steps_.append(arguments_.steps(env_ids_.data(), num_done, num_seen - num_done), indices.data());
            num_done = num_seen;
        };
        for (const std::uint8_t bits : bits_of_frames) {
            if (bits == kBeginsEpisode) {
                append();
                steps_.begin(&env_id, 1);
            } else {
                ++num_seen;
            }
        }
        append();
    }

    bool changed_in_one_array(std::size_t env_id, std::size_t row) const {
        return std::any_of(arrays_.begin(), arrays_.end(), [&](const Array& array) {
            std::vector<std::uint8_t> newest(array.layout.frame_bytes);
            copy_newest_frame(array.row(&Array::now, row), array.layout, newest.data());
            const auto age = static_cast<std::size_t>(array.stacks.age(env_id));
            return array.now.view().buf == array.next.view().buf &&
                   std::memcmp(newest.data(), array.stacks.frame(env_id, age), newest.size()) != 0;
        });
    }

    // Whether an observation is the newest one of its environment, but not the next one, and has more than one value.
    bool repeats_current(std::size_t env_id, std::size_t row) const {
        bool is_current = true, is_next = true, has_one_value = true;
        for (const Array& array : arrays_) {
            const std::uint8_t* const now = array.row(&Array::now, row);
            const std::size_t size = array.observation.row_bytes();
            const auto item = static_cast<std::size_t>(array.now.view().itemsize);
            is_current = is_current && array.stacks.age(env_id) >= 0 &&
                         shows_newest_frames(array.stacks, env_id, now, array.layout, array.layout.depth);
            is_next = is_next && std::memcmp(now, array.row(&Array::next, row), size) == 0;
            has_one_value = has_one_value && std::memcmp(now, now + item, size - item) == 0;
        }
        return is_current && !is_next && !has_one_value;
    }

    static constexpr std::int64_t kBeforeAllPositions = -(std::int64_t{1} << 40);  // also of lost steps

    BoundSteps& bound_steps_;
    StepStore& steps_;
    const ArrayStores& stores_;
    bool is_torn_ = false;  // whether a lack of memory stopped a step in the middle: then no more steps are taken
};

}  // namespace

void bind_core(nb::module_& module) {
    nb::class_<Planner>(module, "Planner")
        .def("plan_begin", &Planner::plan_begin, nb::arg("frames"), nb::arg("env_ids").none(),
             nb::arg("are_whole") = false)
        .def("plan_append", &Planner::plan_append, nb::arg("env_ids").none(), nb::arg("actions").none(),
             nb::arg("rewards").none(), nb::arg("terminated").none(), nb::arg("truncated").none(), nb::arg("frames"),
             nb::arg("extras").none(), nb::arg("are_whole") = false)
        .def("plan_add", &Planner::plan_add, nb::arg("env_ids").none(), nb::arg("actions").none(),
             nb::arg("rewards").none(), nb::arg("terminated").none(), nb::arg("truncated").none(),
             nb::arg("next_observations"), nb::arg("extras").none(), nb::arg("observations"))
        .def_prop_ro("num_envs", [](const Planner& self) { return self.cursors().num_envs(); })
        .def_prop_ro("open_episodes", [](const Planner& self) { return open_episodes(self.cursors()); })
        .def_prop_ro("has_begun", &Planner::has_begun)
        .def_prop_ro("nbytes", &Planner::nbytes)
        .def("stacks", &Planner::stacks)
        .def_prop_ro("refusal", [](const Planner& self) { return tuple_of(self.refusal()); });
    nb::class_<BoundFields>(module, "StepFieldReader")
        .def(nb::init<nb::handle>(), nb::arg("settings"))
        .def("actions", &BoundFields::actions, nb::arg("values"), nb::arg("count"))
        .def("rewards", &BoundFields::rewards, nb::arg("values"), nb::arg("count"))
        .def("extras", &BoundFields::extras, nb::arg("values").none(), nb::arg("count"))
        .def("bits", &BoundFields::bits, nb::arg("bits"), nb::arg("is_open"));
    nb::class_<WriterPlanner, Planner>(module, "WriterPlanner")
        .def(nb::init<std::size_t, nb::handle, nb::handle, const char*>(), nb::arg("num_envs"), nb::arg("settings"),
             nb::arg("layout"), nb::arg("padding"))
        .def("planned", &WriterPlanner::planned)
        .def("apply_episodes", &WriterPlanner::apply_episodes)
        .def("apply_steps", &WriterPlanner::apply_steps);
    nb::class_<Core, Planner>(module, "Core")
        .def(nb::init<BoundSteps&, const ArrayStores&, nb::handle, const char*>(), nb::arg("steps"), nb::arg("storage"),
             nb::arg("layout"), nb::arg("padding"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
        .def("apply", &Core::apply)
        .def("unusual", &Core::unusual)
        .def("append_segment", &Core::append_segment, nb::arg("env_id"), nb::arg("segment"), nb::arg("bits"),
             nb::arg("actions"), nb::arg("rewards"), nb::arg("extras").none())
        .def("evict_next", &Core::evict_next)
        .def("clear", &Core::clear)
        .def("close_episode", &Core::close_episode, nb::arg("env_id"))
        .def("close_episodes", &Core::close_episodes)
        .def("overwrite", &Core::overwrite, nb::arg("indices"), nb::arg("fields"))
        .def("forget", &Core::forget, nb::arg("indices"))
        .def("lose_indices", &Core::lose_indices, nb::arg("indices"))
        .def("lose_segment", &Core::lose_segment, nb::arg("env_id"), nb::arg("number"))
        .def("lose_steps_without_frames", &Core::lose_steps_without_frames)
        .def("restore_stack", &Core::restore_stack, nb::arg("env_id"), nb::arg("windows"))
        .def_prop_ro("charged_bytes", &Core::charged_bytes);
}

}  // namespace framestow
