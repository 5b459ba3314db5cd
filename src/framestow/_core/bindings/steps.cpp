// Bindings of the step stores. The GIL is not released. Indices are int64 arrays with one axis.
#include "steps.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <stdexcept>
#include <string>
#include <utility>

#include "../step_blocks.hpp"
#include "../step_ring.hpp"
#include "module.hpp"

namespace framestow {

std::size_t BoundSteps::checked_env(std::int64_t env_id) const {
    if (env_id < 0 || static_cast<std::size_t>(env_id) >= store().num_envs()) {
        throw std::out_of_range("environment is " + std::to_string(env_id) + ": it must be 0 to " +
                                std::to_string(store().num_envs() - 1));
    }
    return static_cast<std::size_t>(env_id);
}

ArrayOf<bool> open_episodes(const EnvCursors& cursors) {
    const std::vector<std::uint8_t>& is_open = cursors.envs().is_open;
    bool* values = nullptr;
    ArrayOf<bool> array = new_array(is_open.size(), values);
    std::copy(is_open.begin(), is_open.end(), values);
    return array;
}

namespace {

constexpr std::size_t kSlotsAtOnce = 65'536;              // most changed slots that one call returns
constexpr std::int64_t kLongest = std::int64_t{1} << 32;  // steps: more frames than an environment can store

using Columns = TupleOf<WindowsTuple, StepFieldsTuple>;

[[noreturn]] void refuse_missing(std::int64_t index) {
    throw std::out_of_range("transition " + std::to_string(index) + " is not stored: it was evicted or never appended");
}

// Returns a new array with of(index) for each index.
template <typename Value, typename Of>
ArrayOf<Value> for_each_index(nb::handle argument, const char* name, const Of& of) {
    const IndexColumn indices(argument, name);
    Value* values = nullptr;
    ArrayOf<Value> array = new_array(indices.size(), values);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        values[row] = of(indices[row]);
    }
    return array;
}

Columns single_steps(BoundSteps& self, const IndexColumn& indices, bool with_extras, std::uint8_t* flags) {
    ResolvedSteps out{};
    std::vector<std::uint8_t*> extra;
    Columns columns = self.arguments().new_columns(indices.size(), indices.size(), with_extras, out, extra);
    out.flags = flags;
    const std::size_t num_resolved = self.store().resolve_steps(indices.values(), indices.size(), out);
    if (num_resolved < indices.size()) {
        refuse_missing(indices[num_resolved]);
    }
    return columns;
}

// The windows and fields of transitions in new arrays; IndexError for one that is not sampleable. Each has two windows
// of `stack` frames: first come all observations, then all next observations. `merges_windows`: one window of
// stack + n_step frames each, if n_step is 1 or below stack and every next observation is its observation shifted by
// n_step frames. A border, or a return with fewer steps, gives every transition two.
Columns resolve(BoundSteps& self, nb::handle indices_argument, bool with_extras, bool merges_windows) {
    const IndexColumn indices(indices_argument, "indices");
    if (merges_windows && self.rules().n_step == 1) {
        std::vector<std::uint8_t> flags(indices.size());
        Columns columns = single_steps(self, indices, with_extras, flags.data());
        if (std::none_of(flags.begin(), flags.end(), [](std::uint8_t of_step) { return of_step & kBorder; })) {
            return columns;
        }
    }
    ResolvedSteps out{};
    std::vector<std::uint8_t*> extra;
    Columns columns = self.arguments().new_columns(indices.size(), 2 * indices.size(), with_extras, out, extra);
    const std::size_t num_resolved = self.store().resolve(indices.values(), indices.size(), out);
    if (num_resolved < indices.size()) {
        refuse_missing(indices[num_resolved]);
    }
    if (!merges_windows || !merge_windows(self.rules(), indices.size(), out)) {
        return columns;
    }
    const nb::slice first(static_cast<Py_ssize_t>(indices.size()));
    const nb::handle windows = columns[0];
    return nb::make_tuple(new_windows(nb::make_tuple(windows[0][first], windows[1][first], windows[2][first])),
                          columns[1]);
}

// The indices (B, length) of consecutive steps from each of `indices`, and which begin an episode. -1 after the end of
// the episode and from the first unreadable step on. `crosses` continues with the environment's next episode, but not
// beyond an unreadable step.
TupleOf<Indices, ArrayOf<bool>> follow(const BoundSteps& self, nb::handle indices_argument, std::int64_t length,
                                       bool crosses) {
    const IndexColumn starts(indices_argument, "indices");
    if (length < 1 || length > kLongest) {
        refuse("length", "is " + std::to_string(length) + ": it must be 1 to " + std::to_string(kLongest));
    }
    const nb::tuple shape = nb::make_tuple(starts.size(), length);
    std::int64_t* indices = nullptr;
    bool* is_first = nullptr;
    Indices index_array = new_array(shape, indices);
    ArrayOf<bool> first_array = new_array(shape, is_first);
    const auto steps = static_cast<std::size_t>(length);
    for (std::size_t row = 0; row < starts.size(); ++row) {
        self.store().follow(starts[row], steps, crosses ? EpisodeEnds::kCross : EpisodeEnds::kStop,
                            indices + row * steps, is_first + row * steps);
    }
    return nb::make_tuple(index_array, first_array);
}

Indices aligned_starts(const BoundSteps& self, nb::handle indices, std::int64_t stride, bool exact) {
    if (stride < 1) {
        refuse("stride", "is " + std::to_string(stride) + ": it must be at least 1");
    }
    return for_each_index<std::int64_t>(
        indices, "indices", [&](std::int64_t index) { return self.store().aligned_start(index, stride, exact); });
}

// -1 where no readable step starts.
Indices find_steps(const BoundSteps& self, nb::handle env_ids_argument, nb::handle positions_argument) {
    const IndexColumn env_ids(env_ids_argument, "env_ids"), positions(positions_argument, "positions");
    if (env_ids.size() != positions.size()) {
        refuse("positions", "has " + std::to_string(positions.size()) +
                                " entries: it must have as many as environments, " + std::to_string(env_ids.size()));
    }
    std::int64_t* indices = nullptr;
    Indices array = new_array(env_ids.size(), indices);
    for (std::size_t row = 0; row < env_ids.size(); ++row) {
        StepPlace place{};
        const bool is_known = env_ids[row] >= 0 && static_cast<std::size_t>(env_ids[row]) < self.store().num_envs();
        const bool is_found =
            is_known && self.store().find(static_cast<std::size_t>(env_ids[row]), positions[row], place);
        indices[row] = is_found ? place.index : kNoStep;
    }
    return array;
}

// Environments and positions of the frames at which steps start; -1 for an unreadable step.
TupleOf<Indices, Indices> places(const BoundSteps& self, nb::handle indices_argument) {
    const IndexColumn indices(indices_argument, "indices");
    std::int64_t *env_ids = nullptr, *positions = nullptr;
    Indices env_array = new_array(indices.size(), env_ids), position_array = new_array(indices.size(), positions);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        StepPlace place{};
        const bool is_here = self.store().locate(indices[row], place);
        env_ids[row] = is_here ? static_cast<std::int64_t>(place.env_id) : kNoStep;
        positions[row] = is_here ? place.position : kNoPosition;
    }
    return nb::make_tuple(env_array, position_array);
}

