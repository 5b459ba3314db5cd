// Bindings that pack, unpack and verify segments as bytes. The GIL is released while one is packed or
// unpacked.
#include "../segment.hpp"

#include "../checksum.hpp"
#include "arguments.hpp"
#include "module.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

nb::bytes py_pack_segment(nb::handle frames_argument, std::uint32_t rows, std::uint32_t row_bytes,
                          std::uint32_t pixel_bytes, bool channels_first) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes, channels_first);
    const BorrowedArray frames(frames_argument, "frames", Scalar::kU8);
    const std::size_t count = frames.num_axes() == 0 ? 0 : frames.num_rows();
    check_frames(frames, "frames", {count}, geometry.frame_bytes());
    if (count == 0) {
        refuse("frames", "is empty: it must have at least one frame");
    }
    check_segment_frames(geometry, count);
    std::vector<std::uint8_t> segment;
    {
        const ReleaseGil released;
        segment = pack_segment(geometry, frames.values<const std::uint8_t>(), static_cast<std::uint32_t>(count));
    }
    return to_bytes(segment);
}

void py_unpack_segment(nb::handle segment_argument, std::uint32_t rows, std::uint32_t row_bytes,
                       std::uint32_t pixel_bytes, nb::handle out_argument) {
    const FrameGeometry geometry = make_geometry(rows, row_bytes, pixel_bytes);
    const BorrowedArray segment(segment_argument, "segment", Scalar::kU8);
    const BorrowedArray out(out_argument, "out", Scalar::kU8, Access::kWrite);
    const std::size_t count = out.num_axes() == 0 ? 0 : out.num_rows();
    check_frames(out, "out", {count}, geometry.frame_bytes());
    const ReleaseGil released;
    unpack_segment(segment.bytes(), geometry, count, out.values<std::uint8_t>());
}

// Returns the number of frames.
std::size_t py_verify_segment(nb::handle segment_argument) {
    const BorrowedArray segment(segment_argument, "segment", Scalar::kU8);
    return verify_segment(segment.bytes()).num_frames;
}

std::uint32_t py_checksum(nb::handle buffer_argument) {
    const BorrowedArray buffer(buffer_argument, "buffer", Scalar::kU8);
    return crc32c(buffer.bytes());
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
    module.def("verify_segment", &py_verify_segment, nb::arg("segment"));
    module.def("checksum", &py_checksum, nb::arg("buffer"));
    module.def("default_frames_per_segment", &py_default_frames_per_segment, nb::arg("rows"), nb::arg("row_bytes"),
               nb::arg("pixel_bytes"));
}

}  // namespace framestow
