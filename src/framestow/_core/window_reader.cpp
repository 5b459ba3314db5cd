#include "window_reader.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "processor.hpp"
#include "segment_files.hpp"
#include "worker_pool.hpp"

namespace framestow {
namespace {

constexpr std::size_t kWindowsALook = 32;  // looked up per hold of the gate: a microsecond
constexpr std::size_t kMostWindowsTaken = 8;
// Output of this size is written past the caches. Then 256 windows of five Atari frames take a quarter less time, and
// up to a tenth less with a learner that reads them. With one, half as many windows gain nothing. 256 pairs of windows
// of four take a quarter less time, and a seventh less with a learner.
constexpr std::size_t kStreamedBytes = std::size_t{8} * 1024 * 1024;
constexpr std::size_t kMinBytesAThread = std::size_t{1024} * 1024;  // per thread: 30 windows of five Atari frames

[[noreturn]] void refuse_window(std::size_t window, const std::string& fault) {
    throw std::out_of_range("window " + std::to_string(window) + " " + fault);
}

SegmentPlace look_up_window(const FrameStore& store, const FrameStore::View& view, const WindowRequests& requests,
                            std::size_t window, std::size_t length) {
    const std::int32_t count = requests.counts[window];
    if (count < 1 || static_cast<std::size_t>(count) > length) {
        refuse_window(window, "has " + std::to_string(count) + " frames: it must have 1 to " + std::to_string(length) +
                                  ", the places of a window");
    }
    const std::int32_t number = requests.env_ids[window];
    if (number < 0 || static_cast<std::size_t>(number) >= store.num_envs()) {
        refuse_window(window, "is of environment " + std::to_string(number) + ": it must be 0 to " +
                                  std::to_string(store.num_envs() - 1));
    }
    const auto env_id = static_cast<std::size_t>(number);
    const std::int64_t last = requests.last_positions[window];
    const SegmentPlace* const place = view.find_window(env_id, last, count);
    if (place == nullptr) {
        const std::int64_t first_stored = view.first_position(env_id), next = view.next_position(env_id);
        refuse_window(window, "wants the " + std::to_string(count) + " frames up to position " + std::to_string(last) +
                                  " of environment " + std::to_string(number) + ": not all are stored; stored are " +
                                  std::to_string(first_stored) + " to " + std::to_string(next - 1) +
                                  (last >= first_stored && last < next ? ", except for evicted ones" : ""));
    }
    return *place;
}

std::int64_t first_position(const WindowRequests& requests, std::size_t window) {
    return requests.last_positions[window] - requests.counts[window] + 1;
}

DecodingScratch& scratch_of_this_thread() {
    thread_local DecodingScratch scratch;
    scratch.up_to.emplace();
    return scratch;
}

// Calls of_sealed(place) for a segment, or of_open(view) under the gate if it is open; it may have been sealed since
// its look-up.
template <typename OfSealed, typename OfOpen>
auto with_segment(const Snapshot& snapshot, const SegmentPlace& looked_up, std::size_t env_id, std::int64_t number,
                  const OfSealed& of_sealed, const OfOpen& of_open) {
    if (!is_nowhere(looked_up)) {
        return of_sealed(looked_up);
    }
    SegmentPlace place;
    {
        const FrameStore::View view(snapshot);
        place = *view.find(env_id, number);
        if (is_nowhere(place)) {
            return of_open(view);
        }
    }
    return of_sealed(place);
}

// Unpacks frames of one segment.
void unpack_part(const Snapshot& snapshot, const SegmentPlace& looked_up, std::size_t env_id, std::int64_t number,
                 std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) {
    with_segment(
        snapshot, looked_up, env_id, number,
        [&](const SegmentPlace& place) {
            snapshot.store().unpack_sealed(place, env_id, number, first, count, scratch, out);
        },
        [&](const FrameStore::View& view) {
            view.unpack_open(env_id, first, count, scratch, out);
            scratch.up_to.emplace();  // its bytes may change as soon as the gate is free
        });
}

// Unpacks the frames before a window whose first frame begins a stretch with a stored padding; otherwise returns false.
bool unpack_padding_of(const Snapshot& snapshot, const SegmentPlace& looked_up, std::size_t env_id, std::int64_t first,
                       std::size_t num_padded, DecodingScratch& scratch, std::uint8_t* out) {
    FrameStore& store = snapshot.store();
    if (num_padded == 0 || store.format().lead_ins == 0) {
        return false;
    }
    const std::int64_t number = first / store.frames_per_segment();
    const auto within = static_cast<std::size_t>(first % store.frames_per_segment());
    return with_segment(
        snapshot, looked_up, env_id, number,
        [&](const SegmentPlace& place) {
            return store.unpack_sealed_padding(place, env_id, number, within, num_padded, scratch, out);
        },
        [&](const FrameStore::View& view) {
            const bool is_padded = view.unpack_open_padding(env_id, within, num_padded, scratch, out);
            scratch.up_to.emplace();
            return is_padded;
        });
}

// `looked_up`: the place of the window's first segment, or kNowhere if that was open.
void unpack_window(const Snapshot& snapshot, const SegmentPlace& looked_up, std::size_t env_id, std::int64_t first,
                   std::size_t count, DecodingScratch& scratch, std::uint8_t* out) {
    const std::int64_t segment_frames = snapshot.store().frames_per_segment();
    const SegmentPlace* place = &looked_up;
    while (count > 0) {
        const auto within = static_cast<std::size_t>(first % segment_frames);
        const std::size_t taken = std::min(count, static_cast<std::size_t>(segment_frames) - within);
        unpack_part(snapshot, *place, env_id, first / segment_frames, within, taken, scratch, out);
        place = &kNowhere;
        out += taken * snapshot.store().format().frame_bytes();
        first += static_cast<std::int64_t>(taken);
        count -= taken;
    }
}

// One batch: the requests, and where each window begins.
struct Batch {
    const Snapshot& snapshot;
    const WindowRequests& requests;
    std::size_t length;
    StackPadding padding;
    std::uint8_t* out;
    std::vector<SegmentPlace> segments;  // per window: place of its first segment, kNowhere if open

