// Bindings of frame stores and their readings: one store per leaf of an observation, with the same positions in all.
//
// The GIL is released while windows are gathered. append and evict keep it, since getting it back may take a switch
// interval (5 ms) for microseconds of work. They release it when they wait for readers, and no reader waits for the GIL
// while it holds a lock.
#include "../frame_store.hpp"

#include <nanobind/stl/optional.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "../window_gather.hpp"
#include "../worker_pool.hpp"
#include "arguments.hpp"
#include "parts.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

std::size_t checked_threads(std::int64_t threads) {
    if (threads < 1 || static_cast<std::uint64_t>(threads) > kMaxThreads) {
        refuse("threads", "is " + std::to_string(threads) + ": must be 1 to " + std::to_string(kMaxThreads));
    }
    return static_cast<std::size_t>(threads);
}

// (rows, row_bytes, pixel_bytes, is_raw, scaled_bytes); the last two may be left out.
FrameFormat format_of(nb::handle leaf) {
    const auto given = nb::cast<nb::tuple>(leaf);
    const auto number = [&](std::size_t place) {
        return place < given.size() ? nb::cast<std::uint32_t>(given[place]) : 0;
    };
    const FrameFormat format(make_geometry(number(0), number(1), number(2)), number(3) != 0, number(4));
    if (format.is_scaled()) {
        check_geometry(format.floats());
    }
    return format;
}

// Borrows the arrays of all leaves: a single one for one leaf, a tuple for several.
class LeafArrays {
public:
    LeafArrays(nb::handle argument, std::size_t num_leaves, const char* name, bool writable)
        : arrays_(new BorrowedArray[num_leaves]) {
        if (num_leaves == 1 && !nb::isinstance<nb::tuple>(argument)) {
            borrow(0, argument, name, writable);
            return;
        }
        if (!nb::isinstance<nb::tuple>(argument) || nb::len(argument) != num_leaves) {
            refuse(name, "is not a tuple of " + std::to_string(num_leaves) + " arrays: must have one for each leaf");
        }
        for (std::size_t leaf = 0; leaf < num_leaves; ++leaf) {
            borrow(leaf, argument[leaf], name, writable);
        }
    }

    const BorrowedArray& operator[](std::size_t leaf) const { return arrays_[leaf]; }

private:
    void borrow(std::size_t leaf, nb::handle argument, const char* name, bool writable) {
        if (!arrays_[leaf].borrow(argument, writable)) {
            throw nb::type_error((std::string(name) + " is not " + (writable ? "a writable" : "an") +
                                  " array in C order: pass np.ascontiguousarray(" + name + ")")
                                     .c_str());
        }
    }

    std::unique_ptr<BorrowedArray[]> arrays_;
};

// Checks that the first axes are `leading` and that the others together are one frame.
void check_frames(const BorrowedArray& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes) {
    const Py_buffer& view = array.view();
    std::size_t axis = 0;
    std::size_t expected = frame_bytes;
    bool fits = static_cast<std::size_t>(view.ndim) >= leading.size();
    std::string wanted;
    for (const std::size_t length : leading) {
        fits = fits && static_cast<std::size_t>(view.shape[axis]) == length;
        expected *= length;
        wanted += std::to_string(length) + ", ";
        ++axis;
    }
    if (!fits || static_cast<std::size_t>(view.len) != expected) {
        refuse(name, "has " + std::to_string(view.len) + " bytes: must have the shape (" + wanted +
                         "*frame) with frames of " + std::to_string(frame_bytes) + " bytes");
    }
}

// The stores of all leaves. Leaf k of stream s has the number k * num_streams + s where a call addresses one of them.
class LeafStores {
public:
    LeafStores(std::int64_t num_streams, nb::handle leaves, std::optional<std::int64_t> frames_per_segment,
               std::size_t step_bytes, std::int64_t threads)
        : num_threads(checked_threads(threads)) {
        if (num_streams < 1 || num_streams > std::numeric_limits<std::int32_t>::max()) {
            refuse("num_streams", "is " + std::to_string(num_streams) + ": must be 1 to 2**31 - 1");
        }
        num_streams_ = num_streams;
        std::vector<FrameFormat> formats;
        for (const nb::handle leaf : leaves) {
            formats.push_back(format_of(leaf));
        }
        if (formats.empty()) {
            refuse("leaves", "is empty: a frame has at least one array");
        }
        const std::uint32_t wanted = frames_a_segment(formats, frames_per_segment);
        for (const FrameFormat& format : formats) {
            stores_.push_back(std::make_unique<FrameStore>(static_cast<std::size_t>(num_streams), format, wanted,
                                                           stores_.empty() ? step_bytes : 0));
        }
    }

    LeafStores(const LeafStores&) = delete;
    LeafStores& operator=(const LeafStores&) = delete;

