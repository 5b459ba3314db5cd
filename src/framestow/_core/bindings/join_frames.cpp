// Binding of the joining of frames into observations.
#include <string>

#include "../unstacking.hpp"
#include "parts.hpp"
#include "release_gil.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

// Borrows an array with any strides, and releases it on destruction.
class StridedArray {
public:
    StridedArray(nb::handle argument, const char* name) {
        if (PyObject_GetBuffer(argument.ptr(), &view_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
            PyErr_Clear();
            refuse(name, "is not an array: it must be a NumPy array");
        }
    }
    StridedArray(const StridedArray&) = delete;
    StridedArray& operator=(const StridedArray&) = delete;
    ~StridedArray() { PyBuffer_Release(&view_); }

    const Py_buffer& view() const { return view_; }

private:
    Py_buffer view_{};
};

// Whether the axes from `first` on lie in C order.
bool is_c_ordered(const Py_buffer& view, int first) {
    Py_ssize_t expected = view.itemsize;
    for (int axis = view.ndim - 1; axis >= first; --axis) {
        if (view.shape[axis] != 1 && view.strides[axis] != expected) {
            return false;
        }
        expected *= view.shape[axis];
    }
    return true;
}

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
    const StridedArray from(frames, "frames");
    BorrowedArray observations;
    const Py_buffer& view = from.view();
    if (depth_axis < 0 || depth_axis >= view.ndim || !is_c_ordered(view, depth_axis + 1)) {
        refuse("frames", "does not fit: it must have a stack's axis, and each frame in C order");
    }
    if (!observations.borrow(out, true) || observations.view().len != view.len) {
        refuse("out", "does not fit: it must be a writable array in C order with the bytes of frames");
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