StepPlace located(const BoundSteps& self, std::int64_t index) {
    StepPlace place{};
    if (!self.store().locate(index, place)) {
        refuse_missing(index);
    }
    return place;
}

ArrayOf<std::uint8_t> flags_of(const BoundSteps& self, nb::handle indices) {
    return for_each_index<std::uint8_t>(indices, "indices", [&](std::int64_t index) {
        const StepPlace place = located(self, index);
        return static_cast<std::uint8_t>(StepRecords::flags_of(self.store().record(place)) & ~kTaken);
    });
}

// Environments and positions at which steps start, and the first and newest frame of their episodes; the first may have
// been evicted. IndexError for an unreadable step.
TupleOf<Indices, Indices, Indices, Indices> episode_spans(const BoundSteps& self, nb::handle indices_argument) {
    const IndexColumn indices(indices_argument, "indices");
    const std::size_t count = indices.size();
    std::int64_t *env_ids = nullptr, *positions = nullptr, *firsts = nullptr, *lasts = nullptr;
    Indices env_array = new_array(count, env_ids), position_array = new_array(count, positions);
    Indices first_array = new_array(count, firsts), last_array = new_array(count, lasts);
    const EpisodeStarts& starts = self.store().episode_starts();
    for (std::size_t row = 0; row < count; ++row) {
        const StepPlace place = located(self, indices[row]);
        const std::int64_t behind = starts.start_behind(place.env_id, place.position);
        env_ids[row] = static_cast<std::int64_t>(place.env_id);
        positions[row] = place.position;
        firsts[row] = std::max<std::int64_t>(starts.start_of(place.env_id, place.position), 0);
        lasts[row] = behind == kNoPosition ? self.store().cursors().newest_position(place.env_id) : behind - 1;
    }
    return nb::make_tuple(env_array, position_array, first_array, last_array);
}

