// The exceptions for bytes that are not what was written.
//
// Thrown by every function that interprets packed bytes, before or after it wrote part of its output, never with a
// read or write outside the given spans. bindings/errors.cpp turns them into framestow.errors.DamagedDataError and
// DamagedSegmentError.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace framestow {

class DamagedSegment : public std::runtime_error {
public:
    explicit DamagedSegment(const std::string& what) : std::runtime_error(what) {}
};

inline std::string segment_name(std::int64_t stream, std::int64_t number) {
    return "segment " + std::to_string(number) + " of stream " + std::to_string(stream);
}

// One that is held, so that whoever asked for it can go on without it.
class DamagedHeldSegment : public DamagedSegment {
public:
    DamagedHeldSegment(const std::string& what, std::int64_t stream, std::int64_t number)
        : DamagedSegment(what), stream_(stream), number_(number) {}

    std::int64_t stream() const { return stream_; }
    std::int64_t number() const { return number_; }

private:
    std::int64_t stream_;
    std::int64_t number_;
};

}  // namespace framestow
