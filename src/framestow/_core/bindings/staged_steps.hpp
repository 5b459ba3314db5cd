// The common base of the step stores' bindings: the environment arrays that Python makes, the checked step that waits
// to be appended, and the arrays of a look-up. The GIL is not released.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../segment.hpp"
#include "../step_record.hpp"
#include "arguments.hpp"
#include "array_stores.hpp"
#include "step_arguments.hpp"

namespace framestow {

// The arguments of a step store's native half; read by attribute from framestow/replay/steps/step_store.py.
struct StepStoreArguments {
    nb::handle settings;  // StepSettings
    nb::handle envs;      // StepStore, whose arrays have an entry for each environment
};

// Borrows a writable array with that number of axes and item size, or throws an error that names it.
void borrow(BorrowedArray& array, nb::handle argument, const char* name, int num_axes, Py_ssize_t item_bytes);

// A borrowed C-ordered argument of int64 with one axis; the constructor throws an error that names any other one.
class BorrowedColumn {
public:
    BorrowedColumn(nb::handle argument, const char* name);

    std::size_t size() const { return array_.num_rows(); }
    const std::int64_t* values() const { return array_.values<const std::int64_t>(); }
    std::int64_t operator[](std::size_t row) const { return values()[row]; }
    std::vector<std::int64_t> copy() const { return std::vector<std::int64_t>(values(), values() + size()); }

private:
    BorrowedArray array_;
};

nb::object to_array(const std::vector<std::int64_t>& values);

// One step of several environments, checked and in stored form. Borrows the environment arrays while it lives.
class StagedSteps {
public:
    explicit StagedSteps(const StepStoreArguments& arguments);

    const StepRules& rules() const { return rules_; }
    EnvMemory envs() const;
    std::size_t record_bytes() const;

    // Reads the arguments of a step; false if they break a rule or have a form that only Python converts.
    bool read(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated, nb::handle truncated,
              nb::handle frames, nb::handle columns, nb::handle borders);
    const std::vector<std::int32_t>& read_env_ids_of_step() const { return env_ids_; }

    // Reads the steps with these flags, all of one environment; false as above.
    bool read_of_env(std::int32_t env_id, std::vector<std::uint8_t> flags, nb::handle actions, nb::handle rewards,
                     nb::handle columns);

    void stage(bool is_good) { num_staged_ = is_good ? env_ids_.size() : 0; }
    std::size_t num_staged() const { return num_staged_; }
    Steps steps() const { return steps(0, num_staged_); }
    Steps steps(std::size_t first, std::size_t count) const {
        return {env_ids_.data() + first,
                actions_.data() + first * rules_.action.bytes,
                rewards_.data() + first,
                flags_.data() + first,
                count,
                column_rows_.data() + first * columns_bytes_};
    }

    // Makes arrays for `size` steps with that many windows, and points `out` to their elements. `extra` receives the
    // outputs of the extra fields if they are requested.
    nb::tuple new_columns(std::size_t size, std::size_t num_windows, bool with_extra, ResolvedSteps& out,
                          std::vector<std::uint8_t*>& extra) const;

private:
    void read_action_ranges(nb::handle ranges);
    void read_column_patterns(nb::handle extras_like);
    bool read_fields(std::size_t count, nb::handle actions, nb::handle rewards, nb::handle columns);
    bool fit_frames(std::size_t count, nb::handle frames) const;

    // Of the Python step store; they keep what EnvMemory points to alive.
    BorrowedArray newest_positions_, episode_starts_, run_starts_, unreadable_before_, is_open_;
    RowPattern action_pattern_;                   // what the argument of one step must look like
    std::vector<RowPattern> frame_patterns_;      // the same for each array of its frames
    std::vector<ActionRange> action_ranges_;      // per element; empty if actions are not counted
    std::vector<ColumnPattern> column_patterns_;  // of the extras, by name
    std::size_t columns_bytes_ = 0;               // bytes per step
    StepRules rules_;

    std::vector<std::int32_t> all_env_ids_;  // 0 to num_envs - 1, for a step without env_ids
    std::vector<std::int32_t> env_ids_;      // of the staged step, and so are the four below, in stored form
    std::vector<float> rewards_;
    std::vector<std::uint8_t> actions_;
    std::vector<std::uint8_t> flags_;
    std::vector<std::uint8_t> column_rows_;
    std::size_t num_staged_ = 0;  // rows that append_staged stores; 0: none are staged

