// Binding of PaletteScreen and AreaShrinker over raw frames that Python owns, borrowed while it lives. The GIL is not
// released: a call takes a few microseconds.
#include "../palette_screen.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "../area_shrinker.hpp"
#include "arguments.hpp"
#include "module.hpp"

namespace framestow {
namespace {

using Shape = std::pair<std::size_t, std::size_t>;

bool shrinks_by_area(const Shape& picture, const Shape& frame) {
    if (picture.first == 0 || picture.second == 0 || frame.first == 0 || frame.second == 0) {
        return false;
    }
    return AreaShrinker::applies(PictureSize{picture.first, picture.second}, PictureSize{frame.first, frame.second});
}

class BoundPaletteScreen {
public:
    BoundPaletteScreen(nb::handle raw_frames, std::optional<Shape> frame_shape) {
        raw_frames_.borrow_named(raw_frames, "raw_frames", Scalar::kU8);
        if (raw_frames_.num_axes() != 3 || raw_frames_.nbytes() == 0 || raw_frames_.num_rows() != 2) {
            refuse("raw_frames", "have shape " + raw_frames_.shape_text() +
                                     ": they must be (2, height, width), with a pixel at least");
        }
        const Shape picture{static_cast<std::size_t>(raw_frames_.view().shape[1]),
                            static_cast<std::size_t>(raw_frames_.view().shape[2])};
        out_bytes_ = picture.first * picture.second;
        screen_.emplace(raw_frames_.values<const std::uint8_t>(), picture.first, picture.second);
        if (frame_shape) {
            if (!shrinks_by_area(picture, *frame_shape)) {
                refuse("frame_shape", "does not fit: shrinks_by_area must hold for it");
            }
            shrinker_.emplace(PictureSize{picture.first, picture.second},
                              PictureSize{frame_shape->first, frame_shape->second});
            out_bytes_ = frame_shape->first * frame_shape->second;
        }
    }

    void learn(nb::handle grey_of_pair, nb::handle is_known) {
        constexpr std::size_t kNumColours = PaletteScreen::kNumColours;
        const BorrowedArray greys(grey_of_pair, "grey_of_pair", Scalar::kU8),
            known(is_known, "is_known", Scalar::kBool);
        if (greys.nbytes() != kNumColours * kNumColours || known.nbytes() != kNumColours) {
            refuse("grey_of_pair and is_known", "have shapes " + greys.shape_text() + " and " + known.shape_text() +
                                                    ": they must be (256, 256) and (256,)");
        }
        screen_->learn(greys.values<const std::uint8_t>(), known.values<const std::uint8_t>());
    }

    bool take_in(std::size_t which) {
        if (which > 1) {
            throw std::out_of_range("which is " + std::to_string(which) + ": it must be 0 or 1");
        }
        return screen_->take_in(which);
    }

    void write(bool of_two, nb::handle out) {
        const BorrowedArray frame(out, "out", Scalar::kU8, Access::kWrite);
        if (frame.nbytes() != out_bytes_) {
            refuse("out",
                   "has shape " + frame.shape_text() + ": it must have " + std::to_string(out_bytes_) + " pixels");
        }
        if (!screen_->can_show(of_two)) {
            throw std::invalid_argument("no picture to show: take_in must have answered True for the raw frames");
        }
        screen_->show(of_two);
        auto* const pixels = frame.values<std::uint8_t>();
        if (shrinker_) {
            shrinker_->shrink(screen_->grey().data(), screen_->changed_rows(), pixels);
        } else {
            std::copy(screen_->grey().begin(), screen_->grey().end(), pixels);
        }
    }

private:
    BorrowedArray raw_frames_;
    std::optional<PaletteScreen> screen_;   // always there after construction
    std::optional<AreaShrinker> shrinker_;  // none: frames are written at full size
    std::size_t out_bytes_ = 0;             // of a written frame
};

}  // namespace

void bind_palette_screen(nb::module_& module) {
    module.def("shrinks_by_area", &shrinks_by_area, nb::arg("picture_shape"), nb::arg("frame_shape"));
    nb::class_<BoundPaletteScreen>(module, "PaletteScreen")
        .def(nb::init<nb::handle, std::optional<Shape>>(), nb::arg("raw_frames"), nb::arg("frame_shape").none())
        .def("learn", &BoundPaletteScreen::learn, nb::arg("grey_of_pair"), nb::arg("is_known"))
        .def("take_in", &BoundPaletteScreen::take_in, nb::arg("which"))
        .def("write", &BoundPaletteScreen::write, nb::arg("of_two"), nb::arg("out"));
}

}  // namespace framestow
