// Binding of the joining of frames into observations.
#include <string>

#include "../unstacking.hpp"
#include "arguments.hpp"
#include "module.hpp"
#include "release_gil.hpp"

namespace framestow {
namespace {

// Calls join(stack) with the address of each stack, in the order of the axes before `depth_axis`.
template <typename Join>
void for_each_stack(const Py_buffer& view, int axis, int depth_axis, const std::uint8_t* at, const Join& join) {
    if (axis == depth_axis) {
        return join(at);
    }
    for (Py_ssize_t index = 0; index < view.shape[axis]; ++index) {
        for_each_stack(view, axis + 1, depth_axis, at + index * view.strides[axis], join);
    }
}

// Joins the frames of stacks, (..., depth, *frame), into observations: `out`, (..., *shape) in C order. `depth_axis`:
// the axis of the frames, oldest first. Each frame has pieces of `piece_bytes`, which alternate with those of the
// others. Only the frames must be in C order; stacks may overlap.
void join(nb::handle frames, int depth_axis, std::size_t piece_bytes, nb::handle out) {
    BorrowedArray from;
    const Py_buffer& view = from.view();
    if (!from.borrow_strided(frames) || depth_axis < 0 || depth_axis >= view.ndim ||
        !from.is_c_ordered_from(depth_axis + 1)) {
        refuse("frames", "does not fit: it must be an array with a stack's axis, and each frame in C order");
    }
    const BorrowedArray observations(out, "out", Scalar::kOther, Access::kWrite);
    if (observations.nbytes() != from.nbytes()) {
        refuse("out", "has " + std::to_string(observations.nbytes()) + " bytes: it must have those of frames, " +
                          std::to_string(from.nbytes()));
    }
    if (view.len == 0) {
        return;
    }
    std::size_t frame_bytes = static_cast<std::size_t>(view.itemsize);
    for (int axis = depth_axis + 1; axis < view.ndim; ++axis) {
        frame_bytes *= static_cast<std::size_t>(view.shape[axis]);
    }
    if (piece_bytes < 1 || frame_bytes % piece_bytes != 0) {
        refuse("piece_bytes", "is " + std::to_string(piece_bytes) + ": it must be a divisor of a frame's " +
                                  std::to_string(frame_bytes) + " bytes");
    }
    const StackedLayout layout{frame_bytes, static_cast<std::size_t>(view.shape[depth_axis]), piece_bytes};
    auto* target = observations.values<std::uint8_t>();
    const ReleaseGil released;
    for_each_stack(view, 0, depth_axis, static_cast<const std::uint8_t*>(view.buf), [&](const std::uint8_t* stack) {
        join_frames(stack, view.strides[depth_axis], layout, target);
        target += layout.depth * layout.frame_bytes;
    });
}

}  // namespace

void bind_join_frames(nb::module_& module) {
    module.def("join_frames", &join, nb::arg("frames"), nb::arg("depth_axis"), nb::arg("piece_bytes"), nb::arg("out"));
}

}  // namespace framestow