    nb::object action_dtype_;  // of new arrays of actions
    nb::tuple action_shape_;
    std::vector<nb::object> column_dtypes_;
    std::vector<nb::tuple> column_shapes_;
};

// A packed segment of one environment, verified, with the bits of its frames and its newest frames unpacked.
class StagedSegment {
public:
    // Throws DamagedSegment for other bytes than a segment of as many frames as there are bits.
    StagedSegment(const FrameFormat& format, std::int32_t env_id, ByteSpan segment, ByteSpan bits, std::size_t stack);

    std::int32_t env_id() const { return env_id_; }
    const std::vector<std::uint8_t>& bits() const { return bits_; }
    ByteSpan segment() const { return ByteSpan{padded_.data(), padded_.size() - kReadPadding}; }

    // Returns the flags of the steps that led to the frames; false if there are other bits, or steps without an
    // episode.
    bool read_flags(bool is_open, std::vector<std::uint8_t>& flags) const;

    // Returns whether the newest run brings a padding that a stack may show.
    bool brings_padding() const { return !lead_ins_.empty(); }

    // Advances the environment's stack over all frames. It has one frame more than the format has lead-ins, if a run
    // brings its own padding.
    void advance(const FrameStacks& stacks) const;

private:
    bool begins_run(std::size_t place) const {
        return place < bits_.size() && (bits_[place] & (kBeginsEpisode | kBorder)) != 0;
    }

    std::int32_t env_id_;
    std::size_t frame_bytes_;
    std::vector<std::uint8_t> padded_;  // the segment, and kReadPadding more bytes
    std::vector<std::uint8_t> bits_;    // of its frames
    std::vector<std::uint8_t> newest_frames_;
    std::size_t newest_run_;              // place of the first frame of the newest run; bits_.size() if none begins
    std::vector<std::uint8_t> lead_ins_;  // of that run if its padding is stored and the stack may show it; else empty
};

// A core (StepRing or StepBlocks) with its staged step, or its staged segment.
template <typename Core>
class BoundSteps {
public:
    explicit BoundSteps(const StepStoreArguments& arguments) : staged_(arguments) {}

    Core& core() { return *core_; }
    const Core& core() const { return *core_; }
    StagedSteps& staged() { return staged_; }

    bool begin(nb::handle env_ids) {
        std::vector<std::int32_t> numbers;
        if (!read_env_ids(env_ids, numbers)) {
            return false;
        }
        for (const std::int32_t number : numbers) {
            if (static_cast<std::size_t>(number) >= core().num_envs()) {
                return false;
            }
        }
        core().begin(numbers.data(), numbers.size());
        return true;
    }

    bool stage(nb::handle env_ids, nb::handle actions, nb::handle rewards, nb::handle terminated, nb::handle truncated,
               nb::handle frames, nb::handle columns, nb::handle borders) {
        staged_.stage(false);
        const bool is_good =
            staged_.read(env_ids, actions, rewards, terminated, truncated, frames, columns, borders) &&
            core().may_append(staged_.read_env_ids_of_step().data(), staged_.read_env_ids_of_step().size());
        staged_.stage(is_good);
        return is_good;
    }

    void append_staged() {
        core().append(staged_.steps());
        staged_.stage(false);
    }

    // Stores the staged step, the frames that it led to, and the stacks. Python handles signals between bytecodes, so a
    // step is stored whole or not at all.
    std::size_t append_whole(const ArrayStores& stores, const nb::tuple& stacks, nb::handle frames, nb::handle paddings,
                             nb::handle lead_ins) {
        const Steps steps = staged_.steps();
        const StepFrames given(stores, frames, steps.env_ids, steps.count, paddings, lead_ins);
        store_whole(stores, stacks, given, steps.env_ids, steps.count, steps.flags, [&] { append_staged(); });
        return charged_bytes(stores);
    }

    // The same for the first frames of episodes.
    std::size_t begin_whole(const ArrayStores& stores, const nb::tuple& stacks, nb::handle env_ids, nb::handle frames,
                            nb::handle paddings, nb::handle lead_ins) {
        std::vector<std::int32_t> numbers;
        if (!read_env_ids(env_ids, numbers)) {
            refuse("env_ids", "is not an array of environment numbers: it must be integers in C order, with one axis");
        }
        const std::vector<std::uint8_t> flags(numbers.size(), kBorder);
        const StepFrames given(stores, frames, numbers.data(), numbers.size(), paddings, lead_ins);
        store_whole(stores, stacks, given, numbers.data(), numbers.size(), flags.data(),
                    [&] { core().begin(numbers.data(), numbers.size()); });
        return charged_bytes(stores);
    }

