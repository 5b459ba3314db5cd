// The shape of a frame as encodings see it: `rows` rows of `row_bytes` bytes.
//
// `pixel_bytes` is the distance between neighbouring pixels of a row: 1 for grey, C for (H, W, C).
// A colour frame with channels first, (3, H, W), is 3 * H rows of W bytes. Writers pack it as pixels, `joined()`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace framestow {

inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{1} << 30;

struct FrameGeometry {
    std::uint32_t rows = 0;
    std::uint32_t row_bytes = 0;
    std::uint32_t pixel_bytes = 0;  // distance of two neighbours in a row, which a run copies from
    bool channels_first = false;    // whether the rows are those of three planes: red, green, blue

    std::size_t frame_bytes() const { return static_cast<std::size_t>(rows) * row_bytes; }

    // Whether frames have whole 3-byte pixels, which have an encoding of their own.
    bool is_colour() const { return pixel_bytes == 3 && row_bytes % 3 == 0; }

    // The same frame with its planes joined to pixels.
    FrameGeometry joined() const { return channels_first ? FrameGeometry{rows / 3, 3 * row_bytes, 3} : *this; }

    // How a writer packs the frames does not count: a reader takes any encoding.
    bool operator==(const FrameGeometry& other) const {
        return rows == other.rows && row_bytes == other.row_bytes && pixel_bytes == other.pixel_bytes;
    }
    bool operator!=(const FrameGeometry& other) const { return !(*this == other); }

    std::string text() const {
        return std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes, " +
               std::to_string(pixel_bytes) + " a pixel";
    }
};

// Returns why a geometry is invalid, or an empty string.
inline std::string geometry_fault(const FrameGeometry& geometry) {
    if (geometry.rows == 0 || geometry.row_bytes == 0 || geometry.pixel_bytes == 0) {
        return "rows, row_bytes and pixel_bytes must be at least 1";
    }
    if (static_cast<std::uint64_t>(geometry.rows) * geometry.row_bytes > kMaxFrameBytes) {
        return "a frame holds at most 2**30 bytes";
    }
    if (geometry.pixel_bytes > geometry.row_bytes || geometry.pixel_bytes > 0xFFFF) {
        return "pixel_bytes must be at most row_bytes and 65535";
    }
    if (geometry.channels_first && (geometry.pixel_bytes != 1 || geometry.rows % 3 != 0)) {
        return "three planes must have pixels of one byte and a number of rows that 3 divides";
    }
    return {};
}

inline void check_geometry(const FrameGeometry& geometry) {
    const std::string fault = geometry_fault(geometry);
    if (!fault.empty()) {
        throw std::invalid_argument("frame of " + geometry.text() + ": " + fault);
    }
}

}  // namespace framestow