ArrayOf<double> returns_to_go(const BoundSteps& self, nb::handle indices_argument, double discount) {
    const IndexColumn indices(indices_argument, "indices");
    if (!std::isfinite(discount)) {
        refuse("discount", "is not finite: it must be a finite number");
    }
    double* returns = nullptr;
    ArrayOf<double> array = new_array(indices.size(), returns);
    self.store().returns_to_go(indices.values(), indices.size(), discount, returns);
    return array;
}

// Per span: environment, position of its first step, number of steps, whether it is a whole ended episode, whether its
// episode is open, and where its episode begins.
TupleOf<Indices, Indices, Indices, ArrayOf<bool>, ArrayOf<bool>, Indices> readable_spans(BoundSteps& self) {
    const std::vector<StepSpan> spans = self.store().readable_spans();
    const std::size_t count = spans.size();
    std::int64_t *env_ids = nullptr, *positions = nullptr, *num_steps = nullptr, *episodes = nullptr;
    bool *are_whole = nullptr, *are_open = nullptr;
    Indices env_array = new_array(count, env_ids), position_array = new_array(count, positions);
    Indices num_steps_array = new_array(count, num_steps), episode_array = new_array(count, episodes);
    ArrayOf<bool> whole_array = new_array(count, are_whole), open_array = new_array(count, are_open);
    for (std::size_t row = 0; row < count; ++row) {
        episodes[row] = spans[row].episode;
        env_ids[row] = static_cast<std::int64_t>(spans[row].env_id);
        positions[row] = spans[row].position;
        num_steps[row] = spans[row].num_steps;
        are_whole[row] = spans[row].is_whole;
        are_open[row] = spans[row].is_open;
    }
    return nb::make_tuple(env_array, position_array, num_steps_array, whole_array, open_array, episode_array);
}

Indices sampleable_at(const BoundSteps& self, nb::handle ranks) {
    const auto size = static_cast<std::int64_t>(self.store().size());
    return for_each_index<std::int64_t>(ranks, "ranks", [&](std::int64_t rank) {
        if (rank < 0 || rank >= size) {
            throw std::out_of_range("rank " + std::to_string(rank) + " is not one of the " + std::to_string(size) +
                                    " sampleable transitions");
        }
        return self.store().sampleable_at(rank);
    });
}

ArrayOf<bool> is_sampleable(const BoundSteps& self, nb::handle indices) {
    return for_each_index<bool>(indices, "indices",
                                [&](std::int64_t index) { return self.store().is_sampleable(index); });
}

ArrayOf<bool> are_stored(const BoundSteps& self, nb::handle indices) {
    return for_each_index<bool>(indices, "indices",
                                [&](std::int64_t index) { return self.store().stored_record(index) != nullptr; });
}

std::vector<std::uint8_t*> stored_records(const StepStore& steps, const IndexColumn& indices) {
    std::vector<std::uint8_t*> records;
    for (std::size_t row = 0; row < indices.size(); ++row) {
        records.push_back(steps.stored_record(indices[row]));
        if (records.back() == nullptr) {
            refuse_missing(indices[row]);
        }
    }
    return records;
}

}  // namespace

