// Shrinks a picture by the mean over the area of each output pixel, byte for byte as OpenCV's INTER_AREA.
//
// OpenCV computes in float, first along the rows and then down the columns. The order of products and sums matters, so
// this code keeps it. Row means are cached: only changed rows are computed again.
//
// Ownership: references no memory of the caller; caches the means and the frame of the last picture. Threads: one at a
// time. Nothing is checked: pictures must have the size given to the constructor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

struct PictureSize {
    std::size_t height;
    std::size_t width;
};

// The input pixels that each output pixel of one axis averages, with their weights.
struct AreaWeights {
    AreaWeights(std::size_t num_inputs, std::size_t num_outputs);

    std::size_t tap_stride;             // number of weights per output pixel
    std::vector<std::uint32_t> firsts;  // per output pixel: its first input pixel
    std::vector<std::uint32_t> counts;  // per output pixel: its adjacent input pixels
    std::vector<float> weights;         // tap_stride per output pixel, padded with 0
};

class AreaShrinker {
public:
    // Returns whether OpenCV averages in float for these sizes: neither axis grows, and at least one shrinks by a
    // factor that is not an integer.
    static bool applies(PictureSize input, PictureSize output);

    AreaShrinker(PictureSize input, PictureSize output);  // requires applies(input, output)

    // Writes the frame of `picture`. All rows except the ascending `changed_rows` equal those of the previous picture.
    void shrink(const std::uint8_t* picture, const std::vector<std::uint32_t>& changed_rows, std::uint8_t* out);

private:
    void average_row(const std::uint8_t* row, float* means);
    void average_column(std::size_t output_row, std::uint8_t* out);

    PictureSize input_, output_;
    AreaWeights across_, down_;                                     // of the pixels of a row, and of the rows
    std::size_t row_stride_;                                        // floats per row of means
    std::vector<float> pixels_;                                     // a row of the picture, padded with zeros
    std::vector<float> means_;                                      // input height x row_stride_
    std::vector<float> sums_;                                       // row_stride_
    std::vector<std::uint8_t> is_stale_;                            // per output row
    std::vector<std::uint8_t> frame_;                               // the last output
    std::vector<std::uint32_t> output_rows_from_, output_rows_to_;  // per input row: the output rows that use it
};

}  // namespace framestow
