#include "area_shrinker.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "processor.hpp"

namespace framestow {
namespace {

constexpr std::size_t kLanes = 4;     // output pixels computed together
constexpr double kLeastShare = 1e-3;  // smaller parts of an input pixel are ignored

// As OpenCV computes the factor: the inverse of the inverse, which may differ from the quotient.
double scale_of(std::size_t num_inputs, std::size_t num_outputs) {
    return 1.0 / (static_cast<double>(num_outputs) / static_cast<double>(num_inputs));
}

bool is_whole(double scale) { return std::abs(scale - std::nearbyint(scale)) < std::numeric_limits<double>::epsilon(); }

std::size_t padded(std::size_t width) { return (width + kLanes - 1) / kLanes * kLanes; }

// Half to even, for 0 <= value < 256: the sum's last bit is worth 1, and the addition rounds so.
std::uint8_t rounded(float value) {
    const float shifted = value + 8388608.0F;  // 2**23
    std::uint32_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    return static_cast<std::uint8_t>(bits);
}

#ifdef FRAMESTOW_SSE2
// Four output pixels of up to four taps each, 16 weights: multiplied side by side, transposed, and added tap by tap.
__m128 four_means(const float* pixels, const std::uint32_t* firsts, const float* weights) {
    __m128 first = _mm_mul_ps(_mm_loadu_ps(pixels + firsts[0]), _mm_loadu_ps(weights));
    __m128 second = _mm_mul_ps(_mm_loadu_ps(pixels + firsts[1]), _mm_loadu_ps(weights + 4));
    __m128 third = _mm_mul_ps(_mm_loadu_ps(pixels + firsts[2]), _mm_loadu_ps(weights + 8));
    __m128 fourth = _mm_mul_ps(_mm_loadu_ps(pixels + firsts[3]), _mm_loadu_ps(weights + 12));
    _MM_TRANSPOSE4_PS(first, second, third, fourth);
    return _mm_add_ps(_mm_add_ps(_mm_add_ps(first, second), third), fourth);
}
#endif

}  // namespace

AreaWeights::AreaWeights(std::size_t num_inputs, std::size_t num_outputs) : tap_stride(kLanes) {
    const double scale = scale_of(num_inputs, num_outputs);
    std::vector<std::vector<float>> weights_of(num_outputs);
    for (std::size_t output = 0; output < num_outputs; ++output) {
        const double from = static_cast<double>(output) * scale, to = from + scale;
        const double width = std::min(scale, static_cast<double>(num_inputs) - from);
        const std::size_t last = std::min(static_cast<std::size_t>(std::floor(to)), num_inputs - 1);
        const std::size_t first_whole = std::min(static_cast<std::size_t>(std::ceil(from)), last);
        std::vector<float>& shares = weights_of[output];
        std::size_t first = first_whole;
        if (static_cast<double>(first_whole) - from > kLeastShare) {
            first = first_whole - 1;
            shares.push_back(static_cast<float>((static_cast<double>(first_whole) - from) / width));
        }
        shares.insert(shares.end(), last - first_whole, static_cast<float>(1.0 / width));
        const double rest = to - static_cast<double>(last);
        if (rest > kLeastShare) {
            shares.push_back(static_cast<float>(std::min(std::min(rest, 1.0), width) / width));
        }
        firsts.push_back(static_cast<std::uint32_t>(first));
        counts.push_back(static_cast<std::uint32_t>(shares.size()));
        tap_stride = std::max(tap_stride, shares.size());
    }
    for (std::vector<float>& shares : weights_of) {
        shares.resize(tap_stride, 0.0F);
        weights.insert(weights.end(), shares.begin(), shares.end());
    }
}

bool AreaShrinker::applies(PictureSize input, PictureSize output) {
    const double down = scale_of(input.height, output.height), across = scale_of(input.width, output.width);
    return down >= 1.0 && across >= 1.0 && !(is_whole(down) && is_whole(across));
}

AreaShrinker::AreaShrinker(PictureSize input, PictureSize output)
    : input_(input),
      output_(output),
      across_(input.width, output.width),
      down_(input.height, output.height),
      row_stride_(padded(output.width)),
      pixels_(input.width + across_.tap_stride, 0.0F),
      means_(input.height * row_stride_, 0.0F),
      sums_(row_stride_),
      is_stale_(output.height, 1),
      frame_(output.height * output.width) {
    // Values after a row's last output pixel are computed too, with weights of 0.
    across_.firsts.resize(row_stride_, 0);
    across_.weights.resize(row_stride_ * across_.tap_stride, 0.0F);
    output_rows_from_.assign(input.height, static_cast<std::uint32_t>(output.height));
    output_rows_to_.assign(input.height, 0);
    for (std::uint32_t row = 0; row < output.height; ++row) {
        for (std::uint32_t tap = 0; tap < down_.counts[row]; ++tap) {
            const std::uint32_t input_row = down_.firsts[row] + tap;
            output_rows_from_[input_row] = std::min(output_rows_from_[input_row], row);
            output_rows_to_[input_row] = row + 1;
        }
    }
}

void AreaShrinker::shrink(const std::uint8_t* picture, const std::vector<std::uint32_t>& changed_rows,
                          std::uint8_t* out) {
    for (const std::uint32_t row : changed_rows) {
        average_row(picture + row * input_.width, means_.data() + row * row_stride_);
        for (std::uint32_t stale = output_rows_from_[row]; stale < output_rows_to_[row]; ++stale) {
            is_stale_[stale] = 1;
        }
    }
    for (std::size_t row = 0; row < output_.height; ++row) {
        if (is_stale_[row]) {
            average_column(row, frame_.data() + row * output_.width);
            is_stale_[row] = 0;
        }
    }
    std::memcpy(out, frame_.data(), frame_.size());
}

void AreaShrinker::average_row(const std::uint8_t* row, float* means) {
    for (std::size_t column = 0; column < input_.width; ++column) {
        pixels_[column] = static_cast<float>(row[column]);
    }
    const float* const pixels = pixels_.data();
    const float* weights = across_.weights.data();
#ifdef FRAMESTOW_SSE2
    if (across_.tap_stride == kLanes) {
        for (std::size_t column = 0; column < row_stride_; column += kLanes, weights += kLanes * kLanes) {
            _mm_storeu_ps(means + column, four_means(pixels, across_.firsts.data() + column, weights));
        }
        return;
    }
#endif
    for (std::size_t column = 0; column < row_stride_; ++column, weights += across_.tap_stride) {
        const float* const covered = pixels + across_.firsts[column];
        float mean = covered[0] * weights[0];
        for (std::size_t tap = 1; tap < across_.tap_stride; ++tap) {
            mean += covered[tap] * weights[tap];
        }
        means[column] = mean;
    }
}

void AreaShrinker::average_column(std::size_t output_row, std::uint8_t* out) {
    const float* means = means_.data() + down_.firsts[output_row] * row_stride_;
    const float* const weights = down_.weights.data() + output_row * down_.tap_stride;
    float* const sums = sums_.data();
    for (std::size_t column = 0; column < row_stride_; ++column) {
        sums[column] = means[column] * weights[0];
    }
    for (std::size_t tap = 1; tap < down_.counts[output_row]; ++tap) {
        means += row_stride_;
        for (std::size_t column = 0; column < row_stride_; ++column) {
            sums[column] += means[column] * weights[tap];
        }
    }
    for (std::size_t column = 0; column < output_.width; ++column) {
        out[column] = rounded(sums[column]);
    }
}

}  // namespace framestow