void overwrite_steps(StepStore& steps, nb::handle indices_argument, nb::handle fields_argument) {
    struct Field {
        Field(std::size_t at, nb::handle argument) : offset(at), rows(argument, "fields", Scalar::kU8) {}
        std::size_t offset;
        BorrowedArray rows;
        std::size_t bytes = 0;  // of a row
    };
    const IndexColumn indices(indices_argument, "indices");
    const std::size_t count = std::max<std::size_t>(indices.size(), 1);
    std::deque<Field> fields;
    for (const nb::handle field : fields_argument) {
        fields.emplace_back(nb::cast<std::size_t>(field[0]), field[1]);
        fields.back().bytes = fields.back().rows.nbytes() / count;
        if (fields.back().bytes * indices.size() != fields.back().rows.nbytes() ||
            !steps.records().may_change(fields.back().offset, fields.back().bytes)) {
            refuse("fields", "do not fit: they must be rows of rewards or of extra fields, one for each index");
        }
    }
    const std::vector<std::uint8_t*> records = stored_records(steps, indices);
    for (const Field& field : fields) {
        const auto* rows = field.rows.values<const std::uint8_t>();
        for (std::size_t row = 0; row < records.size(); ++row) {
            std::copy_n(rows + row * field.bytes, field.bytes, records[row] + field.offset);
        }
    }
}

std::size_t forget_steps(StepStore& steps, nb::handle indices_argument) {
    const IndexColumn indices(indices_argument, "indices");
    stored_records(steps, indices);
    return steps.forget(indices.values(), indices.size());
}

namespace {

// The bytes of a field of each step in the return of transitions, (B, n_step, num_bytes), with zeros after its last
// step. IndexError for a transition that is not sampleable.
ArrayOf<std::uint8_t> return_field(const BoundSteps& self, nb::handle indices_argument, std::size_t offset,
                                   std::size_t num_bytes) {
    const IndexColumn indices(indices_argument, "indices");
    if (!self.store().records().may_change(offset, num_bytes)) {
        refuse("offset", "does not fit: it must be that of a reward or of an extra field");
    }
    const auto n_step = static_cast<std::size_t>(self.rules().n_step);
    std::uint8_t* bytes = nullptr;
    ArrayOf<std::uint8_t> fields = new_array(nb::make_tuple(indices.size(), n_step, num_bytes), bytes);
    std::vector<const std::uint8_t*> records(n_step);
    for (std::size_t row = 0; row < indices.size(); ++row) {
        const std::size_t count = self.store().steps_of_return(indices[row], records.data());
        if (count == 0) {
            refuse_missing(indices[row]);
        }
        for (std::size_t step = 0; step < count; ++step) {
            bytes = std::copy_n(records[step] + offset, num_bytes, bytes);
        }
        bytes = std::fill_n(bytes, (n_step - count) * num_bytes, std::uint8_t{0});
    }
    return fields;
}

Indices slots_of(const BoundSteps& self, nb::handle indices) {
    return for_each_index<std::int64_t>(indices, "indices", [&](std::int64_t index) {
        if (!self.store().is_sampleable(index)) {
            refuse_missing(index);
        }
        return self.store().slot_number_of(index);
    });
}

// -1 for those that are not sampleable.
Indices find_slots(const BoundSteps& self, nb::handle indices) {
    return for_each_index<std::int64_t>(indices, "indices", [&](std::int64_t index) {
        return self.store().is_sampleable(index) ? self.store().slot_number_of(index) : std::int64_t{-1};
    });
}

Indices indices_in(const BoundSteps& self, nb::handle slots) {
    return for_each_index<std::int64_t>(slots, "slots", [&](std::int64_t slot) {
        if (slot < 0 || slot >= self.store().num_slots()) {
            throw std::out_of_range("slot " + std::to_string(slot) + " is not one of the " +
                                    std::to_string(self.store().num_slots()) + " slots");
        }
        return self.store().index_in(slot);
    });
}

// Per environment how many episodes are known, and where they begin, environment after environment.
TupleOf<Indices, Indices> starts(const BoundSteps& self) {
    std::vector<std::int64_t> counts, positions;
    const EpisodeStarts& starts = self.store().episode_starts();
    for (std::size_t env_id = 0; env_id < self.store().num_envs(); ++env_id) {
        counts.push_back(static_cast<std::int64_t>(starts.size(env_id)));
        positions.insert(positions.end(), starts.begin(env_id), starts.end(env_id));
    }
    return nb::make_tuple(to_array(counts), to_array(positions));
}

void restore_starts(BoundSteps& self, nb::handle counts_argument, nb::handle positions_argument) {
    const IndexColumn counts(counts_argument, "counts"), positions(positions_argument, "positions");
    std::int64_t left = static_cast<std::int64_t>(positions.size());
    for (std::size_t env_id = 0; env_id < counts.size(); ++env_id) {
        left = counts[env_id] < 0 || counts[env_id] > left ? -1 : left - counts[env_id];
    }
    if (counts.size() != self.store().num_envs() || left != 0) {
        refuse("counts", "does not fit: it must divide " + std::to_string(positions.size()) + " starts among " +
                             std::to_string(self.store().num_envs()) + " environments");
    }
    std::vector<std::vector<std::int64_t>> starts;
    const std::int64_t* next = positions.values();
    for (std::size_t env_id = 0; env_id < counts.size(); ++env_id) {
        starts.emplace_back(next, next + counts[env_id]);
        next += counts[env_id];
    }
    self.store().restore_starts(std::move(starts));
}

// Sets what the properties of these names return.
void restore_envs(BoundSteps& self, nb::handle newest_positions, nb::handle episode_starts, nb::handle stretch_starts,
                  nb::handle is_open, nb::handle unreadable_before) {
    EnvCursors::Envs envs(self.store().num_envs());
    const auto restore = [&](std::vector<std::int64_t>& values, nb::handle argument, const char* name) {
        const IndexColumn given(argument, name);
        if (given.size() != values.size()) {
            refuse(name, "has " + std::to_string(given.size()) + " entries: it must have one for each of " +
                             std::to_string(values.size()) + " environments");
        }
        values = given.copy();
    };
    restore(envs.newest_positions, newest_positions, "newest_positions");
    restore(envs.episode_starts, episode_starts, "episode_starts");
    restore(envs.stretch_starts, stretch_starts, "stretch_starts");
    restore(envs.unreadable_before, unreadable_before, "unreadable_before");
    if (!read_flags(is_open, 1, envs.is_open)) {
        refuse("is_open", "has the wrong form: it must be a boolean for each environment");
    }
    self.store().cursors().envs() = std::move(envs);
}

template <std::vector<std::int64_t> EnvCursors::Envs::* kArray>
Indices env_array(const BoundSteps& self) {
    return to_array(self.store().cursors().envs().*kArray);
}

// Returns the capacity and the number of environments.
std::pair<std::size_t, std::size_t> sizes_of(nb::handle settings) {
    const auto capacity = nb::cast<std::int64_t>(settings.attr("capacity"));
    const auto num_envs = nb::cast<std::int64_t>(settings.attr("num_envs"));
    if (capacity < 1 || num_envs < 1) {
        refuse("capacity and num_envs",
               "are " + std::to_string(capacity) + " and " + std::to_string(num_envs) + ": they must be at least 1");
    }
    return {static_cast<std::size_t>(capacity), static_cast<std::size_t>(num_envs)};
}

class BoundRing : public BoundSteps {
public:
    explicit BoundRing(nb::handle settings) : BoundSteps(settings) {
        const auto [capacity, num_envs] = sizes_of(settings);
        store_ =
            std::make_unique<StepRing>(capacity, num_envs, rules(), nb::cast<bool>(settings.attr("releases_pages")));
    }

