// Binding of FrameStacks over arrays that Python makes, borrowed while it lives. The GIL is not released.
#include <stdexcept>

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

// Puts the stream numbers into streams_ and one frame for each into `rows`.
void BoundFrameStacks::check(nb::handle streams, nb::handle frames, BorrowedArray& rows) {
    if (!read_streams(streams, streams_)) {
        refuse("streams", "is not an array of stream numbers: must be integers in C order, with one axis");
    }
    for (const std::int32_t stream : streams_) {
        if (static_cast<std::size_t>(stream) >= stacks_.num_streams) {
            throw std::out_of_range("stream is " + std::to_string(stream) + ": must be 0 to " +
                                    std::to_string(stacks_.num_streams - 1));
        }
    }
    if (!rows.borrow(frames) || static_cast<std::size_t>(rows.view().len) != streams_.size() * stacks_.frame_bytes) {
        refuse("frames", "does not fit: must be an array in C order with one frame of " +
                             std::to_string(stacks_.frame_bytes) + " bytes for each of " +
                             std::to_string(streams_.size()) + " streams");
    }
}

void bind_frame_stacks(nb::module_& module) {
    nb::class_<BoundFrameStacks>(module, "FrameStacks")
        .def(nb::init<nb::handle, nb::handle, const char*>(), nb::arg("recent"), nb::arg("ages"),
             nb::arg("padding") = "first_frame")
        .def("begin", &BoundFrameStacks::begin, nb::arg("streams"), nb::arg("frames"))
        .def("append", &BoundFrameStacks::append, nb::arg("streams"), nb::arg("frames"))
        .def("write", &BoundFrameStacks::write, nb::arg("out"));
}

}  // namespace framestow
