// Bindings that pack, unpack, inspect and verify segments as bytes. The GIL is released while one is packed or
// unpacked.
#include "../segment.hpp"

#include "../checksum.hpp"
#include "arguments.hpp"
#include "parts.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

nb::bytes py_pack_segment(nb::handle frames_argument, std::uint32_t rows, std::uint32_t row_bytes,
                          std::uint32_t pixel_bytes, bool channels_first) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes, channels_first);
    const auto frames = as_array<ReadArray, std::uint8_t>(frames_argument, "frames");
    const std::size_t count = first_axis(frames, "frames");
    check_frames(frames, "frames", {count}, geometry.frame_bytes());
    if (count == 0) {
        refuse("frames", "is empty: it must have at least one frame");
    }
    check_segment_frames(geometry, count);
    std::vector<std::uint8_t> segment;
    {
        const ReleaseGil released;
        segment =
            pack_segment(geometry, static_cast<const std::uint8_t*>(frames.data()), static_cast<std::uint32_t>(count));
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
    const ReleaseGil released;
    unpack_segment(span_of(segment), geometry, count, static_cast<std::uint8_t*>(out.data()));
}

nb::typed<nb::dict, nb::str, nb::any> py_inspect_segment(nb::handle segment_argument) {
    const ReadArray segment = as_bytes(segment_argument, "segment");
    const SegmentHeader header = read_header(span_of(segment));
    nb::dict fields;
    fields["encoding"] = row_of(header.encoding).name;
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

}  // namespace

void bind_segments(nb::module_& module) {
    module.def("pack_segment", &py_pack_segment, nb::arg("frames"), nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"), nb::arg("channels_first") = false);
    module.def("unpack_segment", &py_unpack_segment, nb::arg("segment"), nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"), nb::arg("out"));
    module.def("inspect_segment", &py_inspect_segment, nb::arg("segment"));
    module.def("verify_segment", &py_verify_segment, nb::arg("segment"));
    module.def("checksum", &py_checksum, nb::arg("buffer"));
    module.def("default_frames_per_segment", &py_default_frames_per_segment, nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"));
}

}  // namespace framestow
