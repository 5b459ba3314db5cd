#include "window_gather.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace framestow {
namespace {

[[noreturn]] void refuse_window(std::size_t window, const std::string& fault) {
    throw std::out_of_range("window " + std::to_string(window) + " " + fault);
}

void check_window(const PackedStreams& packed, const WindowRequests& requests, std::size_t window,
                  std::size_t length) {
    const std::int32_t count = requests.counts[window];
    if (count < 1 || static_cast<std::size_t>(count) > length) {
        refuse_window(window, "has " + std::to_string(count) + " frames: must be 1 to " + std::to_string(length) +
                                  ", the places of a window");
    }
    const std::int32_t stream = requests.streams[window];
    if (stream < 0 || static_cast<std::size_t>(stream) >= packed.num_streams()) {
        refuse_window(window, "is of stream " + std::to_string(stream) + ": must be 0 to " +
                                  std::to_string(packed.num_streams() - 1));
    }
    const std::int64_t last = requests.last_positions[window];
    const std::int64_t first_held = packed.first_position(stream);
    if (last >= packed.next_position(stream) || last < first_held + count - 1) {
        refuse_window(window, "wants the " + std::to_string(count) + " frames up to position " + std::to_string(last) +
                                  " of stream " + std::to_string(stream) + ": held are " +
                                  std::to_string(first_held) + " to " +
                                  std::to_string(packed.next_position(stream) - 1));
    }
}

DecodingScratch& scratch_of_this_thread(const FrameGeometry& geometry) {
    thread_local DecodingScratch scratch;
    scratch.resize(geometry);
    return scratch;
}

void unpack_window(const PackedStreams& packed, std::size_t stream, std::int64_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    const std::int64_t segment_frames = packed.frames_per_segment();
    while (count > 0) {
        const std::int64_t number = first / segment_frames;
        const auto within = static_cast<std::size_t>(first % segment_frames);
        const std::size_t taken = std::min(count, static_cast<std::size_t>(segment_frames) - within);
        packed.unpack(stream, number, within, taken, scratch, out);
        out += taken * packed.geometry().frame_bytes();
        first += static_cast<std::int64_t>(taken);
        count -= taken;
    }
}

void pad_window(std::uint8_t* window, std::size_t num_padded, std::size_t frame_bytes, Padding padding) {
    if (padding == Padding::kZeros) {
        std::memset(window, 0, num_padded * frame_bytes);
        return;
    }
    const std::uint8_t* const first_frame = window + num_padded * frame_bytes;
    for (std::size_t place = 0; place < num_padded; ++place) {
        std::memcpy(window + place * frame_bytes, first_frame, frame_bytes);
    }
}

}  // namespace

void gather_windows(const PackedStreams& packed, const WindowRequests& requests, std::size_t length, Padding padding,
                    std::uint8_t* out) {
    for (std::size_t window = 0; window < requests.num_windows; ++window) {
        check_window(packed, requests, window, length);
    }
    const std::size_t frame_bytes = packed.geometry().frame_bytes();
    DecodingScratch& scratch = scratch_of_this_thread(packed.geometry());
    for (std::size_t window = 0; window < requests.num_windows; ++window) {
        const auto count = static_cast<std::size_t>(requests.counts[window]);
        const std::size_t num_padded = length - count;
        std::uint8_t* const target = out + window * length * frame_bytes;
        const std::int64_t first = requests.last_positions[window] - requests.counts[window] + 1;
        unpack_window(packed, static_cast<std::size_t>(requests.streams[window]), first, count, scratch,
                      target + num_padded * frame_bytes);
        pad_window(target, num_padded, frame_bytes, padding);
    }
}

}  // namespace framestow
