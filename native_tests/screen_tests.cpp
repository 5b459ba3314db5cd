// Tests of the palette screen and the shrinker without Python, against a plain mean. Buffers have the exact size, so
// that a sanitizer finds every access beyond them. Exits with 0 on success.
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "area_shrinker.hpp"
#include "check.hpp"
#include "palette_screen.hpp"

using namespace framestow;

namespace {

constexpr std::size_t kNumColours = PaletteScreen::kNumColours;

// Returns which part of output pixel `output` input pixel `input` covers.
double share(std::size_t input, std::size_t output, std::size_t num_inputs, std::size_t num_outputs) {
    const double scale = static_cast<double>(num_inputs) / static_cast<double>(num_outputs);
    const double from = static_cast<double>(output) * scale, begin = static_cast<double>(input);
    return std::max(0.0, std::min(from + scale, begin + 1.0) - std::max(from, begin)) / scale;
}

// Compares with the mean in double: float may differ by one rounding, and OpenCV ignores shares below a thousandth.
void check_mean(const std::vector<std::uint8_t>& picture, PictureSize input, PictureSize output,
                const std::uint8_t* frame) {
    for (std::size_t y = 0; y < output.height; ++y) {
        for (std::size_t x = 0; x < output.width; ++x) {
            double mean = 0.0;
            for (std::size_t row = 0; row < input.height; ++row) {
                const double share_of_row = share(row, y, input.height, output.height);
                for (std::size_t column = 0; share_of_row > 0.0 && column < input.width; ++column) {
                    mean += share_of_row * share(column, x, input.width, output.width) *
                            picture[row * input.width + column];
                }
            }
            CHECK(std::abs(mean - frame[y * output.width + x]) < 1.2);
        }
    }
}

void shrink_pictures(PictureSize input, PictureSize output, std::mt19937& random) {
    if (!AreaShrinker::applies(input, output)) {
        return;
    }
    AreaShrinker shrinker(input, output);
    std::vector<std::uint8_t> picture(input.height * input.width);
    const std::unique_ptr<std::uint8_t[]> frame(new std::uint8_t[output.height * output.width]);
    for (int time = 0; time < 3; ++time) {
        std::vector<std::uint32_t> changed;
        for (std::uint32_t row = 0; row < input.height; ++row) {
            if (time == 0 || random() % 3 == 0) {
                changed.push_back(row);
                for (std::size_t column = 0; column < input.width; ++column) {
                    picture[row * input.width + column] = static_cast<std::uint8_t>(random());
                }
            }
        }
        shrinker.shrink(picture.data(), changed, frame.get());
        check_mean(picture, input, output, frame.get());
    }
}

void pictures_of_any_size_shrink_to_the_mean_over_the_area() {
    std::mt19937 random(1);
    shrink_pictures(PictureSize{210, 160}, PictureSize{84, 84}, random);
    for (int time = 0; time < 300; ++time) {
        const PictureSize input{1 + random() % 40, 1 + random() % 40};
        shrink_pictures(input, PictureSize{1 + random() % input.height, 1 + random() % input.width}, random);
    }
}

void weights_of_an_output_pixel_add_up_to_one() {
    for (std::size_t num_inputs = 1; num_inputs <= 260; ++num_inputs) {
        for (std::size_t num_outputs = 1; num_outputs <= num_inputs; num_outputs += 7) {
            const AreaWeights axis(num_inputs, num_outputs);
            for (std::size_t output = 0; output < num_outputs; ++output) {
                double sum = 0.0;
                for (std::size_t tap = 0; tap < axis.counts[output]; ++tap) {
                    sum += static_cast<double>(axis.weights[output * axis.tap_stride + tap]);
                }
                CHECK(std::abs(sum - 1.0) < 3e-3);
                CHECK(axis.firsts[output] + axis.counts[output] <= num_inputs);
            }
        }
    }
}

void screens_show_the_newest_raw_frame_or_the_maximum_of_two() {
    std::mt19937 random(2);
    std::vector<std::uint8_t> greys(kNumColours * kNumColours), known(kNumColours, 1);
    for (std::size_t one = 0; one < kNumColours; ++one) {
        for (std::size_t other = 0; other < kNumColours; ++other) {
            greys[one * kNumColours + other] = static_cast<std::uint8_t>(std::max(one, other));
        }
    }
    for (int time = 0; time < 100; ++time) {
        const std::size_t height = 1 + random() % 12, width = 1 + random() % 40, size = height * width;
        std::vector<std::uint8_t> raw_frames(2 * size);
        PaletteScreen screen(raw_frames.data(), height, width);
        screen.learn(greys.data(), known.data());
        for (std::size_t number = 0; number < 20; ++number) {
            std::uint8_t* const newest = raw_frames.data() + number % 2 * size;
            const std::uint8_t* const before = raw_frames.data() + (number + 1) % 2 * size;
            std::copy(before, before + size, newest);
            for (std::size_t change = random() % 4; change > 0; --change) {
                newest[random() % size] = static_cast<std::uint8_t>(random());
            }
            CHECK(screen.take_in(number % 2));
            if (random() % 3 == 0) {
                continue;
            }
            const bool of_two = number > 0 && random() % 2 == 0;
            CHECK(screen.can_show(of_two));
            screen.show(of_two);
            for (std::size_t pixel = 0; pixel < size; ++pixel) {
                const std::uint8_t wanted = of_two ? std::max(newest[pixel], before[pixel]) : newest[pixel];
                CHECK(screen.grey()[pixel] == wanted);
            }
        }
    }
}

void an_unknown_palette_number_is_reported() {
    const std::size_t size = 3 * 21;
    std::vector<std::uint8_t> raw_frames(2 * size), greys(kNumColours * kNumColours), known(kNumColours, 0);
    PaletteScreen screen(raw_frames.data(), 3, 21);
    CHECK(!screen.take_in(0));
    CHECK(!screen.can_show(false));
    known[0] = 1;
    screen.learn(greys.data(), known.data());
    CHECK(screen.take_in(0));
    CHECK(screen.can_show(false) && !screen.can_show(true));
    for (std::size_t pixel = 0; pixel < size; ++pixel) {
        raw_frames[size + pixel] = 5;
        CHECK(!screen.take_in(1));
        raw_frames[size + pixel] = 0;
        CHECK(screen.take_in(1));
        CHECK(screen.take_in(0));
    }
}

}  // namespace

int main() {
    pictures_of_any_size_shrink_to_the_mean_over_the_area();
    weights_of_an_output_pixel_add_up_to_one();
    screens_show_the_newest_raw_frame_or_the_maximum_of_two();
    an_unknown_palette_number_is_reported();
    return 0;
}
