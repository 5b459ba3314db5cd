// Bindings of PackedStreams and its readings.
//
// The GIL is released while windows are gathered. append and evict keep it, since getting it back may take a switch
// interval (5 ms) for microseconds of work. They release it when they wait for readers, and no reader waits for the GIL
// while it holds a lock.
#include "../packed_streams.hpp"

#include <nanobind/stl/optional.h>

#include <limits>
#include <optional>

#include "../window_gather.hpp"
#include "../worker_pool.hpp"
#include "arguments.hpp"
#include "parts.hpp"

namespace framestow {
namespace {

void py_init(PackedStreams* self, std::int64_t num_streams, std::uint32_t rows, std::uint32_t row_bytes,
             std::uint32_t pixel_bytes, std::optional<std::int64_t> frames_per_segment, std::size_t step_bytes) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes);
    if (num_streams < 1 || num_streams > std::numeric_limits<std::int32_t>::max()) {
        refuse("num_streams", "is " + std::to_string(num_streams) + ": must be 1 to 2**31 - 1");
    }
    std::uint32_t wanted = default_frames_per_segment(geometry);
    if (frames_per_segment) {
        if (*frames_per_segment < 1) {
            refuse("frames_per_segment", "is " + std::to_string(*frames_per_segment) + ": must be at least 1");
        }
        check_segment_frames(geometry, static_cast<std::uint64_t>(*frames_per_segment));
        wanted = static_cast<std::uint32_t>(*frames_per_segment);
    }
    new (self) PackedStreams(static_cast<std::size_t>(num_streams), geometry, wanted, step_bytes);
}

std::size_t py_append(PackedStreams& self, nb::handle streams_argument, nb::handle frames_argument) {
    const auto streams = as_column<std::int32_t>(streams_argument, "streams");
    const auto frames = as_array<ReadArray, std::uint8_t>(frames_argument, "frames");
    check_frames(frames, "frames", {streams.size}, self.geometry().frame_bytes());
    const auto* const first = static_cast<const std::uint8_t*>(frames.data());
    const std::size_t num_done = self.append_without_waiting(streams.values, first, streams.size);
    if (num_done < streams.size) {
        const nb::gil_scoped_release released;
        self.append(streams.values + num_done, first + num_done * self.geometry().frame_bytes(),
                    streams.size - num_done);
    }
    return self.charged_bytes();
}

std::int64_t py_evict(PackedStreams& self, std::int64_t stream, std::int64_t before, std::int64_t first) {
    if (const std::optional<std::int64_t> num_dropped = self.evict_without_waiting(stream, before, first)) {
        return *num_dropped;
    }
    const nb::gil_scoped_release released;
    return self.evict(stream, before, first);
}

std::size_t checked_threads(std::int64_t threads) {
    if (threads < 1 || static_cast<std::uint64_t>(threads) > kMaxThreads) {
        refuse("threads", "is " + std::to_string(threads) + ": must be 1 to " + std::to_string(kMaxThreads));
    }
    return static_cast<std::size_t>(threads);
}

void gather(const Reading& reading, nb::handle streams_argument, nb::handle last_positions_argument,
            nb::handle counts_argument, nb::handle out_argument, const char* padding, std::size_t num_threads) {
    const auto streams = as_column<std::int32_t>(streams_argument, "streams");
    const auto last_positions = as_column<std::int64_t>(last_positions_argument, "last_positions");
    const auto counts = as_column<std::int32_t>(counts_argument, "counts");
    const auto out = as_array<WriteArray, std::uint8_t>(out_argument, "out");
    if (last_positions.size != streams.size || counts.size != streams.size) {
        refuse("last_positions and counts", "have " + std::to_string(last_positions.size) + " and " +
                                                std::to_string(counts.size) + " entries: must have " +
                                                std::to_string(streams.size) + " as streams has");
    }
    const std::size_t length = out.ndim() < 2 ? 0 : out.shape(1);
    check_frames(out, "out", {streams.size, length}, reading.packed().geometry().frame_bytes());
    const StackPadding read_padding = padding_named(padding);
    const WindowRequests requests{streams.values, last_positions.values, counts.values, streams.size};
    const nb::gil_scoped_release released;
    gather_windows(reading, requests, length, read_padding, num_threads, static_cast<std::uint8_t*>(out.data()));
}

void py_gather(PackedStreams& self, nb::handle streams, nb::handle last_positions, nb::handle counts, nb::handle out,
               const char* padding, std::int64_t threads) {
    const Reading reading(self);
    gather(reading, streams, last_positions, counts, out, padding, checked_threads(threads));
}

