// The Python face of the core: the only file that includes nanobind.
//
// Every argument is checked here (kind, dtype, shape, C order), so that the core sees plain pointers and counts; a
// message names the argument. Arrays are borrowed for the length of a call and never kept. The GIL is released while
// frames are unpacked, and while segments are packed and unpacked whole; append and evict keep it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <exception>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checksum.hpp"
#include "damaged_segment.hpp"
#include "packed_streams.hpp"
#include "window_gather.hpp"

namespace nb = nanobind;

namespace framestow {
namespace {

constexpr int kAbiVersion = 1;  // raised with every change of the Python face; _core/__init__.py expects it

using ReadArray = nb::ndarray<nb::ro>;
using WriteArray = nb::ndarray<>;

[[noreturn]] void refuse(const char* name, const std::string& fault) {
    throw std::invalid_argument(std::string(name) + " " + fault);
}

template <typename Array>
std::string shape_text(const Array& array) {
    std::string text = "(";
    for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
        text += std::to_string(array.shape(axis)) + (array.ndim() == 1 ? "," : axis + 1 < array.ndim() ? ", " : "");
    }
    return text + ")";
}

template <typename Array>
bool is_c_contiguous(const Array& array) {
    std::int64_t expected = 1;
    for (std::size_t axis = array.ndim(); axis-- > 0;) {
        if (array.shape(axis) != 1 && array.stride(axis) != expected) {
            return array.size() == 0;
        }
        expected *= static_cast<std::int64_t>(array.shape(axis));
    }
    return true;
}

template <typename Scalar>
constexpr const char* dtype_name() {
    return sizeof(Scalar) == 1 ? "uint8" : sizeof(Scalar) == 4 ? "int32" : "int64";
}

// Borrows an argument as an array of `Scalar` in C order; `Array` decides whether it must be writable.
template <typename Array, typename Scalar>
Array as_array(nb::handle argument, const char* name) {
    Array array;
    if (!nb::try_cast(argument, array, false)) {
        throw nb::type_error((std::string(name) + " is not " + (Array::ReadOnly ? "an" : "a writable") +
                              " array: must be a NumPy array of " + dtype_name<Scalar>())
                                 .c_str());
    }
    if (array.dtype() != nb::dtype<Scalar>() || array.device_type() != nb::device::cpu::value) {
        throw nb::type_error((std::string(name) + " has another dtype than " + dtype_name<Scalar>() +
                              ": nothing is cast silently; pass " + name + ".astype(np." + dtype_name<Scalar>() + ")")
                                 .c_str());
    }
    if (!is_c_contiguous(array)) {
        refuse(name, "is not in C order: pass np.ascontiguousarray(" + std::string(name) + ")");
    }
    return array;
}

template <typename Scalar>
struct Column {  // a one-dimensional argument; keeps the array that it borrows alive
    ReadArray array;
    const Scalar* values;
    std::size_t size;
};

template <typename Scalar>
Column<Scalar> as_column(nb::handle argument, const char* name) {
    ReadArray array = as_array<ReadArray, Scalar>(argument, name);
    if (array.ndim() != 1) {
        refuse(name, "has shape " + shape_text(array) + ": must have one axis");
    }
    const std::size_t size = array.shape(0);
    const auto* values = static_cast<const Scalar*>(array.data());
    return Column<Scalar>{std::move(array), values, size};
}

// Checks that the first axes are `leading` and the others together one frame.
template <typename Array>
void check_frames(const Array& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes) {
    std::string wanted;
    std::size_t expected = frame_bytes;
    bool fits = array.ndim() >= leading.size();
    std::size_t axis = 0;
    for (const std::size_t length : leading) {
        wanted += std::to_string(length) + ", ";
        fits = fits && array.shape(axis) == length;
        expected *= length;
        ++axis;
    }
    if (!fits || array.size() != expected) {
        refuse(name, "has shape " + shape_text(array) + ": must be (" + wanted + "and one frame of " +
                         std::to_string(frame_bytes) + " bytes)");
    }
}

std::size_t first_axis(const ReadArray& array, const char* name) {
    if (array.ndim() == 0) {
        refuse(name, "has no axis: its first axis counts the frames");
    }
    return array.shape(0);
}

ReadArray as_bytes(nb::handle argument, const char* name) { return as_array<ReadArray, std::uint8_t>(argument, name); }

ByteSpan span_of(const ReadArray& array) {
    return ByteSpan{static_cast<const std::uint8_t*>(array.data()), array.size()};
}

nb::bytes to_bytes(const std::vector<std::uint8_t>& bytes) { return nb::bytes(bytes.data(), bytes.size()); }

FrameGeometry make_geometry(std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t pixel_bytes) {
    const FrameGeometry geometry{rows, row_bytes, pixel_bytes};
    check_geometry(geometry);
    return geometry;
}

nb::bytes py_pack_segment(nb::handle frames_argument, std::uint32_t rows, std::uint32_t row_bytes,
                          std::uint32_t pixel_bytes) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes);
    const auto frames = as_array<ReadArray, std::uint8_t>(frames_argument, "frames");
    const std::size_t count = first_axis(frames, "frames");
    check_frames(frames, "frames", {count}, geometry.frame_bytes());
    if (count == 0) {
        refuse("frames", "is empty: a segment holds at least one frame");
    }
    check_segment_frames(geometry, count);
    std::vector<std::uint8_t> segment;
    {
        const nb::gil_scoped_release released;
        segment = pack_segment(geometry, static_cast<const std::uint8_t*>(frames.data()),
                               static_cast<std::uint32_t>(count));
    }
    return to_bytes(segment);
}