    // Checks a packed segment of an environment's next frames with the steps that led to them, and stages both.
    bool stage_segment(const ArrayStores& stores, std::int64_t env_id, nb::handle segment, nb::handle bits,
                       nb::handle actions, nb::handle rewards, nb::handle columns) {
        staged_.stage(false);
        segment_.reset();
        FrameStore& store = stores.first();
        const std::int64_t length = store.frames_per_segment();
        if (stores.size() != 1 || env_id < 0 || env_id >= static_cast<std::int64_t>(core().num_envs()) ||
            env_id >= stores.num_envs() || store.next_position(env_id) % length != 0 ||
            store.next_position(env_id) != core().cursors().newest_position(static_cast<std::size_t>(env_id)) + 1) {
            refuse("env_id", "is " + std::to_string(env_id) +
                                 ": it must be one whose next frame begins a segment, in a storage of one array");
        }
        const ReadArray segment_bytes = as_bytes(segment, "segment");
        const ReadArray bit_bytes = as_bytes(bits, "bits");
        if (bit_bytes.nbytes() != static_cast<std::size_t>(length)) {
            refuse("bits", "has " + std::to_string(bit_bytes.nbytes()) + " bytes: it must be one for each of " +
                               std::to_string(length) + " frames");
        }
        segment_.emplace(store.format(), static_cast<std::int32_t>(env_id), span_of(segment_bytes), span_of(bit_bytes),
                         static_cast<std::size_t>(staged_.rules().stack));
        std::vector<std::uint8_t> flags;
        const bool is_good = segment_->read_flags(core().cursors().is_open(static_cast<std::size_t>(env_id)), flags) &&
                             staged_.read_of_env(segment_->env_id(), std::move(flags), actions, rewards, columns);
        staged_.stage(is_good);
        return is_good;
    }

    // Stores the staged segment, its steps and the stack, as `append_whole` stores a step.
    std::size_t append_segment(const ArrayStores& stores, const nb::tuple& stacks) {
        if (!segment_) {
            refuse("segment", "is not staged: it must be given to stage_segment() before");
        }
        const StagedSegment segment = std::move(*segment_);
        segment_.reset();
        const std::int32_t env_id = segment.env_id();
        const FrameStacks& of_array = *checked_stacks(stores, stacks, &env_id, 1).front();
        refuse_if_torn();
        FrameStore& store = stores.first();
        if (segment.brings_padding()) {
            refuse_other_depth(of_array, store.format());
        }
        store.restore(env_id, store.next_position(env_id) / store.frames_per_segment(), segment.segment());
        is_torn_ = true;
        segment.advance(of_array);
        append_staged_of(segment);
        is_torn_ = false;
        return charged_bytes(stores);
    }

    nb::tuple resolve(nb::handle indices_argument, bool with_extras, bool merges_windows) const {
        const BorrowedColumn indices(indices_argument, "indices");
        if (merges_windows && staged_.rules().n_step == 1) {
            std::vector<std::uint8_t> flags(indices.size());
            nb::tuple columns = single_steps(indices, with_extras, flags.data());
            if (std::none_of(flags.begin(), flags.end(), [](std::uint8_t of_step) { return of_step & kBorder; })) {
                return columns;
            }
        }
        ResolvedSteps out{};
        std::vector<std::uint8_t*> extra;
        nb::tuple columns = staged_.new_columns(indices.size(), 2 * indices.size(), with_extras, out, extra);
        refuse_missing(indices, core().resolve(indices.values(), indices.size(), out));
        if (!merges_windows || !merge_windows(staged_.rules(), indices.size(), out)) {
            return columns;
        }
        const nb::slice first(static_cast<Py_ssize_t>(indices.size()));
        const nb::handle windows = columns[0];
        return nb::make_tuple(
            new_named(named_tuples().windows, nb::make_tuple(windows[0][first], windows[1][first], windows[2][first])),
            columns[1]);
    }

    nb::tuple resolve_steps(nb::handle indices_argument, bool with_extras) const {
        return single_steps(BorrowedColumn(indices_argument, "indices"), with_extras, nullptr);
    }

    nb::object pending() const { return to_array(core().pending_indices()); }

