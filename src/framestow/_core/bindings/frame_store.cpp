// Bindings of frame stores and their snapshots: one store per array of an observation, with the same positions in all.
//
// The GIL is released while windows are read. append and evict keep it, since getting it back may take a switch
// interval (5 ms) for microseconds of work. They release it when they wait for readers, and no reader waits for the GIL
// while it holds a lock.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "../window_reader.hpp"
#include "array_stores.hpp"
#include "module.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

// How each frame of a step continues or begins a stretch, from arguments that stay borrowed: `paddings`, uint8 with a
// StretchPadding for each frame, and `lead_ins`, (frames, num_lead_ins, *frame), where only the rows of stretches with
// lead-ins are read. Only the first axis of `lead_ins` may have gaps: it may be a part of larger observations.
class StretchStarts {
public:
    void read(nb::handle paddings, nb::handle lead_ins, std::size_t num_frames, std::size_t num_lead_ins,
              std::size_t frame_bytes);

    // Returns one for each frame, or null without paddings.
    const StretchStart* starts() const { return starts_.empty() ? nullptr : starts_.data(); }

private:
    std::vector<StretchStart> starts_;
    BorrowedArray lead_ins_;
};

void StretchStarts::read(nb::handle paddings, nb::handle lead_ins, std::size_t num_frames, std::size_t num_lead_ins,
                         std::size_t frame_bytes) {
    if (paddings.is_none()) {
        return;
    }
    const Column<std::uint8_t> column(paddings, "paddings");
    if (column.size() != num_frames) {
        refuse("paddings", "has " + std::to_string(column.size()) + " entries: it must have one for each of " +
                               std::to_string(num_frames) + " frames");
    }
    bool has_lead_ins = false;
    starts_.resize(num_frames);
    for (std::size_t row = 0; row < num_frames; ++row) {
        starts_[row].padding = static_cast<StretchPadding>(column[row]);
        if (starts_[row].padding > StretchPadding::kUsual) {
            refuse("paddings", "has the entry " + std::to_string(column[row]) + ": entries must be 0 to 3");
        }
        has_lead_ins = has_lead_ins || starts_[row].padding == StretchPadding::kLeadIns;
    }
    if (!has_lead_ins || num_lead_ins == 0) {
        return;
    }
    const Py_buffer& view = lead_ins_.view();
    if (!lead_ins_.borrow_strided(lead_ins) || view.ndim < 2 || lead_ins_.num_rows() != num_frames ||
        static_cast<std::size_t>(view.shape[1]) != num_lead_ins || !lead_ins_.is_c_ordered_from(1) ||
        lead_ins_.nbytes() != num_frames * num_lead_ins * frame_bytes) {
        refuse("lead_ins", "does not fit: it must be an array (" + std::to_string(num_frames) + ", " +
                               std::to_string(num_lead_ins) + ", *frame) with frames of " +
                               std::to_string(frame_bytes) + " bytes, in C order from its second axis on");
    }
    for (std::size_t row = 0; row < num_frames; ++row) {
        starts_[row].lead_ins = lead_ins_.values<const std::uint8_t>() + static_cast<Py_ssize_t>(row) * view.strides[0];
    }
}

// The frames of one step, one for each of `env_ids` in every array, checked before anything changes. `paddings` and
// `lead_ins` are none, or as StretchStarts reads them: a padding per frame for all arrays, and each array's lead-ins.
class StepFrames {
public:
    StepFrames(const ArrayStores& stores, nb::handle frames, const std::int32_t* env_ids, std::size_t count,
               nb::handle paddings = nb::none(), nb::handle lead_ins = nb::none())
        : stores_(stores), arrays_(frames, stores.size(), "frames"), env_ids_(env_ids), count_(count) {
        for (std::size_t array = 0; array < stores.size(); ++array) {
            check_frames(arrays_[array], "frames", {count}, stores[array].format().frame_bytes());
        }
        if (!paddings.is_none()) {
            read_stretch_starts(paddings, lead_ins);
        }
    }

    const std::uint8_t* of_array(std::size_t array) const { return arrays_[array].values<const std::uint8_t>(); }

    // One for each frame, or null without paddings.
    const StretchStart* stretch_starts(std::size_t array) const {
        return stretch_starts_ ? stretch_starts_[array].starts() : nullptr;
    }

