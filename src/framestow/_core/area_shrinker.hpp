// Pictures made smaller by the mean over the area that a pixel covers, byte for byte as OpenCV's INTER_AREA does it.
//
// OpenCV weighs in float, row by row first and then down the columns, so the order of all products and sums counts; this
// keeps it. A picture is told which of its rows have changed since the one before: only their means are made anew.
//
// Ownership: copies nothing of the caller's; keeps the means of the last picture and the frame made of it. Threads: one
// at a time. Nothing is checked: pictures must have the size told at construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

struct PictureSize {
    std::size_t height;
    std::size_t width;
};

// Which input pixels each output pixel of one axis is the mean of, and how much each counts.
struct AreaWeights {
    AreaWeights(std::size_t num_inputs, std::size_t num_outputs);

    std::size_t tap_stride;              // weights from one output pixel to the next
    std::vector<std::uint32_t> firsts;   // an output pixel: its first input pixel
    std::vector<std::uint32_t> counts;   // an output pixel: its input pixels, which lie side by side
    std::vector<float> weights;          // tap_stride an output pixel, 0 where it has fewer taps
};

class AreaShrinker {
public:
    // Whether OpenCV takes the mean in float for these sizes: neither axis grows, and one at least by no whole factor.
    static bool applies(PictureSize input, PictureSize output);

    AreaShrinker(PictureSize input, PictureSize output);  // only where it applies

    // Writes the frame of `picture`, whose rows are those of the picture before but for `changed_rows` (ascending).
    void shrink(const std::uint8_t* picture, const std::vector<std::uint32_t>& changed_rows, std::uint8_t* out);

private:
    void average_row(const std::uint8_t* row, float* means);
    void average_column(std::size_t output_row, std::uint8_t* out);

    PictureSize input_, output_;
    AreaWeights across_, down_;
    std::size_t row_stride_;              // floats from one row of means to the next
    std::vector<float> pixels_;           // a row of the picture, and zeros behind it
    std::vector<float> means_;            // input height x row_stride_
    std::vector<float> sums_;             // row_stride_
    std::vector<std::uint8_t> is_stale_;  // an output row
    std::vector<std::uint8_t> frame_;     // of the last picture
    std::vector<std::uint32_t> output_rows_from_, output_rows_to_;  // an input row: the output rows that it counts in
};

}  // namespace framestow
