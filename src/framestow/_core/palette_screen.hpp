// A console's screen in grey, kept up to date raw frame by raw frame.
//
// An emulator gives raw frames of palette numbers. The grey picture of the newest, or of the maximum of the last two, is
// made by a table over pairs of numbers, so that any rule for the maximum (of greys, or colour by colour) is data. A
// screen changes little from one raw frame to the next: rows are remembered by when they changed last, and only those
// that may look different are made anew.
//
// What a number looks like has to be learned before it is shown: `take_in` tells of numbers that were not.
//
// Ownership: the two raw frames are the caller's, who keeps them in place. Threads: one at a time.
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

    // What the maximum of two palette numbers looks like (kNumColours x kNumColours), and which numbers are known (1).
    void learn(const std::uint8_t* grey_of_pair, const std::uint8_t* is_known);

    // Takes raw frame 0 or 1, just written, as the newest, in turn. False where it has a number that is not known: it is
    // to be learned, and the raw frame taken in again.
    bool take_in(std::size_t which);

    // Whether the newest raw frame, and if it takes part the one before, have been taken in.
    bool can_show(bool of_two) const;

    // Brings the grey picture up to date: of the newest raw frame, or of the maximum of the last two.
    void show(bool of_two);

    const std::vector<std::uint8_t>& grey() const { return grey_; }
    const std::vector<std::uint32_t>& changed_rows() const { return changed_rows_; }  // by the last `show`, ascending

private:
    const std::uint8_t* row_of(std::size_t which, std::size_t row) const {
        return raw_frames_ + (which * height_ + row) * width_;
    }
    bool knows(const std::uint8_t* numbers, std::size_t count) const;
    bool knows_changes(const std::uint8_t* numbers, const std::uint8_t* known_numbers) const;
    void show_row(std::size_t row, bool of_two);

    const std::uint8_t* raw_frames_;
    std::size_t height_, width_;
    std::vector<std::uint8_t> grey_of_pair_;
    std::array<std::uint8_t, kNumColours> grey_of_, is_unknown_;
    std::array<bool, 2> is_taken_in_{false, false};
    std::size_t newest_ = 0;
    std::int64_t number_ = 0;                // of the newest raw frame
    std::int64_t shown_from_ = 0;            // number of the earlier raw frame in the grey picture
    bool all_changed_ = true;                // since the grey picture was made
    std::vector<std::int64_t> changed_at_;   // a row: number of the raw frame that changed it last
    std::vector<std::uint8_t> grey_;
    std::vector<std::uint32_t> changed_rows_;
};

}  // namespace framestow
