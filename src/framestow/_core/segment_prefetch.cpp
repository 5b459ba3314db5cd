#include "segment_prefetch.hpp"

#include <algorithm>

#include "segment.hpp"

#if defined(__SSE2__) || defined(_M_X64)
#define FRAMESTOW_SSE2 1
#include <xmmintrin.h>
#endif

namespace framestow {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kMostBytes = 16 * 1024;  // of each part; more would drive out what is just being unpacked

inline void prefetch(const std::uint8_t* bytes) {
#if defined(FRAMESTOW_SSE2)
    _mm_prefetch(reinterpret_cast<const char*>(bytes), _MM_HINT_T0);
#elif defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(bytes);
#else
    (void)bytes;
#endif
}

// From `begin` on, up to `end` or the segment's end, at most `most` bytes.
void prefetch_part(ByteSpan segment, std::size_t begin, std::size_t end, std::size_t most) {
    end = std::min({end, begin + most, segment.size});
    for (std::size_t position = begin; position < end; position += kLineBytes) {
        prefetch(segment.bytes + position);
    }
}

}  // namespace

void prefetch_directory(ByteSpan segment, const FrameGeometry& geometry, std::size_t first) {
    prefetch_part(segment, 0, 1, kLineBytes);
    const std::size_t entry = kHeaderBytes + first / default_group_frames(geometry) * kOffsetBytes;
    prefetch_part(segment, entry, entry + 3 * kOffsetBytes, kLineBytes + 1);
}

void prefetch_frames(ByteSpan segment, std::size_t first, std::size_t count) {
    if (segment.size < kHeaderBytes) {
        return;
    }
    const SegmentHeader header = peek_header(segment);
    if (header.packing != PackingKind::kPatches || header.group_frames == 0) {
        return;
    }
    const std::size_t group_frames = header.group_frames;
    const std::size_t num_groups = header.num_groups();
    const std::size_t body = kHeaderBytes + num_groups * kOffsetBytes;
    const std::size_t first_group = first / group_frames;
    const std::size_t end_group = (first + count - 1) / group_frames + 1;
    if (body > segment.size || end_group > num_groups) {
        return;
    }
    const auto begin_of = [&](std::size_t group) {
        return group < num_groups ? body + load_u32(segment.bytes + kHeaderBytes + group * kOffsetBytes) : segment.size;
    };
    prefetch_part(segment, body, begin_of(0), kMostBytes);
    prefetch_part(segment, begin_of(first_group), begin_of(end_group), kMostBytes);
}

}  // namespace framestow
