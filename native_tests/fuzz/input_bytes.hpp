// Reads a fuzzer's input from front to back as bytes and numbers; zeros after its end. Any input is valid.
//
// Owns nothing: the input must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framestow {

class InputBytes {
public:
    InputBytes(const std::uint8_t* bytes, std::size_t size) : bytes_(bytes), end_(bytes + size) {}

    bool is_used_up() const { return bytes_ == end_; }
    std::uint8_t byte() { return is_used_up() ? std::uint8_t{0} : *bytes_++; }
    std::size_t number() {  // up to 65535
        const std::size_t low = byte();
        return low + 256 * std::size_t{byte()};
    }
    std::size_t number_below(std::size_t end) { return (end <= 256 ? byte() : number()) % end; }

private:
    const std::uint8_t* bytes_;
    const std::uint8_t* end_;
};

}  // namespace framestow