    void append() const {
        for (std::size_t array = 0; array < stores_.size(); ++array) {
            append_frames(stores_[array], env_ids_, of_array(array), count_, stretch_starts(array));
        }
    }

private:
    void read_stretch_starts(nb::handle paddings, nb::handle lead_ins) {
        const bool is_tuple = nb::isinstance<nb::tuple>(lead_ins);
        if (!lead_ins.is_none() && (is_tuple || stores_.size() > 1) &&
            !(is_tuple && nb::len(lead_ins) == stores_.size())) {
            refuse("lead_ins", "is not a tuple of " + std::to_string(stores_.size()) +
                                   " entries: it must have an array, or None, for each array");
        }
        stretch_starts_.reset(new StretchStarts[stores_.size()]);
        for (std::size_t array = 0; array < stores_.size(); ++array) {
            const FrameFormat& format = stores_[array].format();
            const nb::object of_array = is_tuple ? nb::object(lead_ins[array]) : nb::borrow(lead_ins);
            stretch_starts_[array].read(paddings, of_array, count_, format.lead_ins, format.frame_bytes());
        }
    }

    const ArrayStores& stores_;
    BorrowedArrays arrays_;
    std::unique_ptr<StretchStarts[]> stretch_starts_;  // none without paddings
    const std::int32_t* env_ids_;                      // count_ of them, owned by the caller
    std::size_t count_;
};

std::size_t py_append(ArrayStores& self, nb::handle env_ids_argument, nb::handle frames_argument, nb::handle paddings,
                      nb::handle lead_ins) {
    const Column<std::int32_t> env_ids(env_ids_argument, "env_ids");
    StepFrames(self, frames_argument, env_ids.values(), env_ids.size(), paddings, lead_ins).append();
    return charged_bytes(self);
}

constexpr std::size_t kMostFrames = std::numeric_limits<std::int32_t>::max();  // of a window

// The columns of window requests, with as many entries each.
struct WindowColumns {
    WindowColumns(nb::handle env_ids_argument, nb::handle last_positions_argument, nb::handle counts_argument)
        : env_ids(env_ids_argument, "env_ids"),
          last_positions(last_positions_argument, "last_positions"),
          counts(counts_argument, "counts"),
          requests{env_ids.values(), last_positions.values(), counts.values(), env_ids.size()} {
        if (last_positions.size() != env_ids.size() || counts.size() != env_ids.size()) {
            refuse("last_positions and counts", "have " + std::to_string(last_positions.size()) + " and " +
                                                    std::to_string(counts.size()) + " entries: they must have " +
                                                    std::to_string(env_ids.size()) + " as environments has");
        }
    }

    Column<std::int32_t> env_ids;
    Column<std::int64_t> last_positions;
    Column<std::int32_t> counts;
    WindowRequests requests;
};

// A snapshot of each array.
class ArraySnapshots {
public:
    explicit ArraySnapshots(const ArrayStores& stores) : stores_(stores) {
        for (std::size_t array = 0; array < stores.size(); ++array) {
            snapshots_.push_back(std::make_unique<Snapshot>(stores[array]));
        }
    }

    const ArrayStores& stores() const { return stores_; }
    ArraySnapshots(const ArraySnapshots&) = delete;
    ArraySnapshots& operator=(const ArraySnapshots&) = delete;

    // Reads one array alone, or all of them if `only` is none. An array of shallower stacks than another one has the
    // last frames of each window, as many as its output takes.
    void windows(nb::handle env_ids_argument, nb::handle last_positions_argument, nb::handle counts_argument,
                 nb::handle out_argument, const char* padding, std::optional<std::size_t> only,
                 std::size_t num_threads) const {
        const WindowColumns columns(env_ids_argument, last_positions_argument, counts_argument);
        if (only && *only >= stores_.size()) {
            refuse("array", "is " + std::to_string(*only) + ": it must be below " + std::to_string(stores_.size()));
        }
        const std::size_t first = only.value_or(0);
        const std::size_t num_arrays = only ? 1 : stores_.size();
        const BorrowedArrays outputs(out_argument, num_arrays, "out", Access::kWrite);
        const auto length = [&](std::size_t at) {
            const Py_buffer& view = outputs[at].view();
            return view.ndim < 2 ? 0 : static_cast<std::size_t>(view.shape[1]);
        };
        for (std::size_t at = 0; at < num_arrays; ++at) {
            check_frames(outputs[at], "out", {columns.requests.num_windows, length(at)},
                         stores_[first + at].format().frame_bytes());
        }
        const StackPadding read_padding = padding_named(padding);
        const ReleaseGil released;
        for (std::size_t at = 0; at < num_arrays; ++at) {
            WindowRequests requests = columns.requests;
            std::vector<std::int32_t> counts;
            if (stores_.is_shallower(first + at)) {
                counts.assign(requests.counts, requests.counts + requests.num_windows);
                const auto most = static_cast<std::int32_t>(std::min<std::size_t>(length(at), kMostFrames));
                std::for_each(counts.begin(), counts.end(),
                              [&](std::int32_t& count) { count = std::min(count, most); });
                requests.counts = counts.data();
            }
            read_windows(*snapshots_[first + at], requests, length(at), read_padding, num_threads,
                         outputs[at].values<std::uint8_t>());
        }
    }