    void close_episodes() { core().close_episodes(); }

    nb::object sampleable_at(nb::handle ranks_argument) const {
        const BorrowedColumn ranks(ranks_argument, "ranks");
        const auto size = static_cast<std::int64_t>(core().size());
        std::int64_t* indices = nullptr;
        nb::object array = new_array(nb::int_(ranks.size()), numpy_dtypes().int64, indices);
        for (std::size_t row = 0; row < ranks.size(); ++row) {
            if (ranks[row] < 0 || ranks[row] >= size) {
                throw std::out_of_range("rank " + std::to_string(ranks[row]) + " is not one of the " +
                                        std::to_string(size) + " sampleable transitions");
            }
            indices[row] = core().sampleable_at(ranks[row]);
        }
        return array;
    }

    nb::object is_sampleable(nb::handle indices_argument) const {
        const BorrowedColumn indices(indices_argument, "indices");
        bool* answers = nullptr;
        nb::object array = new_array(nb::int_(indices.size()), numpy_dtypes().boolean, answers);
        for (std::size_t row = 0; row < indices.size(); ++row) {
            answers[row] = core().is_sampleable(indices[row]);
        }
        return array;
    }

    nb::object slots_of(nb::handle indices_argument) const {
        const BorrowedColumn indices(indices_argument, "indices");
        return slots(indices, [&](std::size_t row) -> std::int64_t {
            throw std::out_of_range("transition " + std::to_string(indices[row]) +
                                    " is not stored: it was evicted or never appended");
        });
    }

    nb::object find_slots(nb::handle indices_argument) const {
        return slots(BorrowedColumn(indices_argument, "indices"), [](std::size_t) { return std::int64_t{-1}; });
    }

    nb::object indices_in(nb::handle slots_argument) const {
        const BorrowedColumn slots(slots_argument, "slots");
        std::int64_t* indices = nullptr;
        nb::object array = new_array(nb::int_(slots.size()), numpy_dtypes().int64, indices);
        for (std::size_t row = 0; row < slots.size(); ++row) {
            if (slots[row] < 0 || slots[row] >= core().num_slots()) {
                throw std::out_of_range("slot " + std::to_string(slots[row]) + " is not one of the " +
                                        std::to_string(core().num_slots()) + " slots");
            }
            indices[row] = core().index_in(slots[row]);
        }
        return array;
    }

    void watch_slots(bool is_watched) { core().changed_slots().watch(is_watched); }

    bool has_changed_slots() const { return !core().changed_slots().is_empty(); }

    nb::object changed_slots() { return to_array(core().changed_slots().first_slots(kSlotsAtOnce)); }

    void forget_changed_slots() { core().changed_slots().forget_first(); }

    std::size_t lose(std::int64_t env_id, std::int64_t first, std::int64_t before) {
        if (env_id < 0 || static_cast<std::size_t>(env_id) >= core().num_envs()) {
            throw std::out_of_range("environment is " + std::to_string(env_id) + ": it must be 0 to " +
                                    std::to_string(core().num_envs() - 1));
        }
        return first < before ? core().lose(static_cast<std::size_t>(env_id), first, before) : 0;
    }

    std::size_t lose_indices(nb::handle indices_argument) {
        return core().lose_indices(BorrowedColumn(indices_argument, "indices").copy());
    }

    // Frames that no step needs since the last `clear_unreferenced_frames`, as (environment, first, before). Stored
    // here until the caller has evicted them, since Ctrl-C may discard a call's return value.
    nb::list unreferenced_frames() const {
        nb::list triples;
        for (const Eviction& eviction : unneeded_) {
            triples.append(nb::make_tuple(eviction.env_id, eviction.first, eviction.before));
        }
        return triples;
    }

    void clear_unreferenced_frames() { unneeded_.clear(); }

private:
    // `flags`: of the steps that led to the frames; a frame after a border begins a run.
    template <typename StoreSteps>
    void store_whole(const ArrayStores& stores, const nb::tuple& stacks, const StepFrames& given,
                     const std::int32_t* env_ids, std::size_t count, const std::uint8_t* flags,
                     const StoreSteps& store_steps) {
        const std::vector<const FrameStacks*> of_arrays = checked_stacks(stores, stacks, env_ids, count);
        for (std::size_t array = 0; array < stores.size(); ++array) {
            check_run_starts(given.run_starts(array), flags, count, *of_arrays[array], stores[array].format());
        }
        refuse_if_torn();
        is_torn_ = true;  // unless all of this returns; only a lack of memory can prevent that
        given.append();
        for (std::size_t array = 0; array < stores.size(); ++array) {
            store_stacks(*of_arrays[array], env_ids, given.of_array(array), count, flags, given.run_starts(array));
        }
        store_steps();
        is_torn_ = false;
    }

