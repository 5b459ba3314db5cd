// Which bytes of a frame match what an operation would write: bit i is byte i.
//
// Compares 16 bytes at a time where SSE2 is there (every x86-64), byte by byte elsewhere; both give the same bits.
// Behind the frame stand zeros, which end every match. Owns its words; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class MatchBitmap {
public:
    explicit MatchBitmap(std::size_t frame_bytes);

    // With another frame, at the same places.
    void compare(const std::uint8_t* frame, const std::uint8_t* other);

    // With the same frame `period` bytes before; bytes before the frame count as zeros.
    void compare_behind(const std::uint8_t* frame, std::size_t period);

    // How many matching bytes follow one another from `position` (at most frame_bytes) on.
    std::size_t match_length(std::size_t position) const;

    bool matches(std::size_t position) const { return (words_[position / 64] >> (position % 64) & 1U) != 0; }
    std::size_t nbytes() const { return words_.capacity() * sizeof(std::uint64_t); }

private:
    std::size_t frame_bytes_;
    std::vector<std::uint64_t> words_;
};

}  // namespace framestow