    // Returns the first window of which an array lacks a frame, or their number.
    std::size_t find_missing_window(nb::handle env_ids, nb::handle last_positions, nb::handle counts,
                                    std::size_t length) const {
        const WindowColumns columns(env_ids, last_positions, counts);
        std::size_t first = columns.requests.num_windows;
        for (const auto& snapshot : snapshots_) {
            first = std::min(first, framestow::find_missing_window(*snapshot, columns.requests, length));
        }
        return first;
    }

    void stop() {
        for (const auto& snapshot : snapshots_) {
            snapshot->stop();
        }
    }

private:
    const ArrayStores& stores_;
    std::vector<std::unique_ptr<Snapshot>> snapshots_;  // one per array
};

// Paths are encoded by os.fsencode.
void py_move_to_file(ArrayStores& self, std::int64_t track, std::int64_t number, const nb::bytes& path,
                     std::uint64_t offset, std::size_t size) {
    const std::string name(path.c_str(), path.size());
    const ArrayStores::Track at = self.at(track);
    const ReleaseGil released;
    at.store.move_to_file(at.env_id, number, name, offset, size);
}

void py_restore_in_file(ArrayStores& self, std::int64_t track, std::int64_t number, const nb::bytes& path,
                        std::uint64_t offset, std::size_t size, std::optional<std::uint32_t> checksum) {
    const ArrayStores::Track at = self.at(track);
    at.store.restore_in_file(at.env_id, number, std::string(path.c_str(), path.size()), offset, size, checksum);
}

void py_restore(ArrayStores& self, std::int64_t track, std::int64_t number, nb::handle segment_argument) {
    const BorrowedArray segment(segment_argument, "segment", Scalar::kU8);
    const ArrayStores::Track at = self.at(track);
    at.store.restore(at.env_id, number, segment.bytes());
}

nb::bytes py_segment(ArrayStores& self, std::int64_t track, std::int64_t number) {
    const ArrayStores::Track at = self.at(track);
    std::vector<std::uint8_t> segment;
    {
        const ReleaseGil released;
        segment = at.store.segment(at.env_id, number);
    }
    return to_bytes(segment);
}

Indices py_sealed_segments(const ArrayStores& self, std::int64_t track) {
    const ArrayStores::Track at = self.at(track);
    return to_array(at.store.sealed_numbers(at.env_id));
}

// Bytes of one array: sealed segments, open segments and scratch, index, files.
TupleOf<std::size_t, std::size_t, std::size_t, std::size_t> py_nbytes_of(const ArrayStores& self, std::size_t array) {
    const FrameStore::Bytes bytes = self[array].nbytes();
    return nb::make_tuple(bytes.sealed, bytes.open, bytes.index, bytes.in_files);
}

template <std::size_t FrameStore::Bytes::* kPart>
std::size_t part_nbytes(const ArrayStores& self) {
    return self.sum([](const FrameStore& store) { return store.nbytes().*kPart; });
}

}  // namespace

