// CRC-32C (Castagnoli) of a span: one checksum for RAM and disk.
//
// Finds every burst of up to 32 damaged bits, hence every damaged byte. Polynomial 0x1EDC6F41, reflected, initial
// value and final xor 0xFFFFFFFF: "123456789" gives 0xE3069283. Uses the processor's instruction where it has one
// (found out at run time), a table elsewhere; both give the same number. Thread-safe, reads only the span.
#pragma once

#include "bytes.hpp"

namespace framestow {

std::uint32_t crc32c(ByteSpan span);

// The table path alone, so that tests can compare it with the instruction.
std::uint32_t crc32c_by_table(ByteSpan span);

}  // namespace framestow