    // `starts`: one for each frame, or null if all runs have the usual padding.
    static void store_stacks(const FrameStacks& stacks, const std::int32_t* env_ids, const std::uint8_t* frames,
                             std::size_t count, const std::uint8_t* flags, const RunStart* starts) {
        if (starts != nullptr) {
            stacks.advance(env_ids, frames, count, starts);
            return;
        }
        for (std::size_t row = 0; row < count; ++row) {
            const auto store = (flags[row] & kBorder) != 0 ? &FrameStacks::begin : &FrameStacks::append;
            (stacks.*store)(env_ids + row, frames + row * stacks.frame_bytes, 1);
        }
    }

    static void refuse_other_depth(const FrameStacks& stacks, const FrameFormat& format) {
        if (stacks.stack != format.lead_ins + std::size_t{1}) {
            refuse("stacks", "have " + std::to_string(stacks.stack) + " frames: they must have " +
                                 std::to_string(format.lead_ins + 1) + ", one more than the storage's lead-ins");
        }
    }

    static void check_run_starts(const RunStart* starts, const std::uint8_t* flags, std::size_t count,
                                 const FrameStacks& stacks, const FrameFormat& format) {
        if (starts == nullptr) {
            return;
        }
        refuse_other_depth(stacks, format);
        for (std::size_t row = 0; row < count; ++row) {
            if ((starts[row].padding != RunPadding::kContinues) != ((flags[row] & kBorder) != 0)) {
                refuse("paddings", "has " + std::to_string(static_cast<int>(starts[row].padding)) + " at row " +
                                       std::to_string(row) +
                                       ": it must be 1 to 3 where a run begins, 0 where it goes on");
            }
        }
    }

    // Appends the staged steps, and begins episodes where frames do.
    void append_staged_of(const StagedSegment& segment) {
        const std::int32_t env_id = segment.env_id();
        std::size_t num_done = 0, num_seen = 0;
        for (const std::uint8_t bits : segment.bits()) {
            if (bits == kBeginsEpisode) {
                core().append(staged_.steps(num_done, num_seen - num_done));
                core().begin(&env_id, 1);
                num_done = num_seen;
            } else {
                ++num_seen;
            }
        }
        core().append(staged_.steps(num_done, num_seen - num_done));
        staged_.stage(false);
    }

    void refuse_if_torn() const {
        if (is_torn_) {
            throw std::runtime_error(
                "memory ran out while a step was stored: this memory takes no more steps; load a save");
        }
    }

    std::vector<const FrameStacks*> checked_stacks(const ArrayStores& stores, const nb::tuple& stacks,
                                                   const std::int32_t* env_ids, std::size_t count) const {
        if (stacks.size() != stores.size()) {
            refuse("stacks", "has " + std::to_string(stacks.size()) + " entries: it must have one for each array");
        }
        std::vector<const FrameStacks*> of_arrays;
        for (std::size_t array = 0; array < stores.size(); ++array) {
            of_arrays.push_back(&nb::cast<const BoundFrameStacks&>(stacks[array]).stacks());
            check_stacks(*of_arrays.back(), stores[array], env_ids, count);
        }
        return of_arrays;
    }

    void check_stacks(const FrameStacks& stacks, const FrameStore& store, const std::int32_t* env_ids,
                      std::size_t count) const {
        const std::size_t num_envs = std::min({stacks.num_envs, store.num_envs(), core().num_envs()});
        for (std::size_t row = 0; row < count; ++row) {
            if (env_ids[row] < 0 || static_cast<std::size_t>(env_ids[row]) >= num_envs) {
                throw std::out_of_range("environment is " + std::to_string(env_ids[row]) + ": it must be 0 to " +
                                        std::to_string(num_envs - 1));
            }
        }
        if (stacks.frame_bytes != store.format().frame_bytes()) {
            refuse("stacks", "have frames of " + std::to_string(stacks.frame_bytes) + " bytes: they must have " +
                                 std::to_string(store.format().frame_bytes()));
        }
    }

    static constexpr std::size_t kSlotsAtOnce = 65'536;  // most changed slots that one call returns

