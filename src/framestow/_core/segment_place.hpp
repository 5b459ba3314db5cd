// Where the bytes of a sealed segment lie: in the arena, in a file, or nowhere. Plain values that own nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "segment_arena.hpp"
#include "segment_file.hpp"

namespace framestow {

struct FilePlace {
    SegmentFile* file = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::optional<std::uint32_t> checksum;  // that the segment begins with, where it is known
};

using SegmentPlace = std::variant<std::monostate, StoredSegment, FilePlace>;
inline constexpr SegmentPlace kNowhere{};

inline bool is_nowhere(const SegmentPlace& place) { return std::holds_alternative<std::monostate>(place); }

// None for a segment that lies in a file.
inline ByteSpan bytes_in_ram(const SegmentPlace& place) {
    const auto* const stored = std::get_if<StoredSegment>(&place);
    return stored == nullptr ? ByteSpan{} : stored->span();
}

inline std::size_t size_of(const SegmentPlace& place) {
    const auto* const in_file = std::get_if<FilePlace>(&place);
    return in_file == nullptr ? bytes_in_ram(place).size : in_file->size;
}

}  // namespace framestow