    std::size_t out_bytes() const { return requests.num_windows * length * snapshot.store().format().frame_bytes(); }
};

// Checks all windows and looks their segments up, a few at a time so that a writer never waits long.
void look_up_windows(Batch& batch) {
    const FrameStore& store = batch.snapshot.store();
    batch.segments.reserve(batch.requests.num_windows);
    for (std::size_t begin = 0; begin < batch.requests.num_windows; begin += kWindowsALook) {
        const FrameStore::View view(batch.snapshot);
        const std::size_t end = std::min(begin + kWindowsALook, batch.requests.num_windows);
        for (std::size_t window = begin; window < end; ++window) {
            batch.segments.push_back(look_up_window(store, view, batch.requests, window, batch.length));
        }
    }
}

// Asks the system for all segments in files, so that a disk reads many at once: 1.2 ms instead of 19 for 32 windows of
// Breakout.
void expect_read(const Batch& batch) {
    for (const SegmentPlace& place : batch.segments) {
        if (const auto* const in_file = std::get_if<FilePlace>(&place)) {
            in_file->file->expect_read(in_file->offset, in_file->size);
        }
    }
}

// Requests what is left of the current window. Prefetches the next ones while it is unpacked.
void prefetch_ahead(const Batch& batch, std::size_t window, std::size_t end, PrefetchQueue& queue) {
    const FrameStore& store = batch.snapshot.store();
    const std::int64_t segment_frames = store.frames_per_segment();
    const auto first_frame = [&](std::size_t ahead) {
        return static_cast<std::size_t>(first_position(batch.requests, ahead) % segment_frames);
    };
    // A segment with stretches has its frames 16 bytes later: of no account before its header is in the cache.
    const auto pixels_of = [&](ByteSpan segment) {
        const std::size_t before = store.format().is_scaled() ? std::min(segment.size, kScaledHeaderBytes) : 0;
        return ByteSpan{segment.bytes + before, segment.size - before};
    };
    if (store.format().is_raw) {
        if (window + 1 < end) {
            prefetch_raw(pixels_of(bytes_in_ram(batch.segments[window + 1])),
                         first_frame(window + 1) * store.geometry().frame_bytes());
        }
        return;
    }
    queue.request_all();
    if (window + 3 < end) {
        prefetch_directory(pixels_of(bytes_in_ram(batch.segments[window + 3])), store.geometry(),
                           first_frame(window + 3));
    }
    if (window + 1 < end) {
        prefetch_frames(pixels_of(without_stretches(bytes_in_ram(batch.segments[window + 1]))), first_frame(window + 1),
                        static_cast<std::size_t>(batch.requests.counts[window + 1]), queue);
    }
}

// A window that was unpacked.
struct UnpackedWindow {
    std::int32_t env_id;
    std::int64_t first;
    std::int64_t end;
    const std::uint8_t* frames;
};

// Unpacks a window. Its first frames are copied from the window before it, where that has them.
UnpackedWindow read_window(const Batch& batch, std::size_t window, const UnpackedWindow& before,
                           DecodingScratch& scratch) {
    const std::size_t frame_bytes = batch.snapshot.store().format().frame_bytes();
    const auto count = static_cast<std::size_t>(batch.requests.counts[window]);
    const std::size_t num_padded = batch.length - count;
    const std::int32_t env_id = batch.requests.env_ids[window];
    const std::int64_t first = first_position(batch.requests, window);
    std::uint8_t* const target = batch.out + window * batch.length * frame_bytes;
    std::uint8_t* const first_frame = target + num_padded * frame_bytes;
    const bool is_padded = unpack_padding_of(batch.snapshot, batch.segments[window], static_cast<std::size_t>(env_id),
                                             first, num_padded, scratch, target);
    std::size_t num_copied = 0;
    if (env_id == before.env_id && first >= before.first && first < before.end) {
        num_copied = std::min(count, static_cast<std::size_t>(before.end - first));
        const auto skipped = static_cast<std::size_t>(first - before.first);
        scratch.copy_out(first_frame, before.frames + skipped * frame_bytes, num_copied * frame_bytes);
    }
    const std::int64_t next = first + static_cast<std::int64_t>(num_copied);
    const std::int64_t segment_frames = batch.snapshot.store().frames_per_segment();
    const bool is_looked_up = next / segment_frames == first / segment_frames;
    unpack_window(batch.snapshot, is_looked_up ? batch.segments[window] : kNowhere, static_cast<std::size_t>(env_id),
                  next, count - num_copied, scratch, first_frame + num_copied * frame_bytes);
    if (!is_padded) {
        pad_stack(target, num_padded, first_frame, frame_bytes, batch.padding);
    }
    return UnpackedWindow{env_id, first, first + static_cast<std::int64_t>(count), first_frame};
}

constexpr std::int64_t kMostSkipped = 16;  // frames between two windows; unpacking them takes as long as a new start

// Returns the window that is unpacked right after `window`, since it continues there: the next observation of an n-step
// transition, half a batch later. Returns the number of windows if there is none.
std::size_t window_behind(const Batch& batch, std::size_t window) {
    const std::size_t half = batch.segments.size() / 2;
    const std::size_t behind = window + half;
    if (window >= half || batch.requests.env_ids[window] != batch.requests.env_ids[behind]) {
        return batch.segments.size();
    }
    const std::int64_t distance = first_position(batch.requests, behind) - first_position(batch.requests, window);
    return distance >= 0 && distance <= batch.requests.counts[window] + kMostSkipped ? behind : batch.segments.size();
}

bool is_behind_another(const Batch& batch, std::size_t window) {
    const std::size_t half = batch.segments.size() / 2;
    return window >= half && window_behind(batch, window - half) == window;
}

struct FinishStreaming {
    ~FinishStreaming() { finish_streaming(); }
};

void read_range(const Batch& batch, std::size_t begin, std::size_t end) {
    const FinishStreaming at_the_end;
    DecodingScratch& scratch = scratch_of_this_thread();
    const bool is_large = batch.out_bytes() >= kStreamedBytes && !batch.snapshot.store().format().is_scaled();
    for (std::size_t window = begin; window < end; ++window) {
        if (is_behind_another(batch, window)) {
            continue;
        }
        prefetch_ahead(batch, window, end, scratch.next_window);
        const std::size_t behind = window_behind(batch, window);
        scratch.writes_past_caches = is_large && behind == batch.segments.size();  // a window behind it copies from it
        const UnpackedWindow first = read_window(batch, window, UnpackedWindow{-1, 0, 0, nullptr}, scratch);
        if (behind < batch.segments.size()) {
            scratch.writes_past_caches = is_large;  // nothing copies from this one
            read_window(batch, behind, first, scratch);
        }
    }
}

// Waking a thread takes as long as unpacking a few windows, so each thread needs enough work.
std::size_t threads_worth_waking(const Batch& batch, std::size_t num_threads) {
    return std::max<std::size_t>(1, std::min(num_threads, batch.out_bytes() / kMinBytesAThread));
}

// Threads take a few windows at a time, so that a late or slow thread does less.
void read_on_threads(const Batch& batch, std::size_t num_threads) {
    const std::size_t num_windows = batch.segments.size();
    const std::size_t taken = std::max<std::size_t>(1, std::min(kMostWindowsTaken, num_windows / (4 * num_threads)));
    std::atomic<std::size_t> next{0};
    run_on_threads(num_threads, [&] {
        for (;;) {
            const std::size_t begin = next.fetch_add(taken, std::memory_order_relaxed);
            if (begin >= num_windows) {
                return;
            }
            try {
                read_range(batch, begin, std::min(begin + taken, num_windows));
            } catch (...) {
                next.store(num_windows, std::memory_order_relaxed);  // no thread begins another window
                throw;
            }
        }
    });
}

}  // namespace

void read_windows(const Snapshot& snapshot, const WindowRequests& requests, std::size_t length, StackPadding padding,
                  std::size_t num_threads, std::uint8_t* out) {
    if (!snapshot.may_read()) {
        throw std::invalid_argument("this snapshot has stopped: its frames may have been evicted; start another");
    }
    Batch batch{snapshot, requests, length, padding, out, {}};
    look_up_windows(batch);
    expect_read(batch);
    const std::size_t num_working = threads_worth_waking(batch, num_threads);
    if (num_working == 1) {
        read_range(batch, 0, requests.num_windows);
    } else {
        read_on_threads(batch, num_working);
    }
}

std::size_t find_missing_window(const Snapshot& snapshot, const WindowRequests& requests, std::size_t length) {
    const FrameStore& store = snapshot.store();
    const std::int64_t segment_frames = store.frames_per_segment();
    std::vector<std::int64_t> known(store.num_envs(), -1);  // per environment: number of a stored segment
    for (std::size_t begin = 0; begin < requests.num_windows; begin += kWindowsALook) {
        const FrameStore::View view(snapshot);
        const std::size_t end = std::min(begin + kWindowsALook, requests.num_windows);
        for (std::size_t window = begin; window < end; ++window) {
            const auto env_id = static_cast<std::size_t>(requests.env_ids[window]);
            const std::int64_t last = requests.last_positions[window], count = requests.counts[window];
            const std::int64_t number = last / segment_frames;
            const bool is_possible = count >= 1 && static_cast<std::size_t>(count) <= length && last >= count - 1;
            if (!is_possible || env_id >= known.size()) {
                return window;
            }
            if (number == known[env_id] && last - count + 1 >= number * segment_frames &&
                last < view.next_position(env_id)) {
                continue;
            }
            if (view.find_window(env_id, last, count) == nullptr) {
                return window;
            }
            known[env_id] = number;
        }
    }
    return requests.num_windows;
}

void read_windows(FrameStore& store, const WindowRequests& requests, std::size_t length, StackPadding padding,
                  std::uint8_t* out) {
    const Snapshot snapshot(store);
    read_windows(snapshot, requests, length, padding, 1, out);
}

}  // namespace framestow