    template <typename Missing>
    nb::object slots(const BorrowedColumn& indices, Missing missing) const {
        std::int64_t* slots = nullptr;
        nb::object array = new_array(nb::int_(indices.size()), numpy_dtypes().int64, slots);
        for (std::size_t row = 0; row < indices.size(); ++row) {
            slots[row] = core().is_sampleable(indices[row]) ? core().slot_number_of(indices[row]) : missing(row);
        }
        return array;
    }

protected:
    StagedSteps staged_;                    // the staged step, or the steps of the staged segment
    std::optional<StagedSegment> segment_;  // none is staged
    std::optional<Core> core_;
    std::vector<Eviction> unneeded_;  // frames that no step needs, until Python has evicted them
    bool is_torn_ = false;  // whether a lack of memory stopped a store in the middle: then no more steps are taken

private:
    nb::tuple single_steps(const BorrowedColumn& indices, bool with_extras, std::uint8_t* flags) const {
        ResolvedSteps out{};
        std::vector<std::uint8_t*> extra;
        nb::tuple columns = staged_.new_columns(indices.size(), indices.size(), with_extras, out, extra);
        out.flags = flags;
        refuse_missing(indices, core().resolve_steps(indices.values(), indices.size(), out));
        return columns;
    }

    static void refuse_missing(const BorrowedColumn& indices, std::size_t num_resolved) {
        if (num_resolved < indices.size()) {
            throw std::out_of_range("transition " + std::to_string(indices[num_resolved]) +
                                    " is not stored: it was evicted or never appended");
        }
    }
};

template <typename Bound>
void bind_steps(nb::class_<Bound>& bound) {
    bound
        .def("stage", &Bound::stage, nb::arg("env_ids").none(), nb::arg("actions").none(), nb::arg("rewards").none(),
             nb::arg("terminated").none(), nb::arg("truncated").none(), nb::arg("frames").none(),
             nb::arg("extras").none() = nb::none(), nb::arg("borders").none() = nb::none())
        .def("append_staged", &Bound::append_staged)
        .def("begin", &Bound::begin, nb::arg("env_ids"))
        .def("append_whole", &Bound::append_whole, nb::arg("storage"), nb::arg("stacks"), nb::arg("frames"),
             nb::arg("paddings").none() = nb::none(), nb::arg("lead_ins").none() = nb::none())
        .def("begin_whole", &Bound::begin_whole, nb::arg("storage"), nb::arg("stacks"), nb::arg("env_ids"),
             nb::arg("frames"), nb::arg("paddings").none() = nb::none(), nb::arg("lead_ins").none() = nb::none())
        .def("close_episodes", &Bound::close_episodes)
        .def_prop_ro("unreferenced_frames", &Bound::unreferenced_frames)
        .def("clear_unreferenced_frames", &Bound::clear_unreferenced_frames)
        .def("resolve", &Bound::resolve, nb::arg("indices"), nb::arg("with_extras") = true,
             nb::arg("merges_windows") = false)
        .def("resolve_steps", &Bound::resolve_steps, nb::arg("indices"), nb::arg("with_extras") = true)
        .def("sampleable_at", &Bound::sampleable_at, nb::arg("ranks"))
        .def("is_sampleable", &Bound::is_sampleable, nb::arg("indices"))
        .def("slots_of", &Bound::slots_of, nb::arg("indices"))
        .def("find_slots", &Bound::find_slots, nb::arg("indices"))
        .def("indices_in", &Bound::indices_in, nb::arg("slots"))
        .def_prop_ro("num_slots", [](const Bound& self) { return self.core().num_slots(); })
        .def("watch_slots", &Bound::watch_slots, nb::arg("is_watched"))
        .def_prop_ro("has_changed_slots", &Bound::has_changed_slots)
        .def("changed_slots", &Bound::changed_slots)
        .def("forget_changed_slots", &Bound::forget_changed_slots)
        .def("lose", &Bound::lose, nb::arg("env_id"), nb::arg("first"), nb::arg("before"))
        .def("lose_indices", &Bound::lose_indices, nb::arg("indices"))
        .def("restore_pending", [](Bound& self) { self.core().restore_pending(); })
        .def_prop_ro("pending", &Bound::pending)
        .def_prop_ro("n_step", [](Bound& self) { return self.staged().rules().n_step; })
        .def("__len__", [](const Bound& self) { return self.core().size(); });
}

}  // namespace framestow
