// Many windows of consecutive frames into one output: a whole batch in one call.
//
// Window i holds the frames of streams[i] from position last[i] - counts[i] + 1 to last[i], in the last counts[i] of
// the `length` places of out[i]. The places before them are padded (stack_padding.hpp).
//
// Arguments are all checked before a byte of `out` (num_windows * length * frame_bytes) is written; std::out_of_range
// names the window. DamagedSegment, possible only for restored bytes that no writer wrote, may come after some windows
// were written; bounds are checked in the decoder, checksums are not verified here. std::invalid_argument for a reading
// that has stopped.
//
// Threads: safe beside whatever else is done to the streams. Windows may be asked for that were held when the reading
// started. `num_threads` may work on one batch, this one among them; a batch that is small stays on this one.
#pragma once

#include "packed_streams.hpp"
#include "frame_stacks.hpp"

namespace framestow {

struct WindowRequests {
    const std::int32_t* streams = nullptr;
    const std::int64_t* last_positions = nullptr;
    const std::int32_t* counts = nullptr;
    std::size_t num_windows = 0;
};

void gather_windows(const Reading& reading, const WindowRequests& requests, std::size_t length, StackPadding padding,
                    std::size_t num_threads, std::uint8_t* out);

// The same in a reading of its own, on this thread.
void gather_windows(PackedStreams& packed, const WindowRequests& requests, std::size_t length, StackPadding padding,
                    std::uint8_t* out);

}  // namespace framestow
