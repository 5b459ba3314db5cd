// Float frames of values k / 255: their conversion to and from uint8 pixels k, and the segments that they are stored
// in.
//
// k / 255 is the quotient rounded to the nearest float, as frame / 255 computes it. A frame with any other value
// (-0.0, NaN, or k * (1 / 255) where that differs) is an *exact* frame. It is stored by its bytes, and repeats the
// pixels before it, which costs nothing.
//
// A segment of such frames (little-endian): u32 CRC-32C of all following bytes, "sca1", u32 bytes of the pixel segment,
// u32 number of exact frames; the pixel segment; the places of the exact frames in the segment, u32 each, ascending;
// the segment of the exact frames. Thread-safe; nothing here keeps state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "frame_geometry.hpp"

namespace framestow {

// How the frames of a store are stored.
struct FrameFormat {
    FrameFormat(const FrameGeometry& geometry, bool raw = false, std::uint32_t float_bytes = 0,
                std::uint32_t num_lead_ins = 0)
        : pixels(geometry), is_raw(raw), scaled_bytes(float_bytes), lead_ins(num_lead_ins) {}

    FrameGeometry pixels;        // as encodings see a frame: of scaled floats, their uint8 pixels
    bool is_raw;                 // whether segments in RAM are not compressed
    std::uint32_t scaled_bytes;  // bytes of a float, if frames are floats k / 255; 0: frames are stored by their bytes
    std::uint32_t lead_ins;      // frames before a stretch's first one that a stretch may bring (segment_stretches.hpp)

    bool is_scaled() const { return scaled_bytes > 0; }
    std::size_t frame_bytes() const { return pixels.frame_bytes() * (is_scaled() ? scaled_bytes : 1); }
    FrameGeometry floats() const {  // channels first remain planes
        return FrameGeometry{pixels.rows, pixels.row_bytes * scaled_bytes, pixels.pixel_bytes * scaled_bytes};
    }
    FrameFormat of_lead_ins() const { return FrameFormat(pixels, false, scaled_bytes); }  // always packed
};

// Writes the pixels of `count` floats of 2, 4 or 8 bytes; returns whether each float is exactly k / 255. Otherwise the
// pixels are arbitrary. `floats` may be unaligned.
bool to_pixels(const std::uint8_t* floats, std::size_t count, std::uint32_t float_bytes, std::uint8_t* pixels);

// Writes the floats k / 255 of `count` pixels k; the arrays must not overlap.
void from_pixels(const std::uint8_t* pixels, std::size_t count, std::uint32_t float_bytes, std::uint8_t* floats);

inline constexpr std::size_t kScaledHeaderBytes = 16;
inline constexpr std::size_t kPlaceBytes = 4;  // of an exact frame's place in the segment

// Where the exact frames stand among the others, ascending.
struct ExactPlaces {
    const std::uint8_t* places = nullptr;
    std::size_t count = 0;

    std::size_t place(std::size_t ordinal) const { return load_u32(places + ordinal * kPlaceBytes); }

    // Returns the number of exact frames before that place.
    std::size_t num_before(std::size_t place) const { return count_below(places, count, kPlaceBytes, place); }
};

struct ScaledParts {
    ByteSpan pixels;  // the segment of pixels, with an entry for every frame
    ExactPlaces places;
    ByteSpan exact;  // the segment of the exact frames; empty without them
};

// Returns the parts without checking their contents; throws DamagedSegment if they do not fit into the segment.
ScaledParts scaled_parts(ByteSpan segment);

// Writes the first kScaledHeaderBytes of a segment whose other bytes are written.
void write_scaled_header(std::uint8_t* segment, std::size_t size, std::size_t pixel_segment_bytes,
                         std::size_t num_exact);

// Returns the number of exact frames that a header of at least kScaledHeaderBytes names.
inline std::size_t num_exact_of(ByteSpan segment) { return load_u32(segment.bytes + 12); }

}  // namespace framestow