void py_unpack_segment(nb::handle segment_argument, std::uint32_t rows, std::uint32_t row_bytes,
                       std::uint32_t pixel_bytes, nb::handle out_argument) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes);
    const ReadArray segment = as_bytes(segment_argument, "segment");
    const auto out = as_array<WriteArray, std::uint8_t>(out_argument, "out");
    const std::size_t count = out.ndim() == 0 ? 0 : out.shape(0);
    check_frames(out, "out", {count}, geometry.frame_bytes());
    const nb::gil_scoped_release released;
    unpack_segment(span_of(segment), geometry, count, static_cast<std::uint8_t*>(out.data()));
}

nb::dict py_inspect_segment(nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    const SegmentHeader header = read_header(span_of(segment));
    nb::dict fields;
    fields["packing"] = header.packing == PackingKind::kRaw ? "raw" : "patches";
    fields["num_frames"] = header.num_frames;
    fields["rows"] = header.geometry.rows;
    fields["row_bytes"] = header.geometry.row_bytes;
    fields["pixel_bytes"] = header.geometry.pixel_bytes;
    fields["group_frames"] = header.group_frames;
    return fields;
}

void py_verify_segment(nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    verify_segment(span_of(segment));
}

std::uint32_t py_checksum(nb::handle buffer_argument) {
    const ReadArray buffer = as_bytes(buffer_argument, "buffer");
    return crc32c(span_of(buffer));
}

std::uint32_t py_default_frames_per_segment(std::uint32_t rows, std::uint32_t row_bytes, std::uint32_t pixel_bytes) {
    return default_frames_per_segment(make_geometry(rows, row_bytes, pixel_bytes));
}

void py_init(PackedStreams* self, std::int64_t num_streams, std::uint32_t rows, std::uint32_t row_bytes,
             std::uint32_t pixel_bytes, std::optional<std::int64_t> frames_per_segment) {
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
    new (self) PackedStreams(static_cast<std::size_t>(num_streams), geometry, wanted);
}

void py_append(PackedStreams& self, nb::handle streams_argument, nb::handle frames_argument) {
    const auto streams = as_column<std::int32_t>(streams_argument, "streams");
    const auto frames = as_array<ReadArray, std::uint8_t>(frames_argument, "frames");
    check_frames(frames, "frames", {streams.size}, self.geometry().frame_bytes());
    self.append(streams.values, static_cast<const std::uint8_t*>(frames.data()), streams.size);
}

