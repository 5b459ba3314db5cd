// The bound stores of an observation: one per array, with the same positions in all, and the stacks beside them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../frame_store.hpp"
#include "../worker_pool.hpp"
#include "arguments.hpp"
#include "release_gil.hpp"
#include "step_arguments.hpp"

namespace framestow {

inline std::size_t checked_threads(std::int64_t threads) {
    if (threads < 1 || static_cast<std::uint64_t>(threads) > kMaxThreads) {
        refuse("threads", "is " + std::to_string(threads) + ": it must be 1 to " + std::to_string(kMaxThreads));
    }
    return static_cast<std::size_t>(threads);
}

// (rows, row_bytes, pixel_bytes, is_raw, scaled_bytes, channels_first, lead_ins); the last four may be left out.
inline FrameFormat format_of(nb::handle array) {
    const auto given = nb::cast<nb::tuple>(array);
    const auto number = [&](std::size_t place) {
        return place < given.size() ? nb::cast<std::uint32_t>(given[place]) : 0;
    };
    const FrameFormat format(make_geometry(number(0), number(1), number(2), number(5) != 0), number(3) != 0, number(4),
                             number(6));
    if (format.is_scaled()) {
        check_geometry(format.floats());
    }
    return format;
}

// Borrows one NumPy array for each array of an observation: a tuple of them, or a single one alone.
class BorrowedArrays {
public:
    BorrowedArrays(nb::handle argument, std::size_t num_arrays, const char* name, Access access = Access::kRead)
        : arrays_(new BorrowedArray[num_arrays]) {
        if (num_arrays == 1 && !nb::isinstance<nb::tuple>(argument)) {
            arrays_[0].borrow_named(argument, name, Scalar::kOther, access);
            return;
        }
        if (!nb::isinstance<nb::tuple>(argument) || nb::len(argument) != num_arrays) {
            refuse(name,
                   "is not a tuple of " + std::to_string(num_arrays) + " arrays: it must have one for each array");
        }
        for (std::size_t array = 0; array < num_arrays; ++array) {
            arrays_[array].borrow_named(argument[array], name, Scalar::kOther, access);
        }
    }

    const BorrowedArray& operator[](std::size_t array) const { return arrays_[array]; }

private:
    std::unique_ptr<BorrowedArray[]> arrays_;
};

// The stores of all arrays. Where a call addresses one array of one environment, array k of environment e is track
// k * num_envs + e.
class ArrayStores {
public:
    ArrayStores(std::int64_t num_envs, nb::handle arrays, std::optional<std::int64_t> frames_per_segment,
                std::size_t step_bytes, std::int64_t threads)
        : num_threads(checked_threads(threads)) {
        if (num_envs < 1 || num_envs > std::numeric_limits<std::int32_t>::max()) {
            refuse("num_envs", "is " + std::to_string(num_envs) + ": it must be 1 to 2**31 - 1");
        }
        num_envs_ = num_envs;
        std::vector<FrameFormat> formats;
        for (const nb::handle array : arrays) {
            formats.push_back(format_of(array));
        }
        if (formats.empty()) {
            refuse("arrays", "is empty: it must have at least one array of a frame");
        }
        const std::uint32_t wanted = frames_a_segment(formats, frames_per_segment);
        for (const FrameFormat& format : formats) {
            stores_.push_back(std::make_unique<FrameStore>(static_cast<std::size_t>(num_envs), format, wanted,
                                                           stores_.empty() ? step_bytes : 0));
        }
    }

    ArrayStores(const ArrayStores&) = delete;
    ArrayStores& operator=(const ArrayStores&) = delete;

    std::size_t size() const { return stores_.size(); }
    FrameStore& operator[](std::size_t array) const { return *stores_[array]; }
    FrameStore& first() const { return *stores_.front(); }
    std::int64_t num_envs() const { return num_envs_; }

    // Whether the array's stacks are not the deepest ones.
    bool is_shallower(std::size_t array) const {
        const std::uint32_t lead_ins = stores_[array]->format().lead_ins;
        return std::any_of(stores_.begin(), stores_.end(),
                           [&](const auto& store) { return store->format().lead_ins > lead_ins; });
    }

    struct Track {
        FrameStore& store;  // of its array
        std::int64_t env_id;
    };

    Track at(std::int64_t track) const {
        const std::int64_t num_tracks = num_envs_ * static_cast<std::int64_t>(size());
        if (track < 0 || track >= num_tracks) {
            throw std::out_of_range("track is " + std::to_string(track) + ": it must be 0 to " +
                                    std::to_string(num_tracks - 1));
        }
        return Track{*stores_[static_cast<std::size_t>(track / num_envs_)], track % num_envs_};
    }

    template <typename Count>
    std::size_t sum(const Count& count) const {
        std::size_t total = 0;
        for (const auto& store : stores_) {
            total += count(*store);
        }
        return total;
    }

    const std::size_t num_threads;  // most threads that unpack the windows of one call

private:
    // By default as many as compress best for the array with the largest frames.
    static std::uint32_t frames_a_segment(const std::vector<FrameFormat>& formats,
                                          std::optional<std::int64_t> frames_per_segment) {
        if (frames_per_segment) {
            if (*frames_per_segment < 1) {
                refuse("frames_per_segment", "is " + std::to_string(*frames_per_segment) + ": it must be at least 1");
            }
            check_segment_frames(formats.front().pixels, static_cast<std::uint64_t>(*frames_per_segment));
            return static_cast<std::uint32_t>(*frames_per_segment);
        }
        const auto largest = std::max_element(formats.begin(), formats.end(), [](const auto& one, const auto& other) {
            return one.frame_bytes() < other.frame_bytes();
        });
        return default_frames_per_segment(largest->pixels);
    }

    std::int64_t num_envs_ = 0;
    std::vector<std::unique_ptr<FrameStore>> stores_;  // one per array; their addresses never change
};

inline std::size_t charged_bytes(const ArrayStores& self) {
    return self.sum([](const FrameStore& store) { return store.charged_bytes(); });
}

// Gives the GIL away only to wait for readers, which takes microseconds.
inline void append_frames(FrameStore& store, const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                          const StretchStart* starts) {
    const std::size_t num_done = store.append_without_waiting(env_ids, frames, count, starts);
    if (num_done < count) {
        const ReleaseGil released;
        store.append(env_ids + num_done, frames + num_done * store.format().frame_bytes(), count - num_done,
                     starts == nullptr ? nullptr : starts + num_done);
    }
}

// Evicts in all arrays, and gives the GIL away in the same way. Returns the number of frames.
inline std::int64_t evict_frames(const ArrayStores& stores, std::int64_t env_id, std::int64_t before,
                                 std::int64_t first) {
    std::int64_t num_evicted = 0;
    for (std::size_t array = 0; array < stores.size(); ++array) {
        if (const std::optional<std::int64_t> done = stores[array].evict_without_waiting(env_id, before, first)) {
            num_evicted = *done;
        } else {
            const ReleaseGil released;
            num_evicted = stores[array].evict(env_id, before, first);
        }
    }
    return num_evicted;
}

}  // namespace framestow
