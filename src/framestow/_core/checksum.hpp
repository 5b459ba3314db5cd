// CRC-32C (Castagnoli) of a span: the one checksum for RAM and disk.
//
// Detects every burst of up to 32 damaged bits. Polynomial 0x1EDC6F41, reflected, initial value and final xor
// 0xFFFFFFFF: "123456789" gives 0xE3069283. Uses the processor's instruction if it has one (tested at run time),
// otherwise a table; both return the same number. Thread-safe.
#pragma once

#include "bytes.hpp"

namespace framestow {

std::uint32_t crc32c(ByteSpan span);

// Uses the table only, so that tests can compare it with the instruction.
std::uint32_t crc32c_by_table(ByteSpan span);

}  // namespace framestow