void py_gather(const PackedStreams& self, nb::handle streams_argument, nb::handle last_positions_argument,
               nb::handle counts_argument, nb::handle out_argument, bool pad_with_zeros) {
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
    check_frames(out, "out", {streams.size, length}, self.geometry().frame_bytes());
    const WindowRequests requests{streams.values, last_positions.values, counts.values, streams.size};
    const nb::gil_scoped_release released;
    gather_windows(self, requests, length, pad_with_zeros ? Padding::kZeros : Padding::kRepeat,
                   static_cast<std::uint8_t*>(out.data()));
}

void py_restore(PackedStreams& self, std::int64_t stream, std::int64_t number, nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    self.restore(stream, number, span_of(segment));
}

void bind_segments(nb::module_& module) {
    module.def("pack_segment", &py_pack_segment, nb::arg("frames"), nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"));
    module.def("unpack_segment", &py_unpack_segment, nb::arg("segment"), nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"), nb::arg("out"));
    module.def("inspect_segment", &py_inspect_segment, nb::arg("segment"));
    module.def("verify_segment", &py_verify_segment, nb::arg("segment"));
    module.def("checksum", &py_checksum, nb::arg("buffer"));
    module.def("default_frames_per_segment", &py_default_frames_per_segment, nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"));
}

void bind_packed_streams(nb::module_& module) {
    nb::class_<PackedStreams>(module, "PackedStreams")
        .def("__init__", &py_init, nb::arg("num_streams"), nb::arg("rows"), nb::arg("row_bytes"),
             nb::arg("pixel_bytes"), nb::arg("frames_per_segment").none() = nb::none())
        .def("append", &py_append, nb::arg("streams"), nb::arg("frames"))
        .def("gather", &py_gather, nb::arg("streams"), nb::arg("last_positions"), nb::arg("counts"), nb::arg("out"),
             nb::arg("pad_with_zeros") = false)
        .def("evict", &PackedStreams::evict, nb::arg("stream"), nb::arg("before"))
        .def("first_position", &PackedStreams::first_position, nb::arg("stream"))
        .def("next_position", &PackedStreams::next_position, nb::arg("stream"))
        .def("num_segments", &PackedStreams::num_segments, nb::arg("stream"))
        .def(
            "segment",
            [](const PackedStreams& self, std::int64_t stream, std::int64_t place) {
                return to_bytes(self.segment(stream, place));
            },
            nb::arg("stream"), nb::arg("place"))
        .def("restore", &py_restore, nb::arg("stream"), nb::arg("number"), nb::arg("segment"))
        .def_prop_ro("num_streams", &PackedStreams::num_streams)
        .def_prop_ro("frames_per_segment", &PackedStreams::frames_per_segment)
        .def_prop_ro("sealed_nbytes", [](const PackedStreams& self) { return self.nbytes().sealed; })
        .def_prop_ro("open_nbytes", [](const PackedStreams& self) { return self.nbytes().open; })
        .def_prop_ro("index_nbytes", [](const PackedStreams& self) { return self.nbytes().index; });
}

// Native code raises the package's own error, so that no caller has to translate.
void bind_errors() {
    static PyObject* damaged_data_error = nullptr;
    nb::object error = nb::module_::import_("framestow.errors").attr("DamagedDataError");
    damaged_data_error = error.release().ptr();
    nb::register_exception_translator(
        [](const std::exception_ptr& pointer, void*) {
            try {
                std::rethrow_exception(pointer);
            } catch (const DamagedSegment& damaged) {
                PyErr_SetString(damaged_data_error, damaged.what());
            }
        },
        nullptr);
}

}  // namespace
}  // namespace framestow

NB_MODULE(_native, module) {
    module.doc() = "Packs, unpacks and gathers frames; typed in _native.pyi.";
    module.attr("ABI_VERSION") = framestow::kAbiVersion;
    framestow::bind_errors();
    framestow::bind_segments(module);
    framestow::bind_packed_streams(module);
}