    StepRing& ring() const { return static_cast<StepRing&>(*store_); }

    // Returns the records of stored steps, one after the other.
    nb::bytes records(nb::handle indices_argument) const {
        const IndexColumn indices(indices_argument, "indices");
        const std::size_t bytes = ring().records().bytes();
        std::vector<std::uint8_t> records(indices.size() * bytes);
        for (std::size_t row = 0; row < indices.size(); ++row) {
            if (indices[row] < ring().oldest() || indices[row] >= ring().next_index()) {
                refuse_missing(indices[row]);
            }
            std::copy_n(ring().slot(indices[row]), bytes, records.data() + row * bytes);
        }
        return to_bytes(records);
    }

    // Writes records with these indices, before restore_span().
    void restore_records(nb::handle indices_argument, nb::handle records_argument) {
        const IndexColumn indices(indices_argument, "indices");
        const BorrowedArray records(records_argument, "records", Scalar::kU8);
        const std::size_t bytes = ring().records().bytes();
        if (records.nbytes() != indices.size() * bytes) {
            refuse("records", "has " + std::to_string(records.nbytes()) + " bytes: it must have " +
                                  std::to_string(bytes) + " for each of " + std::to_string(indices.size()) + " steps");
        }
        for (std::size_t row = 0; row < indices.size(); ++row) {
            if (indices[row] < 0) {
                refuse_missing(indices[row]);
            }
            std::copy_n(records.values<const std::uint8_t>() + row * bytes, bytes, ring().slot(indices[row]));
        }
    }

