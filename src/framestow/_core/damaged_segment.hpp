// The one exception for bytes that are not what was written.
//
// Thrown by every function that interprets packed bytes, before or after it wrote part of its output, never with a
// read or write outside the given spans. bindings/errors.cpp turns it into framestow.errors.DamagedDataError.
#pragma once

#include <stdexcept>
#include <string>

namespace framestow {

class DamagedSegment : public std::runtime_error {
public:
    explicit DamagedSegment(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace framestow
