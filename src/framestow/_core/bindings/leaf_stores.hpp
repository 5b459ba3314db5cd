// The bound stores of an observation: one per leaf, with the same positions in all, and the stacks beside them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../frame_stacks.hpp"
#include "../frame_store.hpp"
#include "../worker_pool.hpp"
#include "arguments.hpp"
#include "release_gil.hpp"
#include "step_arguments.hpp"

namespace framestow {

inline std::size_t checked_threads(std::int64_t threads) {
    if (threads < 1 || static_cast<std::uint64_t>(threads) > kMaxThreads) {
        refuse("threads", "is " + std::to_string(threads) + ": must be 1 to " + std::to_string(kMaxThreads));
    }
    return static_cast<std::size_t>(threads);
}

// (rows, row_bytes, pixel_bytes, is_raw, scaled_bytes, channels_first); the last three may be left out.
inline FrameFormat format_of(nb::handle leaf) {
    const auto given = nb::cast<nb::tuple>(leaf);
    const auto number = [&](std::size_t place) {
        return place < given.size() ? nb::cast<std::uint32_t>(given[place]) : 0;
    };
    const FrameFormat format(make_geometry(number(0), number(1), number(2), number(5) != 0), number(3) != 0, number(4));
    if (format.is_scaled()) {
        check_geometry(format.floats());
    }
    return format;
}

// Borrows the arrays of all leaves: a single one for one leaf, a tuple for several.
class LeafArrays {
public:
    LeafArrays(nb::handle argument, std::size_t num_leaves, const char* name, bool writable)
        : arrays_(new BorrowedArray[num_leaves]) {
        if (num_leaves == 1 && !nb::isinstance<nb::tuple>(argument)) {
            borrow(0, argument, name, writable);
            return;
        }
        if (!nb::isinstance<nb::tuple>(argument) || nb::len(argument) != num_leaves) {
            refuse(name, "is not a tuple of " + std::to_string(num_leaves) + " arrays: must have one for each leaf");
        }
        for (std::size_t leaf = 0; leaf < num_leaves; ++leaf) {
            borrow(leaf, argument[leaf], name, writable);
        }
    }

    const BorrowedArray& operator[](std::size_t leaf) const { return arrays_[leaf]; }

private:
    void borrow(std::size_t leaf, nb::handle argument, const char* name, bool writable) {
        if (!arrays_[leaf].borrow(argument, writable)) {
            throw nb::type_error((std::string(name) + " is not " + (writable ? "a writable" : "an") +
                                  " array in C order: pass np.ascontiguousarray(" + name + ")")
                                     .c_str());
        }
    }

    std::unique_ptr<BorrowedArray[]> arrays_;
};

// Checks that the first axes are `leading` and that the others together are one frame.
inline void check_frames(const BorrowedArray& array, const char* name, std::initializer_list<std::size_t> leading,
                  std::size_t frame_bytes) {
    const Py_buffer& view = array.view();
    std::size_t axis = 0;
    std::size_t expected = frame_bytes;
    bool fits = static_cast<std::size_t>(view.ndim) >= leading.size();
    std::string wanted;
    for (const std::size_t length : leading) {
        fits = fits && static_cast<std::size_t>(view.shape[axis]) == length;
        expected *= length;
        wanted += std::to_string(length) + ", ";
        ++axis;
    }
    if (!fits || static_cast<std::size_t>(view.len) != expected) {
        refuse(name, "has " + std::to_string(view.len) + " bytes: must have the shape (" + wanted +
                         "*frame) with frames of " + std::to_string(frame_bytes) + " bytes");
    }
}

// The stores of all leaves. Leaf k of stream s has the number k * num_streams + s where a call addresses one of them.
class LeafStores {
public:
    LeafStores(std::int64_t num_streams, nb::handle leaves, std::optional<std::int64_t> frames_per_segment,
               std::size_t step_bytes, std::int64_t threads)
        : num_threads(checked_threads(threads)) {
        if (num_streams < 1 || num_streams > std::numeric_limits<std::int32_t>::max()) {
            refuse("num_streams", "is " + std::to_string(num_streams) + ": must be 1 to 2**31 - 1");
        }
        num_streams_ = num_streams;
        std::vector<FrameFormat> formats;
        for (const nb::handle leaf : leaves) {
            formats.push_back(format_of(leaf));
        }
        if (formats.empty()) {
            refuse("leaves", "is empty: must have at least one array of a frame");
        }
        const std::uint32_t wanted = frames_a_segment(formats, frames_per_segment);
        for (const FrameFormat& format : formats) {
            stores_.push_back(std::make_unique<FrameStore>(static_cast<std::size_t>(num_streams), format, wanted,
                                                           stores_.empty() ? step_bytes : 0));
        }
    }

