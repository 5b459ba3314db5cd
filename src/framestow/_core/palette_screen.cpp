#include "palette_screen.hpp"

#include <algorithm>
#include <cstring>

namespace framestow {
namespace {

constexpr std::size_t kPairStride = PaletteScreen::kNumColours + 1;  // not 256: numbers 16 apart would share cache sets

}  // namespace

PaletteScreen::PaletteScreen(const std::uint8_t* raw_frames, std::size_t height, std::size_t width)
    : raw_frames_(raw_frames),
      height_(height),
      width_(width),
      grey_of_pair_(kNumColours * kPairStride, 0),
      grey_of_{},
      changed_at_(height, 0),
      grey_(height * width, 0) {
    is_unknown_.fill(1);
    changed_rows_.reserve(height);
}

void PaletteScreen::learn(const std::uint8_t* grey_of_pair, const std::uint8_t* is_known) {
    for (std::size_t number = 0; number < kNumColours; ++number) {
        std::copy_n(grey_of_pair + number * kNumColours, kNumColours, grey_of_pair_.data() + number * kPairStride);
        grey_of_[number] = grey_of_pair[number * kNumColours + number];
        is_unknown_[number] = is_known[number] ? 0 : 1;
    }
    all_changed_ = true;
}

bool PaletteScreen::take_in(std::size_t which) {
    const std::size_t before = 1 - which;
    ++number_;
    bool is_known = true;
    if (newest_ == before && is_taken_in_[before]) {
        for (std::size_t row = 0; row < height_; ++row) {
            const std::uint8_t *now = row_of(which, row), *then = row_of(before, row);
            if (std::memcmp(now, then, width_) != 0) {
                changed_at_[row] = number_;
                is_known &= knows_changes(now, then);
            }
        }
    } else {  // no previous frame to compare with
        std::fill(changed_at_.begin(), changed_at_.end(), number_);
        all_changed_ = true;
        is_known = knows(row_of(which, 0), height_ * width_);
    }
    newest_ = which;
    is_taken_in_[which] = is_known;
    return is_known;
}

bool PaletteScreen::can_show(bool of_two) const {
    return is_taken_in_[newest_] && (!of_two || is_taken_in_[1 - newest_]);
}

void PaletteScreen::show(bool of_two) {
    const std::int64_t first = of_two ? number_ - 1 : number_;
    const std::int64_t same_since = std::min(first, shown_from_);
    changed_rows_.clear();
    for (std::size_t row = 0; row < height_; ++row) {
        if (all_changed_ || changed_at_[row] > same_since) {
            show_row(row, of_two && changed_at_[row] > first);
            changed_rows_.push_back(static_cast<std::uint32_t>(row));
        }
    }
    shown_from_ = first;
    all_changed_ = false;
}

bool PaletteScreen::knows(const std::uint8_t* numbers, std::size_t count) const {
    std::uint8_t is_unknown = 0;
    for (std::size_t index = 0; index < count; ++index) {
        is_unknown |= is_unknown_[numbers[index]];
    }
    return is_unknown == 0;
}

// Checks a row only if it differs from one whose numbers are known: 6 µs instead of 14 for a step of Enduro.
bool PaletteScreen::knows_changes(const std::uint8_t* numbers, const std::uint8_t* known_numbers) const {
    constexpr std::size_t kStretch = sizeof(std::uint64_t);
    bool is_known = true;
    std::size_t column = 0;
    for (; column + kStretch <= width_; column += kStretch) {
        if (std::memcmp(numbers + column, known_numbers + column, kStretch) != 0) {
            is_known &= knows(numbers + column, kStretch);
        }
    }
    return is_known & knows(numbers + column, width_ - column);
}

void PaletteScreen::show_row(std::size_t row, bool of_two) {
    const std::uint8_t* const newest = row_of(newest_, row);
    std::uint8_t* const grey = grey_.data() + row * width_;
    if (of_two) {
        const std::uint8_t* const before = row_of(1 - newest_, row);
        for (std::size_t column = 0; column < width_; ++column) {
            grey[column] = grey_of_pair_[newest[column] * kPairStride + before[column]];
        }
    } else {
        for (std::size_t column = 0; column < width_; ++column) {
            grey[column] = grey_of_[newest[column]];
        }
    }
}

}  // namespace framestow
