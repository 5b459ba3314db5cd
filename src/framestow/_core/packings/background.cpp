#include "background.hpp"

#include <algorithm>

namespace framestow {
namespace {

constexpr std::uint8_t kMostVotes = 255;

// In blocks that a byte can count, so that the compiler compares many bytes at once.
std::size_t count_differing(const std::uint8_t* a, const std::uint8_t* b, std::size_t size) {
    constexpr std::size_t block = 192;
    std::size_t total = 0;
    std::size_t position = 0;
    for (; position + block <= size; position += block) {
        std::uint8_t count = 0;
        for (std::size_t index = 0; index < block; ++index) {
            count = static_cast<std::uint8_t>(count + (a[position + index] != b[position + index] ? 1 : 0));
        }
        total += count;
    }
    for (; position < size; ++position) {
        total += a[position] != b[position] ? 1 : 0;
    }
    return total;
}

}  // namespace

Background::Background(std::size_t frame_bytes) : candidate_(frame_bytes), votes_(frame_bytes), first_(frame_bytes) {}

void Background::clear() {
    std::fill(votes_.begin(), votes_.end(), std::uint8_t{0});
    num_looked_at_ = 0;
    differing_ = 0;
    differing_from_first_ = 0;
}

void Background::look_at(const std::uint8_t* frame) {
    const std::size_t size = candidate_.size();
    if (num_looked_at_++ == 0) {
        std::copy(frame, frame + size, first_.data());
        std::copy(frame, frame + size, candidate_.data());
    }
    differing_ += count_differing(frame, candidate_.data(), size);
    differing_from_first_ += count_differing(frame, first_.data(), size);
    std::uint8_t* const candidate = candidate_.data();
    std::uint8_t* const votes = votes_.data();
    for (std::size_t index = 0; index < size; ++index) {
        const bool is_same = candidate[index] == frame[index];
        const bool is_open = votes[index] == 0;
        const auto fewer = static_cast<std::uint8_t>(votes[index] - 1);
        const auto more = static_cast<std::uint8_t>(votes[index] + (votes[index] != kMostVotes ? 1 : 0));
        candidate[index] = is_open ? frame[index] : candidate[index];
        votes[index] = is_open || is_same ? more : fewer;
    }
}

bool Background::serves_better_than_first() const { return 20 * differing_ < 17 * differing_from_first_; }

}  // namespace framestow