void bind_frame_store(nb::module_& module) {
    nb::class_<ArraySnapshots>(module, "FrameSnapshot")
        .def(
            "windows",
            [](const ArraySnapshots& self, nb::handle env_ids, nb::handle last_positions, nb::handle counts,
               nb::handle out, const char* padding, std::optional<std::size_t> array) {
                self.windows(env_ids, last_positions, counts, out, padding, array, self.stores().num_threads);
            },
            nb::arg("env_ids"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
            nb::arg("padding") = "first_frame", nb::arg("array").none() = nb::none())
        .def("find_missing_window", &ArraySnapshots::find_missing_window, nb::arg("env_ids"), nb::arg("last_positions"),
             nb::arg("counts"), nb::arg("length"))
        .def("stop", &ArraySnapshots::stop);
    nb::class_<ArrayStores>(module, "FrameStore")
        .def(nb::init<std::int64_t, nb::handle, std::optional<std::int64_t>, std::size_t, std::int64_t>(),
             nb::arg("num_envs"), nb::arg("arrays"), nb::arg("frames_per_segment").none() = nb::none(),
             nb::arg("step_bytes") = 0, nb::arg("threads") = 1)
        .def("append", &py_append, nb::arg("env_ids"), nb::arg("frames"), nb::arg("paddings").none() = nb::none(),
             nb::arg("lead_ins").none() = nb::none())
        .def(
            "windows",
            [](const ArrayStores& self, nb::handle env_ids, nb::handle last_positions, nb::handle counts,
               nb::handle out, const char* padding, std::optional<std::int64_t> threads) {
                const std::size_t num_threads = threads ? checked_threads(*threads) : self.num_threads;
                ArraySnapshots(self).windows(env_ids, last_positions, counts, out, padding, std::nullopt, num_threads);
            },
            nb::arg("env_ids"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
            nb::arg("padding") = "first_frame", nb::arg("threads").none() = nb::none())
        .def(
            "take_snapshot", [](const ArrayStores& self) { return new ArraySnapshots(self); }, nb::keep_alive<0, 1>())
        .def("evict", &evict_frames, nb::arg("env_id"), nb::arg("before"), nb::arg("first") = 0)
        .def(
            "first_position",
            [](const ArrayStores& self, std::int64_t track) {
                const ArrayStores::Track at = self.at(track);
                return at.store.first_position(at.env_id);
            },
            nb::arg("track"))
        .def(
            "next_position",
            [](const ArrayStores& self, std::int64_t track) {
                const ArrayStores::Track at = self.at(track);
                return at.store.next_position(at.env_id);
            },
            nb::arg("track"))
        .def("segment", &py_segment, nb::arg("track"), nb::arg("number"))
        .def("sealed_segments", &py_sealed_segments, nb::arg("track"))
        .def(
            "begin_at",
            [](const ArrayStores& self, std::int64_t track, std::int64_t number) {
                const ArrayStores::Track at = self.at(track);
                at.store.begin_at(at.env_id, number);
            },
            nb::arg("track"), nb::arg("number"))
        .def("restore", &py_restore, nb::arg("track"), nb::arg("number"), nb::arg("segment"))
        .def("move_to_file", &py_move_to_file, nb::arg("track"), nb::arg("number"), nb::arg("path"), nb::arg("offset"),
             nb::arg("size"))
        .def("restore_in_file", &py_restore_in_file, nb::arg("track"), nb::arg("number"), nb::arg("path"),
             nb::arg("offset"), nb::arg("size"), nb::arg("checksum") = nb::none())
        .def_prop_ro("num_envs", &ArrayStores::num_envs)
        .def_prop_ro("charged_bytes", &charged_bytes)
        .def(
            "charge_steps", [](ArrayStores& self, std::size_t step_bytes) { self.first().charge_steps(step_bytes); },
            nb::arg("step_bytes"))
        .def(
            "charge_commits",
            [](ArrayStores& self, std::size_t num_commits, std::size_t most_steps, std::size_t step_bytes) {
                for (std::size_t array = 0; array < self.size(); ++array) {
                    self[array].charge_commits({num_commits, most_steps, array == 0 ? step_bytes : 0});
                }
            },
            nb::arg("num_commits"), nb::arg("most_steps"), nb::arg("step_bytes"))
        .def(
            "num_frames_of",
            [](const ArrayStores& self, std::size_t array) -> TupleOf<std::int64_t, std::int64_t> {
                return nb::make_tuple(self[array].num_frames(), self[array].num_exact());
            },
            nb::arg("array"))
        .def(
            "num_whole_of", [](const ArrayStores& self, std::size_t array) { return self[array].num_whole(); },
            nb::arg("array"))
        .def_prop_ro("frames_per_segment", [](const ArrayStores& self) { return self.first().frames_per_segment(); })
        .def("nbytes_of", &py_nbytes_of, nb::arg("array"))
        .def_prop_ro("sealed_nbytes", &part_nbytes<&FrameStore::Bytes::sealed>)
        .def_prop_ro("open_nbytes", &part_nbytes<&FrameStore::Bytes::open>)
        .def_prop_ro("index_nbytes", &part_nbytes<&FrameStore::Bytes::index>)
        .def_prop_ro("disk_nbytes", &part_nbytes<&FrameStore::Bytes::in_files>);
}

}  // namespace framestow
