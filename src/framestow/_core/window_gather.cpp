#include "window_gather.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__SSE2__) || defined(_M_X64)
#define FRAMESTOW_SSE2 1
#include <xmmintrin.h>
#endif

namespace framestow {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kPrefetchBeyond = 1024;    // bytes behind the first frame's share of its segment
constexpr std::size_t kMaxPrefetch = 32 * 1024;  // bytes; more would drive out what is just being unpacked

inline void prefetch(const std::uint8_t* bytes) {
#if defined(FRAMESTOW_SSE2)
    _mm_prefetch(reinterpret_cast<const char*>(bytes), _MM_HINT_T0);
#elif defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(bytes);
#else
    (void)bytes;
#endif
}

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

std::int64_t first_position(const WindowRequests& requests, std::size_t window) {
    return requests.last_positions[window] - requests.counts[window] + 1;
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

// Asks for the part of a packed segment that the window's first frame needs: all up to its group, as operations lead
// back to earlier ones anywhere. Memory answers while the window before is unpacked.
void prefetch_window(const PackedStreams& packed, std::size_t stream, std::int64_t first) {
    const std::int64_t segment_frames = packed.frames_per_segment();
    const std::int64_t number = first / segment_frames;
    if (!packed.is_sealed(stream, number)) {
        return;
    }
    const ByteSpan segment = packed.sealed_segment(stream, number);
    const std::size_t share = static_cast<std::size_t>(first % segment_frames) * segment.size /
                              static_cast<std::size_t>(segment_frames);
    const std::size_t wanted = std::min({share + kPrefetchBeyond, segment.size, kMaxPrefetch});
    for (std::size_t line = 0; line < wanted; line += kLineBytes) {
        prefetch(segment.bytes + line);
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
        const std::int64_t first = first_position(requests, window);
        if (window + 1 < requests.num_windows) {
            prefetch_window(packed, static_cast<std::size_t>(requests.streams[window + 1]),
                            first_position(requests, window + 1));
        }
        unpack_window(packed, static_cast<std::size_t>(requests.streams[window]), first, count, scratch,
                      target + num_padded * frame_bytes);
        pad_window(target, num_padded, frame_bytes, padding);
    }
}

}  // namespace framestow