    void restore_span(std::int64_t oldest, std::int64_t next_index) {
        if (oldest < 0 || next_index < oldest || static_cast<std::size_t>(next_index - oldest) > ring().capacity()) {
            refuse("oldest and next_index", "are " + std::to_string(oldest) + " and " + std::to_string(next_index) +
                                                ": they must span 0 to " + std::to_string(ring().capacity()) +
                                                " indices");
        }
        ring().restore_span(oldest, next_index);
    }
};

class BoundBlocks : public BoundSteps {
public:
    // `retention`: its choose(n) returns which of n sealed blocks to evict, 0 being the oldest.
    BoundBlocks(nb::handle settings, const nb::object& retention) : BoundSteps(settings) {
        const auto [capacity, num_envs] = sizes_of(settings);
        store_ = std::make_unique<StepBlocks>(capacity, num_envs, rules(), [retention](std::size_t num_sealed) {
            return std::min(nb::cast<std::size_t>(retention.attr("choose")(num_sealed)), num_sealed - 1);
        });
    }

    StepBlocks& blocks() const { return static_cast<StepBlocks&>(*store_); }

    nb::bytes records(std::int64_t env_id, std::int64_t segment) const {
        const StepBlock* block = env_id < 0 || static_cast<std::size_t>(env_id) >= blocks().num_envs()
                                     ? nullptr
                                     : blocks().find(static_cast<std::size_t>(env_id), segment);
        if (block == nullptr) {
            throw std::out_of_range("segment " + std::to_string(segment) + " of environment " + std::to_string(env_id) +
                                    " is not stored: it was evicted or never appended");
        }
        return nb::bytes(block->records.data(), block->records.size());
    }

    // Of each block, oldest first: number, environment, segment, number of steps, whether it is sealed.
    TupleOf<Indices, ArrayOf<std::int32_t>, Indices, ArrayOf<std::int32_t>, ArrayOf<bool>> fields() const {
        const std::vector<const StepBlock*> stored = blocks().blocks();
        const std::size_t count = stored.size();
        std::int64_t *numbers = nullptr, *segments = nullptr;
        std::int32_t *env_ids = nullptr, *num_steps = nullptr;
        bool* are_sealed = nullptr;
        Indices number_array = new_array(count, numbers), segment_array = new_array(count, segments);
        ArrayOf<std::int32_t> env_array = new_array(count, env_ids), num_steps_array = new_array(count, num_steps);
        ArrayOf<bool> sealed_array = new_array(count, are_sealed);
        for (std::size_t row = 0; row < count; ++row) {
            numbers[row] = stored[row]->number;
            env_ids[row] = static_cast<std::int32_t>(stored[row]->env_id);
            segments[row] = stored[row]->segment;
            num_steps[row] = static_cast<std::int32_t>(stored[row]->num_steps);
            are_sealed[row] = stored[row]->is_sealed;
        }
        return nb::make_tuple(number_array, env_array, segment_array, num_steps_array, sealed_array);
    }

    Indices first_slots() const {
        std::vector<std::int64_t> slots;
        for (const StepBlock* block : blocks().blocks()) {
            slots.push_back(block->first_slot);
        }
        return to_array(slots);
    }

    void restore_block(std::int64_t number, std::int64_t env_id, std::int64_t segment, nb::handle records,
                       std::int64_t first_slot) {
        const bool is_known = env_id >= 0 && static_cast<std::size_t>(env_id) < blocks().num_envs();
        if (!is_known || segment < 0 || number < blocks().next_number() ||
            blocks().find(static_cast<std::size_t>(env_id), segment) != nullptr) {
            refuse("number, environment and segment",
                   "are " + std::to_string(number) + ", " + std::to_string(env_id) + " and " + std::to_string(segment) +
                       ": blocks must be restored in ascending order of numbers, each once");
        }
        if (first_slot != -1 && !blocks().has_free_slots(first_slot)) {
            refuse("first_slot", "is " + std::to_string(first_slot) + ": it must be a multiple of " +
                                     std::to_string(rules().segment_frames) + " that no other block uses, or -1");
        }
        if (records.is_none()) {
            blocks().restore(number, static_cast<std::size_t>(env_id), segment, nullptr, first_slot);
            return;
        }
        const BorrowedArray bytes(records, "records", Scalar::kU8);
        if (bytes.nbytes() != blocks().block_bytes()) {
            refuse("records", "has " + std::to_string(bytes.nbytes()) + " bytes: it must have those of a block, " +
                                  std::to_string(blocks().block_bytes()));
        }
        blocks().restore(number, static_cast<std::size_t>(env_id), segment, bytes.bytes().bytes, first_slot);
    }

