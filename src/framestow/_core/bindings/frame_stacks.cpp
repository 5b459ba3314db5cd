// Binding of FrameStacks over arrays that Python makes, borrowed while it lives. The GIL is not released.
#include <stdexcept>

#include "../unstacking.hpp"
#include "leaf_stores.hpp"
#include "parts.hpp"

namespace framestow {
BoundFrameStacks::BoundFrameStacks(nb::handle recent, nb::handle ages, const char* padding) {
    if (!recent_.borrow(recent, true) || recent_.view().ndim < 3 || !ages_.borrow(ages, true) ||
        ages_.view().itemsize != sizeof(std::int64_t) || ages_.num_rows() != recent_.num_rows()) {
        refuse("recent and ages", "do not fit: must be (num_streams, stack, *frame) and (num_streams,) of int64");
    }
    const auto stack = static_cast<std::size_t>(recent_.view().shape[1]);
    const auto total_bytes = static_cast<std::size_t>(recent_.view().len);
    if (total_bytes == 0) {
        refuse("recent", "is empty: must have at least one frame");
    }
    stacks_ = FrameStacks{recent_.values<std::uint8_t>(), ages_.values<std::int64_t>(), recent_.num_rows(), stack,
                          total_bytes / recent_.num_rows() / stack, padding_named(padding)};
}

void BoundFrameStacks::begin(nb::handle streams, nb::handle frames) {
    BorrowedArray rows;
    check(streams, frames, rows);
    stacks_.begin(streams_.data(), rows.values<const std::uint8_t>(), streams_.size());
}

void BoundFrameStacks::append(nb::handle streams, nb::handle frames) {
    BorrowedArray rows;
    check(streams, frames, rows);
    stacks_.append(streams_.data(), rows.values<const std::uint8_t>(), streams_.size());
}

void BoundFrameStacks::write(nb::handle out) const {
    BorrowedArray rows;
    if (!rows.borrow(out, true) || rows.view().len != recent_.view().len) {
        refuse("out", "does not fit: must be a writable array of the shape of recent");
    }
    stacks_.write(rows.values<std::uint8_t>());
}

// Compares observations with the newest frames of their streams, and with the next observations. Clears bit 1 of
// flags[i] unless observation i continues an open episode, and bit 2 unless the next one is shifted by one frame.
bool BoundFrameStacks::unstack(nb::handle streams, nb::handle is_open, nb::handle observations, nb::handle next_observations,
             std::size_t depth, std::size_t piece_bytes, nb::handle frames, nb::handle flags) {
    BorrowedArray open, now, next, newest, relations;
    check(streams);
    if (!open.borrow(is_open) || open.view().itemsize != 1 || open.num_rows() != stacks_.num_streams) {
        refuse("is_open", "does not fit: must have one boolean for each stream");
    }
    if (depth < 1 || depth > stacks_.stack || piece_bytes < 1 || stacks_.frame_bytes % piece_bytes != 0) {
        refuse("depth and piece_bytes", "do not fit: must be 1 to stack, and a divisor of a frame's bytes");
    }
    const std::size_t num_bytes = streams_.size() * depth * stacks_.frame_bytes;
    if (!now.borrow(observations) || !next.borrow(next_observations) ||
        static_cast<std::size_t>(now.view().len) != num_bytes ||
        static_cast<std::size_t>(next.view().len) != num_bytes) {
        refuse("observations and next_observations", "do not fit: must be arrays in C order of " +
                                                         std::to_string(num_bytes) + " bytes");
    }
    if (!newest.borrow(frames, true) || !relations.borrow(flags, true) || relations.view().itemsize != 1 ||
        static_cast<std::size_t>(newest.view().len) != streams_.size() * stacks_.frame_bytes ||
        static_cast<std::size_t>(relations.view().len) != streams_.size()) {
        refuse("frames and flags", "do not fit: must be writable, with a frame and a byte for each stream");
    }
    const StackedLayout layout{stacks_.frame_bytes, depth, piece_bytes};
    return unstack_rows(layout, open.values<const std::uint8_t>(), now.values<const std::uint8_t>(),
                        next.values<const std::uint8_t>(), newest.values<std::uint8_t>(),
                        relations.values<std::uint8_t>());
}

bool BoundFrameStacks::unstack_rows(const StackedLayout& layout, const std::uint8_t* is_open, const std::uint8_t* now,
                  const std::uint8_t* next, std::uint8_t* newest, std::uint8_t* flags) const {
    constexpr std::uint8_t continues = 1, shifted = 2;
    bool are_usual = true;
    for (const std::int32_t number : streams_) {
        const auto stream = static_cast<std::size_t>(number);
        if (is_open[stream] == 0 || stacks_.ages[stream] < 0 || !shows_newest_frames(stacks_, stream, now, layout)) {
            *flags = static_cast<std::uint8_t>(*flags & ~continues);
        }
        if (!is_shifted(now, next, layout)) {
            *flags = static_cast<std::uint8_t>(*flags & ~shifted);
        }
        are_usual = are_usual && *flags == (continues | shifted);
        copy_newest_frame(next, layout, newest);
        now += layout.depth * layout.frame_bytes;
        next += layout.depth * layout.frame_bytes;
        newest += layout.frame_bytes;
        ++flags;
    }
    return are_usual;
}

// Puts the stream numbers into streams_ and one frame for each into `rows`.
void BoundFrameStacks::check(nb::handle streams, nb::handle frames, BorrowedArray& rows) {
    check(streams);
    if (!rows.borrow(frames) || static_cast<std::size_t>(rows.view().len) != streams_.size() * stacks_.frame_bytes) {
        refuse("frames", "does not fit: must be an array in C order with one frame of " +
                             std::to_string(stacks_.frame_bytes) + " bytes for each of " +
                             std::to_string(streams_.size()) + " streams");
    }
}

void BoundFrameStacks::check(nb::handle streams) {
    if (!read_streams(streams, streams_)) {
        refuse("streams", "is not an array of stream numbers: must be integers in C order, with one axis");
    }
    for (const std::int32_t stream : streams_) {
        if (static_cast<std::size_t>(stream) >= stacks_.num_streams) {
            throw std::out_of_range("stream is " + std::to_string(stream) + ": must be 0 to " +
                                    std::to_string(stacks_.num_streams - 1));
        }
    }
}

void bind_frame_stacks(nb::module_& module) {
    nb::class_<BoundFrameStacks>(module, "FrameStacks")
        .def(nb::init<nb::handle, nb::handle, const char*>(), nb::arg("recent"), nb::arg("ages"),
             nb::arg("padding") = "first_frame")
        .def("begin", &BoundFrameStacks::begin, nb::arg("streams"), nb::arg("frames"))
        .def("append", &BoundFrameStacks::append, nb::arg("streams"), nb::arg("frames"))
        .def("unstack", &BoundFrameStacks::unstack, nb::arg("streams"), nb::arg("is_open"), nb::arg("observations"),
             nb::arg("next_observations"), nb::arg("depth"), nb::arg("piece_bytes"), nb::arg("frames"),
             nb::arg("flags"))
        .def("write", &BoundFrameStacks::write, nb::arg("out"));
}

}  // namespace framestow
