// Bindings of frame stores and their readings: one store per leaf of an observation, with the same positions in all.
//
// The GIL is released while windows are gathered. append and evict keep it, since getting it back may take a switch
// interval (5 ms) for microseconds of work. They release it when they wait for readers, and no reader waits for the GIL
// while it holds a lock.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "../window_gather.hpp"
#include "leaf_stores.hpp"
#include "parts.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

std::size_t py_append(LeafStores& self, nb::handle streams_argument, nb::handle frames_argument) {
    const auto streams = as_column<std::int32_t>(streams_argument, "streams");
    StepFrames(self, frames_argument, streams.values, streams.size).append();
    return charged_bytes(self);
}

std::int64_t py_evict(LeafStores& self, std::int64_t stream, std::int64_t before, std::int64_t first) {
    std::int64_t num_evicted = 0;
    for (std::size_t leaf = 0; leaf < self.size(); ++leaf) {
        if (const std::optional<std::int64_t> done = self[leaf].evict_without_waiting(stream, before, first)) {
            num_evicted = *done;
        } else {
            const ReleaseGil released;
            num_evicted = self[leaf].evict(stream, before, first);
        }
    }
    return num_evicted;
}

// The columns of window requests, with as many entries each.
struct WindowColumns {
    WindowColumns(nb::handle streams_argument, nb::handle last_positions_argument, nb::handle counts_argument)
        : streams(as_column<std::int32_t>(streams_argument, "streams")),
          last_positions(as_column<std::int64_t>(last_positions_argument, "last_positions")),
          counts(as_column<std::int32_t>(counts_argument, "counts")),
          requests{streams.values, last_positions.values, counts.values, streams.size} {
        if (last_positions.size != streams.size || counts.size != streams.size) {
            refuse("last_positions and counts", "have " + std::to_string(last_positions.size) + " and " +
                                                    std::to_string(counts.size) + " entries: must have " +
                                                    std::to_string(streams.size) + " as streams has");
        }
    }

    Column<std::int32_t> streams;
    Column<std::int64_t> last_positions;
    Column<std::int32_t> counts;
    WindowRequests requests;
};

// A reading of each leaf.
class LeafReadings {
public:
    explicit LeafReadings(const LeafStores& stores) : stores_(stores) {
        for (std::size_t leaf = 0; leaf < stores.size(); ++leaf) {
            readings_.push_back(std::make_unique<Reading>(stores[leaf]));
        }
    }

    const LeafStores& stores() const { return stores_; }
    LeafReadings(const LeafReadings&) = delete;
    LeafReadings& operator=(const LeafReadings&) = delete;

    // Gathers one leaf alone, or all of them if `only` is none.
    void windows(nb::handle streams_argument, nb::handle last_positions_argument, nb::handle counts_argument,
                 nb::handle out_argument, const char* padding, std::optional<std::size_t> only,
                 std::size_t num_threads) const {
        const WindowColumns columns(streams_argument, last_positions_argument, counts_argument);
        if (only && *only >= stores_.size()) {
            refuse("leaf", "is " + std::to_string(*only) + ": must be below " + std::to_string(stores_.size()));
        }
        const std::size_t first = only.value_or(0);
        const std::size_t num_leaves = only ? 1 : stores_.size();
        const LeafArrays outputs(out_argument, num_leaves, "out", true);
        const auto length = [&](std::size_t at) {
            const Py_buffer& view = outputs[at].view();
            return view.ndim < 2 ? 0 : static_cast<std::size_t>(view.shape[1]);
        };
        for (std::size_t at = 0; at < num_leaves; ++at) {
            check_frames(outputs[at], "out", {columns.requests.num_windows, length(at)},
                         stores_[first + at].format().frame_bytes());
        }
        const StackPadding read_padding = padding_named(padding);
        const ReleaseGil released;
        for (std::size_t at = 0; at < num_leaves; ++at) {
            gather_windows(*readings_[first + at], columns.requests, length(at), read_padding, num_threads,
                           outputs[at].values<std::uint8_t>());
        }
    }

    // Returns the first window of which a leaf lacks a frame, or their number.
    std::size_t find_missing_window(nb::handle streams, nb::handle last_positions, nb::handle counts,
                                    std::size_t length) const {
        const WindowColumns columns(streams, last_positions, counts);
        std::size_t first = columns.requests.num_windows;
        for (const auto& reading : readings_) {
            first = std::min(first, framestow::find_missing_window(*reading, columns.requests, length));
        }
        return first;
    }

    void stop() {
        for (const auto& reading : readings_) {
            reading->stop();
        }
    }

private:
    const LeafStores& stores_;
    std::vector<std::unique_ptr<Reading>> readings_;
};

// Paths are encoded by os.fsencode.
void py_move_to_file(LeafStores& self, std::int64_t stream, std::int64_t number, const nb::bytes& path,
                     std::uint64_t offset, std::size_t size) {
    const std::string name(path.c_str(), path.size());
    FrameStore& store = self.at(stream);
    const ReleaseGil released;
    store.move_to_file(stream, number, name, offset, size);
}

void py_restore_in_file(LeafStores& self, std::int64_t stream, std::int64_t number, const nb::bytes& path,
                        std::uint64_t offset, std::size_t size) {
    self.at(stream).restore_in_file(stream, number, std::string(path.c_str(), path.size()), offset, size);
}

void py_restore(LeafStores& self, std::int64_t stream, std::int64_t number, nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    self.at(stream).restore(stream, number, span_of(segment));
}