    LeafStores(const LeafStores&) = delete;
    LeafStores& operator=(const LeafStores&) = delete;

    std::size_t size() const { return stores_.size(); }
    FrameStore& operator[](std::size_t leaf) const { return *stores_[leaf]; }
    FrameStore& first() const { return *stores_.front(); }
    std::int64_t num_streams() const { return num_streams_; }

    // The store of a numbered leaf; `number` becomes the number of its stream there.
    FrameStore& at(std::int64_t& number) const {
        const std::int64_t leaf = number < 0 ? 0 : number / num_streams_;
        if (leaf >= static_cast<std::int64_t>(size())) {
            throw std::out_of_range("stream is " + std::to_string(number) + ": must be 0 to " +
                                    std::to_string(num_streams_ * static_cast<std::int64_t>(size()) - 1));
        }
        number -= leaf * num_streams_;
        return *stores_[static_cast<std::size_t>(leaf)];
    }

    template <typename Count>
    std::size_t sum(const Count& count) const {
        std::size_t total = 0;
        for (const auto& store : stores_) {
            total += count(*store);
        }
        return total;
    }

    const std::size_t num_threads;

private:
    // By default as many as compress best for the leaf with the largest frames.
    static std::uint32_t frames_a_segment(const std::vector<FrameFormat>& formats,
                                          std::optional<std::int64_t> frames_per_segment) {
        if (frames_per_segment) {
            if (*frames_per_segment < 1) {
                refuse("frames_per_segment", "is " + std::to_string(*frames_per_segment) + ": must be at least 1");
            }
            check_segment_frames(formats.front().pixels, static_cast<std::uint64_t>(*frames_per_segment));
            return static_cast<std::uint32_t>(*frames_per_segment);
        }
        const auto largest = std::max_element(formats.begin(), formats.end(), [](const auto& one, const auto& other) {
            return one.frame_bytes() < other.frame_bytes();
        });
        return default_frames_per_segment(largest->pixels);
    }

    std::int64_t num_streams_ = 0;
    std::vector<std::unique_ptr<FrameStore>> stores_;
};

inline std::size_t charged_bytes(const LeafStores& self) {
    return self.sum([](const FrameStore& store) { return store.charged_bytes(); });
}

// The frames of one step, one for each of `streams` in every leaf, checked before anything changes.
class StepFrames {
public:
    StepFrames(const LeafStores& stores, nb::handle frames, const std::int32_t* streams, std::size_t count)
        : stores_(stores), arrays_(frames, stores.size(), "frames", false), streams_(streams), count_(count) {
        for (std::size_t leaf = 0; leaf < stores.size(); ++leaf) {
            check_frames(arrays_[leaf], "frames", {count}, stores[leaf].format().frame_bytes());
        }
    }

    const std::uint8_t* of_leaf(std::size_t leaf) const { return arrays_[leaf].values<const std::uint8_t>(); }

    // Appends to all leaves. Gives the GIL away only to wait for readers, which takes microseconds.
    void append() const {
        for (std::size_t leaf = 0; leaf < stores_.size(); ++leaf) {
            FrameStore& store = stores_[leaf];
            const std::size_t num_done = store.append_without_waiting(streams_, of_leaf(leaf), count_);
            if (num_done < count_) {
                const ReleaseGil released;
                store.append(streams_ + num_done, of_leaf(leaf) + num_done * store.format().frame_bytes(),
                             count_ - num_done);
            }
        }
    }

private:
    const LeafStores& stores_;
    LeafArrays arrays_;
    const std::int32_t* streams_;
    std::size_t count_;
};

// FrameStacks over arrays that Python makes, borrowed while it lives.
class BoundFrameStacks {
public:
    BoundFrameStacks(nb::handle recent, nb::handle ages, const char* padding);

    void begin(nb::handle streams, nb::handle frames);
    void append(nb::handle streams, nb::handle frames);
    void write(nb::handle out) const;
    const FrameStacks& stacks() const { return stacks_; }

private:
    void check(nb::handle streams, nb::handle frames, BorrowedArray& rows);

    BorrowedArray recent_, ages_;
    FrameStacks stacks_{};
    std::vector<std::int32_t> streams_;
};

}  // namespace framestow
