// Reads the windows of a batch into one output array.
//
// Window i holds the frames of env_ids[i] from position last[i] - counts[i] + 1 to last[i], in the last counts[i] of
// the `length` places of out[i]. The places before them have the padding of the stretch that begins with the window's
// first frame, if the store has it, otherwise that of pad_stack.
//
// Errors: every argument is checked before `out` (num_windows * length * frame_bytes) is written. std::out_of_range
// names the window; std::invalid_argument reports a stopped snapshot. DamagedSegment is possible only for restored or
// file segments, and may follow after some windows were written. The decoder checks bounds; only segments in files have
// their checksums verified here.
//
// Threads: safe beside every other call on the environments. A snapshot may request the windows stored when it started.
// Up to `num_threads` threads, including the caller's, share a batch; a small batch stays on the caller's thread.
#pragma once

#include "frame_stacks.hpp"
#include "frame_store.hpp"

namespace framestow {

struct WindowRequests {
    const std::int32_t* env_ids = nullptr;
    const std::int64_t* last_positions = nullptr;  // of the newest frame of each window
    const std::int32_t* counts = nullptr;          // of stored frames in each window; the rest is padded
    std::size_t num_windows = 0;
};

void read_windows(const Snapshot& snapshot, const WindowRequests& requests, std::size_t length, StackPadding padding,
                  std::size_t num_threads, std::uint8_t* out);

// Returns the first window whose frames are not all stored, or num_windows. Each has 1 to `length` frames.
std::size_t find_missing_window(const Snapshot& snapshot, const WindowRequests& requests, std::size_t length);

// Reads with a temporary snapshot, on this thread.
void read_windows(FrameStore& store, const WindowRequests& requests, std::size_t length, StackPadding padding,
                  std::uint8_t* out);

}  // namespace framestow