nb::bytes py_segment(LeafStores& self, std::int64_t stream, std::int64_t number) {
    FrameStore& store = self.at(stream);
    std::vector<std::uint8_t> segment;
    {
        const ReleaseGil released;
        segment = store.segment(stream, number);
    }
    return to_bytes(segment);
}

nb::object py_sealed_segments(const LeafStores& self, std::int64_t stream) {
    const std::vector<std::int64_t> numbers = self.at(stream).sealed_numbers(stream);
    std::int64_t* values = nullptr;
    nb::object array = new_array(nb::int_(numbers.size()), numpy_dtypes().int64, values);
    std::copy(numbers.begin(), numbers.end(), values);
    return array;
}

// Bytes of one leaf: sealed segments, open segments and scratch, index, files.
nb::tuple py_nbytes_of(const LeafStores& self, std::size_t leaf) {
    const FrameStore::Bytes bytes = self[leaf].nbytes();
    return nb::make_tuple(bytes.sealed, bytes.open, bytes.index, bytes.in_files);
}

template <std::size_t FrameStore::Bytes::*kPart>
std::size_t part_nbytes(const LeafStores& self) {
    return self.sum([](const FrameStore& store) { return store.nbytes().*kPart; });
}

}  // namespace

void bind_frame_store(nb::module_& module) {
    nb::class_<LeafReadings>(module, "FrameReading")
        .def(
            "windows",
            [](const LeafReadings& self, nb::handle streams, nb::handle last_positions, nb::handle counts,
               nb::handle out, const char* padding, std::optional<std::size_t> leaf) {
                self.windows(streams, last_positions, counts, out, padding, leaf, self.stores().num_threads);
            },
            nb::arg("streams"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
            nb::arg("padding") = "first_frame", nb::arg("leaf").none() = nb::none())
        .def("find_missing_window", &LeafReadings::find_missing_window, nb::arg("streams"), nb::arg("last_positions"),
             nb::arg("counts"), nb::arg("length"))
        .def("stop", &LeafReadings::stop);
    nb::class_<LeafStores>(module, "FrameStore")
        .def(nb::init<std::int64_t, nb::handle, std::optional<std::int64_t>, std::size_t, std::int64_t>(),
             nb::arg("num_streams"), nb::arg("leaves"), nb::arg("frames_per_segment").none() = nb::none(),
             nb::arg("step_bytes") = 0, nb::arg("threads") = 1)
        .def("append", &py_append, nb::arg("streams"), nb::arg("frames"))
        .def(
            "windows",
            [](const LeafStores& self, nb::handle streams, nb::handle last_positions, nb::handle counts, nb::handle out,
               const char* padding, std::optional<std::int64_t> threads) {
                const std::size_t num_threads = threads ? checked_threads(*threads) : self.num_threads;
                LeafReadings(self).windows(streams, last_positions, counts, out, padding, std::nullopt, num_threads);
            },
            nb::arg("streams"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
            nb::arg("padding") = "first_frame", nb::arg("threads").none() = nb::none())
        .def(
            "start_reading", [](const LeafStores& self) { return new LeafReadings(self); }, nb::keep_alive<0, 1>())
        .def("evict", &py_evict, nb::arg("stream"), nb::arg("before"), nb::arg("first") = 0)
        .def(
            "first_position",
            [](const LeafStores& self, std::int64_t stream) { return self.at(stream).first_position(stream); },
            nb::arg("stream"))
        .def(
            "next_position",
            [](const LeafStores& self, std::int64_t stream) { return self.at(stream).next_position(stream); },
            nb::arg("stream"))
        .def("segment", &py_segment, nb::arg("stream"), nb::arg("number"))
        .def("sealed_segments", &py_sealed_segments, nb::arg("stream"))
        .def(
            "begin_at",
            [](const LeafStores& self, std::int64_t stream, std::int64_t number) {
                self.at(stream).begin_at(stream, number);
            },
            nb::arg("stream"), nb::arg("number"))
        .def("restore", &py_restore, nb::arg("stream"), nb::arg("number"), nb::arg("segment"))
        .def("move_to_file", &py_move_to_file, nb::arg("stream"), nb::arg("number"), nb::arg("path"),
             nb::arg("offset"), nb::arg("size"))
        .def("restore_in_file", &py_restore_in_file, nb::arg("stream"), nb::arg("number"), nb::arg("path"),
             nb::arg("offset"), nb::arg("size"))
        .def_prop_ro("num_streams", &LeafStores::num_streams)
        .def_prop_ro("charged_bytes", &charged_bytes)
        .def(
            "charge_steps", [](LeafStores& self, std::size_t step_bytes) { self.first().charge_steps(step_bytes); },
            nb::arg("step_bytes"))
        .def(
            "num_frames_of",
            [](const LeafStores& self, std::size_t leaf) {
                return nb::make_tuple(self[leaf].num_frames(), self[leaf].num_exact());
            },
            nb::arg("leaf"))
        .def_prop_ro("frames_per_segment", [](const LeafStores& self) { return self.first().frames_per_segment(); })
        .def("nbytes_of", &py_nbytes_of, nb::arg("leaf"))
        .def_prop_ro("sealed_nbytes", &part_nbytes<&FrameStore::Bytes::sealed>)
        .def_prop_ro("open_nbytes", &part_nbytes<&FrameStore::Bytes::open>)
        .def_prop_ro("index_nbytes", &part_nbytes<&FrameStore::Bytes::index>)
        .def_prop_ro("disk_nbytes", &part_nbytes<&FrameStore::Bytes::in_files>);
}

}  // namespace framestow
