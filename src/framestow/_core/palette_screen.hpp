// A console's screen in grey, updated from one raw frame of palette numbers to the next.
//
// The grey picture shows the newest raw frame, or the maximum of the last two. A table over pairs of palette numbers
// gives the grey value, so it can hold any rule for the maximum. Each row remembers when it last changed, and only rows
// that may look different are computed again. Unknown palette numbers must be added with `learn` first; `take_in`
// reports them.
//
// Ownership: references the caller's two raw frames, which must stay in place. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class PaletteScreen {
public:
    static constexpr std::size_t kNumColours = 256;

    PaletteScreen(const std::uint8_t* raw_frames, std::size_t height, std::size_t width);

    // Sets the grey of the maximum of two palette numbers (kNumColours x kNumColours), and which numbers are known (1).
    void learn(const std::uint8_t* grey_of_pair, const std::uint8_t* is_known);

    // Makes raw frame 0 or 1, just written, the newest one; the two alternate. Returns false if it has an unknown
    // palette number. Then call `learn`, and take it in again.
    bool take_in(std::size_t which);

    // Returns whether the raw frames of the picture have been taken in.
    bool can_show(bool of_two) const;

    // Updates the grey picture to the newest raw frame, or to the maximum of the last two.
    void show(bool of_two);

    const std::vector<std::uint8_t>& grey() const { return grey_; }
    const std::vector<std::uint32_t>& changed_rows() const { return changed_rows_; }  // ascending, by the last `show`

private:
    const std::uint8_t* row_of(std::size_t which, std::size_t row) const {
        return raw_frames_ + (which * height_ + row) * width_;
    }
    bool knows(const std::uint8_t* numbers, std::size_t count) const;
    bool knows_changes(const std::uint8_t* numbers, const std::uint8_t* known_numbers) const;
    void show_row(std::size_t row, bool of_two);

    const std::uint8_t* raw_frames_;  // two of them, height_ x width_ palette numbers each
    std::size_t height_, width_;
    std::vector<std::uint8_t> grey_of_pair_;                      // kNumColours x kNumColours
    std::array<std::uint8_t, kNumColours> grey_of_, is_unknown_;  // per palette number
    std::array<bool, 2> is_taken_in_{false, false};               // per raw frame
    std::size_t newest_ = 0;                                      // 0 or 1
    std::int64_t number_ = 0;                                     // number of the newest raw frame
    std::int64_t shown_from_ = 0;           // number of the earliest raw frame in the grey picture
    bool all_changed_ = true;               // since the last `show`
    std::vector<std::int64_t> changed_at_;  // per row: number of the raw frame that changed it last
    std::vector<std::uint8_t> grey_;
    std::vector<std::uint32_t> changed_rows_;
};

}  // namespace framestow
