// Binding of the comparison of whole observations with the frames that their environments stored before, and of the
// joining of frames into observations.
#include "../unstacking.hpp"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "array_stores.hpp"
#include "parts.hpp"
#include "step_arguments.hpp"

namespace framestow {
namespace {

constexpr std::uint8_t kContinues = 1, kShifted = 2;  // bits of a row: of both, the step is a usual one

class Unstacker {
public:
    // `arrays`: (array_like, depth, piece_bytes, frame_shape) of each array of an observation; array_like is (0,
    // *shape).
    Unstacker(const nb::tuple& stacks, nb::handle is_open, const nb::tuple& arrays) : stacks_(stacks) {
        if (stacks.size() != arrays.size() || arrays.size() == 0) {
            refuse("arrays", "has " + std::to_string(arrays.size()) + " entries: it must have one for each of " +
                                 std::to_string(stacks.size()) + " stacks");
        }
        for (std::size_t array = 0; array < arrays.size(); ++array) {
            arrays_.emplace_back(nb::cast<const BoundFrameStacks&>(stacks[array]).stacks(), arrays[array]);
        }
        if (!is_open_.borrow(is_open) || static_cast<std::size_t>(is_open_.view().len) != num_envs()) {
            refuse("is_open", "does not fit: it must be a boolean for each environment of the stacks");
        }
    }

    // Returns the frames and the flags, none if all are set; or none if an argument has a form that only Python
    // converts.
    nb::object unstack(nb::handle env_ids, nb::handle observations, nb::handle next_observations) {
        const std::size_t count = choose_envs(env_ids);
        const std::size_t num_arrays = arrays_.size();
        const std::unique_ptr<BorrowedArray[]> now(new BorrowedArray[num_arrays]);
        const std::unique_ptr<BorrowedArray[]> next(new BorrowedArray[num_arrays]);
        const bool has_observations = !observations.is_none();
        for (std::size_t array = 0; array < num_arrays; ++array) {
            if (!borrow(next[array], next_observations[array], array, count) ||
                (has_observations && !borrow(now[array], observations[array], array, count))) {
                return nb::none();
            }
        }
        flags_.assign(count, kContinues | kShifted);
        nb::list frames;
        for (std::size_t array = 0; array < num_arrays; ++array) {
            frames.append(unstack_array(arrays_[array], has_observations ? &now[array] : nullptr, next[array]));
        }
        std::uint8_t* bits = nullptr;
        nb::object flags = nb::none();
        for (const std::uint8_t of_row : flags_) {
            if (of_row != (kContinues | kShifted)) {
                flags = new_array(nb::int_(count), numpy_dtypes().uint8, bits);
                std::memcpy(bits, flags_.data(), count);
                break;
            }
        }
        return nb::make_tuple(nb::tuple(frames), flags);
    }

private:
    struct Array {
        Array(const FrameStacks& stacks_of_array, nb::handle given)
            : stacks(stacks_of_array),
              pattern(given[0]),
              dtype(given[0].attr("dtype")),
              frame_shape(nb::cast<nb::tuple>(given[3])),
              layout{stacks.frame_bytes, nb::cast<std::size_t>(given[1]), nb::cast<std::size_t>(given[2])} {
            if (layout.depth < 1 || layout.depth > stacks.stack || layout.piece_bytes < 1 ||
                stacks.frame_bytes % layout.piece_bytes != 0 ||
                pattern.row_bytes() != layout.depth * layout.frame_bytes) {
                refuse("depth and piece_bytes",
                       "do not fit: they must be 1 to stack, and a divisor of a frame's bytes; an observation of " +
                           std::to_string(pattern.row_bytes()) + " bytes must have that many frames of " +
                           std::to_string(layout.frame_bytes));
            }
        }

        const FrameStacks& stacks;
        RowPattern pattern;  // of an observation
        nb::object dtype;
        nb::tuple frame_shape;
        StackedLayout layout;
    };

    std::size_t num_envs() const { return arrays_.front().stacks.num_envs; }

    // Reads the environments into env_ids_, all for none; returns their number.
    std::size_t choose_envs(nb::handle env_ids) {
        if (env_ids.is_none()) {
            env_ids_.resize(num_envs());
            for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
                env_ids_[env_id] = static_cast<std::int32_t>(env_id);
            }
        } else if (!read_env_ids(env_ids, env_ids_)) {
            refuse("env_ids", "is not an array of environment numbers: it must be integers in C order, with one axis");
        }
        for (const std::int32_t env_id : env_ids_) {
            if (static_cast<std::size_t>(env_id) >= num_envs()) {
                refuse("env_ids", "has " + std::to_string(env_id) + ": it must be below " + std::to_string(num_envs()));
            }
        }
        return env_ids_.size();
    }

    bool borrow(BorrowedArray& array, const nb::object& given, std::size_t number, std::size_t count) const {
        return array.borrow(given) && arrays_[number].pattern.fits(array, count);
    }

    // Returns the new frames of an array, and clears the flags of the rows that do not fit. `now`: null for the current
    // observations.
    nb::object unstack_array(const Array& array, const BorrowedArray* now, const BorrowedArray& next) {
        const StackedLayout& layout = array.layout;
        const std::size_t observation_bytes = layout.depth * layout.frame_bytes;
        std::uint8_t* frames = nullptr;
        nb::object of_rows = new_array(nb::make_tuple(env_ids_.size()) + array.frame_shape, array.dtype, frames);
        for (std::size_t row = 0; row < env_ids_.size(); ++row) {
            const auto env_id = static_cast<std::size_t>(env_ids_[row]);
            const std::uint8_t* const following = next.values<const std::uint8_t>() + row * observation_bytes;
            const bool is_begun = is_open_.values<const std::uint8_t>()[env_id] != 0 && array.stacks.ages[env_id] >= 0;
            bool continues = is_begun, is_next = false;
            if (now == nullptr) {
                is_next = is_begun && shows_newest_frames(array.stacks, env_id, following, layout, layout.depth - 1);
            } else {
                const std::uint8_t* const observation = now->values<const std::uint8_t>() + row * observation_bytes;
                continues = is_begun && shows_newest_frames(array.stacks, env_id, observation, layout, layout.depth);
                is_next = is_shifted(observation, following, layout);
            }
            const int bits = (continues ? kContinues : 0) | (is_next ? kShifted : 0);
            flags_[row] = static_cast<std::uint8_t>(flags_[row] & bits);
            copy_newest_frame(following, layout, frames + row * layout.frame_bytes);
        }
        return of_rows;
    }

    nb::tuple stacks_;  // FrameStacks, whose stacks the arrays refer to
    BorrowedArray is_open_;
    std::vector<Array> arrays_;
    std::vector<std::int32_t> env_ids_;  // of the current call, and so are the flags
    std::vector<std::uint8_t> flags_;
};

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

void bind_unstacking(nb::module_& module) {
    module.def("join_frames", &join, nb::arg("frames"), nb::arg("depth_axis"), nb::arg("piece_bytes"), nb::arg("out"));
    nb::class_<Unstacker>(module, "Unstacker")
        .def(nb::init<const nb::tuple&, nb::handle, const nb::tuple&>(), nb::arg("stacks"), nb::arg("is_open"),
             nb::arg("arrays"))
        .def("unstack", &Unstacker::unstack, nb::arg("env_ids").none(), nb::arg("observations").none(),
             nb::arg("next_observations"));
}

}  // namespace framestow