// A reading with its number of threads.
struct PackedReading {
    PackedReading(PackedStreams& packed, std::size_t threads) : reading(packed), num_threads(threads) {}

    Reading reading;
    std::size_t num_threads;
};

// Paths are encoded by os.fsencode.
void py_move_to_file(PackedStreams& self, std::int64_t stream, std::int64_t number, const nb::bytes& path,
                     std::uint64_t offset, std::size_t size) {
    const std::string name(path.c_str(), path.size());
    const nb::gil_scoped_release released;
    self.move_to_file(stream, number, name, offset, size);
}

void py_restore_in_file(PackedStreams& self, std::int64_t stream, std::int64_t number, const nb::bytes& path,
                        std::uint64_t offset, std::size_t size) {
    self.restore_in_file(stream, number, std::string(path.c_str(), path.size()), offset, size);
}

void py_restore(PackedStreams& self, std::int64_t stream, std::int64_t number, nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    self.restore(stream, number, span_of(segment));
}

nb::object py_sealed_numbers(const PackedStreams& self, std::int64_t stream) {
    const std::vector<std::int64_t> numbers = self.sealed_numbers(stream);
    std::int64_t* values = nullptr;
    nb::object array = new_array(nb::int_(numbers.size()), numpy_dtypes().int64, values);
    std::copy(numbers.begin(), numbers.end(), values);
    return array;
}

}  // namespace

void bind_packed_streams(nb::module_& module) {
    nb::class_<PackedReading>(module, "PackedReading")
        .def(
            "windows",
            [](const PackedReading& self, nb::handle streams, nb::handle last_positions, nb::handle counts,
               nb::handle out, const char* padding) {
                gather(self.reading, streams, last_positions, counts, out, padding, self.num_threads);
            },
            nb::arg("streams"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
            nb::arg("padding") = "first_frame")
        .def("stop", [](PackedReading& self) { self.reading.stop(); });
    nb::class_<PackedStreams>(module, "PackedStreams")
        .def("__init__", &py_init, nb::arg("num_streams"), nb::arg("rows"), nb::arg("row_bytes"),
             nb::arg("pixel_bytes"), nb::arg("frames_per_segment").none() = nb::none(), nb::arg("step_bytes") = 0)
        .def("append", &py_append, nb::arg("streams"), nb::arg("frames"))
        .def("gather", &py_gather, nb::arg("streams"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
             nb::arg("padding") = "first_frame", nb::arg("threads") = 1)
        .def(
            "start_reading",
            [](PackedStreams& self, std::int64_t threads) { return new PackedReading(self, checked_threads(threads)); },
            nb::arg("threads") = 1, nb::keep_alive<0, 1>())
        .def("evict", &py_evict, nb::arg("stream"), nb::arg("before"), nb::arg("first") = 0)
        .def("first_position", &PackedStreams::first_position, nb::arg("stream"))
        .def("next_position", &PackedStreams::next_position, nb::arg("stream"))
        .def(
            "segment",
            [](PackedStreams& self, std::int64_t stream, std::int64_t number) {
                return to_bytes(self.segment(stream, number));
            },
            nb::arg("stream"), nb::arg("number"))
        .def("sealed_numbers", &py_sealed_numbers, nb::arg("stream"))
        .def("begin_at", &PackedStreams::begin_at, nb::arg("stream"), nb::arg("number"))
        .def("restore", &py_restore, nb::arg("stream"), nb::arg("number"), nb::arg("segment"))
        .def("move_to_file", &py_move_to_file, nb::arg("stream"), nb::arg("number"), nb::arg("path"),
             nb::arg("offset"), nb::arg("size"))
        .def("restore_in_file", &py_restore_in_file, nb::arg("stream"), nb::arg("number"), nb::arg("path"),
             nb::arg("offset"), nb::arg("size"))
        .def_prop_ro("num_streams", &PackedStreams::num_streams)
        .def_prop_ro("charged_bytes", &PackedStreams::charged_bytes)
        .def("charge_steps", &PackedStreams::charge_steps, nb::arg("step_bytes"))
        .def_prop_ro("num_frames", &PackedStreams::num_frames)
        .def_prop_ro("frames_per_segment", &PackedStreams::frames_per_segment)
        .def_prop_ro("sealed_nbytes", [](const PackedStreams& self) { return self.nbytes().sealed; })
        .def_prop_ro("open_nbytes", [](const PackedStreams& self) { return self.nbytes().open; })
        .def_prop_ro("index_nbytes", [](const PackedStreams& self) { return self.nbytes().index; })
        .def_prop_ro("disk_nbytes", [](const PackedStreams& self) { return self.nbytes().in_files; });
}

}  // namespace framestow