    void restore_next_number(std::int64_t number) {
        if (number < blocks().next_number()) {
            refuse("number", "is " + std::to_string(number) + ": block " + std::to_string(blocks().next_number() - 1) +
                                 " exists, so it must be greater");
        }
        blocks().restore_next_number(number);
    }
};

}  // namespace

void bind_steps(nb::module_& module) {
    nb::class_<BoundSteps>(module, "StepStore")
        .def("__len__", [](const BoundSteps& self) { return self.store().size(); })
        .def_prop_ro("num_envs", [](const BoundSteps& self) { return self.store().num_envs(); })
        .def_prop_ro("n_step", [](const BoundSteps& self) { return self.rules().n_step; })
        .def_prop_ro("nbytes", [](const BoundSteps& self) { return self.store().nbytes(); })
        // Copies, with an entry for each environment: the position of its newest frame (-1 before the first), of the
        // first frame of its newest episode and of its newest stretch, and the position below which frames may be lost.
        .def_prop_ro("newest_positions", &env_array<&EnvCursors::Envs::newest_positions>)
        .def_prop_ro("episode_starts", &env_array<&EnvCursors::Envs::episode_starts>)
        .def_prop_ro("stretch_starts", &env_array<&EnvCursors::Envs::stretch_starts>)
        .def_prop_ro("unreadable_before", &env_array<&EnvCursors::Envs::unreadable_before>)
        .def_prop_ro("is_open", [](const BoundSteps& self) { return open_episodes(self.store().cursors()); })
        .def("restore_envs", &restore_envs, nb::arg("newest_positions"), nb::arg("episode_starts"),
             nb::arg("stretch_starts"), nb::arg("is_open"), nb::arg("unreadable_before"))
        .def("resolve", &resolve, nb::arg("indices"), nb::arg("with_extras") = true, nb::arg("merges_windows") = false)
        // As if n_step were 1; of pending steps too. One window each, of a border with frames of two stretches.
        .def(
            "resolve_steps",
            [](BoundSteps& self, nb::handle indices, bool with_extras) {
                return single_steps(self, IndexColumn(indices, "indices"), with_extras, nullptr);
            },
            nb::arg("indices"), nb::arg("with_extras") = true)
        .def("sampleable_indices",
             [](const BoundSteps& self) { return to_array(self.store().sampleable_after(-1, self.store().size())); })
        .def("sampleable_at", &sampleable_at, nb::arg("ranks"))
        .def(
            "sampleable_after",
            [](const BoundSteps& self, std::int64_t after, std::int64_t count) {
                return to_array(self.store().sampleable_after(after, count < 0 ? 0 : static_cast<std::size_t>(count)));
            },
            nb::arg("after"), nb::arg("count"))
        .def("is_sampleable", &is_sampleable, nb::arg("indices"))
        // Sampleable or not, as Core.overwrite takes them.
        .def("are_stored", &are_stored, nb::arg("indices"))
        .def_prop_ro("pending", [](const BoundSteps& self) { return to_array(self.store().pending_indices()); })
        .def_prop_ro("lost", [](const BoundSteps& self) { return to_array(self.store().lost_indices()); })
        .def_prop_ro("num_slots", [](const BoundSteps& self) { return self.store().num_slots(); })
        .def("slots_of", &slots_of, nb::arg("indices"))
        .def("find_slots", &find_slots, nb::arg("indices"))
        .def("indices_in", &indices_in, nb::arg("slots"))
        // Which slots a step entered or left is recorded while slots are watched.
        .def(
            "watch_slots", [](BoundSteps& self, bool is_watched) { self.store().changed_slots().watch(is_watched); },
            nb::arg("is_watched"))
        .def_prop_ro("has_changed_slots",
                     [](const BoundSteps& self) { return !self.store().changed_slots().is_empty(); })
        .def("changed_slots",
             [](BoundSteps& self) { return to_array(self.store().changed_slots().first_slots(kSlotsAtOnce)); })
        .def("remove_changed_slots", [](BoundSteps& self) { self.store().changed_slots().remove_first(); })
        .def(
            "lose",
            [](BoundSteps& self, std::int64_t env_id, std::int64_t first, std::int64_t before) {
                const std::size_t env = self.checked_env(env_id);
                return first < before ? self.store().lose(env, first, before) : 0;
            },
            nb::arg("env_id"), nb::arg("first"), nb::arg("before"))
        .def(
            "lose_indices",
            [](BoundSteps& self, nb::handle indices) {
                return self.store().lose_indices(IndexColumn(indices, "indices").copy());
            },
            nb::arg("indices"))
        .def("follow", &follow, nb::arg("indices"), nb::arg("length"), nb::arg("crosses") = false)
        .def("return_field", &return_field, nb::arg("indices"), nb::arg("offset"), nb::arg("num_bytes"))
        .def("aligned_starts", &aligned_starts, nb::arg("indices"), nb::arg("stride"), nb::arg("exact") = false)
        .def("find_steps", &find_steps, nb::arg("env_ids"), nb::arg("positions"))
        .def("places", &places, nb::arg("indices"))
        .def("flags_of", &flags_of, nb::arg("indices"))
        .def("episode_spans", &episode_spans, nb::arg("indices"))
        .def("returns_to_go", &returns_to_go, nb::arg("indices"), nb::arg("discount"))
        .def("readable_spans", &readable_spans)
        .def("starts", &starts)
        .def("restore_starts", &restore_starts, nb::arg("counts"), nb::arg("positions"))
        .def("rebuild_starts", [](BoundSteps& self) { self.store().restore_starts(self.store().find_starts()); })
        .def("restore_pending", [](BoundSteps& self) { self.store().restore_pending(); });

    nb::class_<BoundRing, BoundSteps>(module, "StepRing")
        .def(nb::init<nb::handle>(), nb::arg("settings"))
        .def_prop_ro("oldest", [](const BoundRing& self) { return self.ring().oldest(); })
        .def_prop_ro("next_index", [](const BoundRing& self) { return self.ring().next_index(); })
        .def("records", &BoundRing::records, nb::arg("indices"))
        .def("restore_records", &BoundRing::restore_records, nb::arg("indices"), nb::arg("records"))
        .def("restore_span", &BoundRing::restore_span, nb::arg("oldest"), nb::arg("next_index"))
        .def(
            "lose_records",
            [](BoundRing& self, nb::handle indices) {
                return self.ring().lose_records(IndexColumn(indices, "indices").copy());
            },
            nb::arg("indices"))
        .def("forget_lost", [](BoundRing& self) { return self.ring().forget_lost(); });

    nb::class_<BoundBlocks, BoundSteps>(module, "StepBlocks")
        .def(nb::init<nb::handle, const nb::object&>(), nb::arg("settings"), nb::arg("retention"))
        .def_prop_ro("num_sealed", [](const BoundBlocks& self) { return self.blocks().num_sealed(); })
        .def_prop_ro("num_steps", [](const BoundBlocks& self) { return self.blocks().num_steps(); })
        .def_prop_ro("next_number", [](const BoundBlocks& self) { return self.blocks().next_number(); })
        .def("blocks", &BoundBlocks::fields)
        .def("records", &BoundBlocks::records, nb::arg("env_id"), nb::arg("segment"))
        .def("first_slots", &BoundBlocks::first_slots)
        .def(
            "lose_leading_to",
            [](BoundBlocks& self, std::int64_t env_id, std::int64_t position) {
                return self.blocks().lose_leading_to(self.checked_env(env_id), position);
            },
            nb::arg("env_id"), nb::arg("position"))
        .def("restore_block", &BoundBlocks::restore_block, nb::arg("number"), nb::arg("env_id"), nb::arg("segment"),
             nb::arg("records").none(), nb::arg("first_slot") = -1)
        .def("restore_next_number", &BoundBlocks::restore_next_number, nb::arg("number"));
}

}  // namespace framestow