    std::size_t size() const { return stores_.size(); }
    FrameStore& operator[](std::size_t leaf) const { return *stores_[leaf]; }
    FrameStore& first() const { return *stores_.front(); }
    std::int64_t num_streams() const { return num_streams_; }

    // The store of a numbered leaf; `number` becomes the number of its stream there.
    FrameStore& at(std::int64_t& number) const {
        const std::int64_t leaf = number < 0 ? 0 : number / num_streams_;
        if (leaf >= static_cast<std::int64_t>(size())) {
            throw std::out_of_range("stream is " + std::to_string(number) + ": must be 0 to " +
                                    std::to_string(num_streams_ * static_cast<std::int64_t>(size()) - 1));
        }
        number -= leaf * num_streams_;
        return *stores_[static_cast<std::size_t>(leaf)];
    }

    template <typename Count>
    std::size_t sum(const Count& count) const {
        std::size_t total = 0;
        for (const auto& store : stores_) {
            total += count(*store);
        }
        return total;
    }

    const std::size_t num_threads;

private:
    // By default as many as compress best for the leaf with the largest frames.
    static std::uint32_t frames_a_segment(const std::vector<FrameFormat>& formats,
                                          std::optional<std::int64_t> frames_per_segment) {
        if (frames_per_segment) {
            if (*frames_per_segment < 1) {
                refuse("frames_per_segment", "is " + std::to_string(*frames_per_segment) + ": must be at least 1");
            }
            check_segment_frames(formats.front().pixels, static_cast<std::uint64_t>(*frames_per_segment));
            return static_cast<std::uint32_t>(*frames_per_segment);
        }
        const auto largest = std::max_element(formats.begin(), formats.end(), [](const auto& one, const auto& other) {
            return one.frame_bytes() < other.frame_bytes();
        });
        return default_frames_per_segment(largest->pixels);
    }

    std::int64_t num_streams_ = 0;
    std::vector<std::unique_ptr<FrameStore>> stores_;
};

std::size_t charged_bytes(const LeafStores& self) {
    return self.sum([](const FrameStore& store) { return store.charged_bytes(); });
}

// All leaves get their frames in this one call, so no interrupt can come between them.
std::size_t py_append(LeafStores& self, nb::handle streams_argument, nb::handle frames_argument) {
    const auto streams = as_column<std::int32_t>(streams_argument, "streams");
    const LeafArrays frames(frames_argument, self.size(), "frames", false);
    for (std::size_t leaf = 0; leaf < self.size(); ++leaf) {
        check_frames(frames[leaf], "frames", {streams.size}, self[leaf].format().frame_bytes());
    }
    for (std::size_t leaf = 0; leaf < self.size(); ++leaf) {
        FrameStore& store = self[leaf];
        const auto* const first = frames[leaf].values<const std::uint8_t>();
        const std::size_t num_done = store.append_without_waiting(streams.values, first, streams.size);
        if (num_done < streams.size) {
            const nb::gil_scoped_release released;
            store.append(streams.values + num_done, first + num_done * store.format().frame_bytes(),
                         streams.size - num_done);
        }
    }
    return charged_bytes(self);
}

std::int64_t py_evict(LeafStores& self, std::int64_t stream, std::int64_t before, std::int64_t first) {
    std::int64_t num_evicted = 0;
    for (std::size_t leaf = 0; leaf < self.size(); ++leaf) {
        if (const std::optional<std::int64_t> done = self[leaf].evict_without_waiting(stream, before, first)) {
            num_evicted = *done;
        } else {
            const nb::gil_scoped_release released;
            num_evicted = self[leaf].evict(stream, before, first);
        }
    }
    return num_evicted;
}

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
        const auto streams = as_column<std::int32_t>(streams_argument, "streams");
        const auto last_positions = as_column<std::int64_t>(last_positions_argument, "last_positions");
        const auto counts = as_column<std::int32_t>(counts_argument, "counts");
        if (last_positions.size != streams.size || counts.size != streams.size) {
            refuse("last_positions and counts", "have " + std::to_string(last_positions.size) + " and " +
                                                    std::to_string(counts.size) + " entries: must have " +
                                                    std::to_string(streams.size) + " as streams has");
        }
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
            check_frames(outputs[at], "out", {streams.size, length(at)}, stores_[first + at].format().frame_bytes());
        }
        const StackPadding read_padding = padding_named(padding);
        const WindowRequests requests{streams.values, last_positions.values, counts.values, streams.size};
        const nb::gil_scoped_release released;
        for (std::size_t at = 0; at < num_leaves; ++at) {
            gather_windows(*readings_[first + at], requests, length(at), read_padding, num_threads,
                           outputs[at].values<std::uint8_t>());
        }
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
    const nb::gil_scoped_release released;
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
        const nb::gil_scoped_release released;
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
