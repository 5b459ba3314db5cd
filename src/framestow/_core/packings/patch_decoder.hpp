// Applies patches: the inner loop of every sample.
//
// `body` is a segment's body and `place` the start of the patch in it. At least kReadPadding bytes after the body must
// be readable; their values never matter. `frame` and `base` are FrameBuffers of this geometry. Returns the place after
// the patch. Any bytes give some frame or DamagedSegment, without a read outside the padded body or a write outside the
// buffer. Thread-safe if each thread has its own buffers.
#pragma once

#include <vector>

#include "../bytes.hpp"
#include "../pages.hpp"
#include "patch_format.hpp"
#include "patches.hpp"

namespace framestow {

// Where an operation that may be repeated ends. Trusts the bytes, which this process wrote; those from elsewhere go
// through decode_self_coded and apply_patch.
struct OperationEnds {
    std::size_t keep_begin = 0;  // start of its number of kept bytes; its end if it keeps none
    std::size_t end = 0;
};

inline std::size_t bytes_of_number(std::uint8_t first) {
    return first == patch_format::kKeepWide16 ? 3 : first == patch_format::kKeepWide8 ? 2 : 1;
}

struct RepeatBytes {
    std::size_t size;
    std::size_t place;
    std::size_t nbytes;  // of the repeat itself
};

// `code`: of the first of the bytes, without the keep flag.
inline RepeatBytes read_repeat(const std::uint8_t* bytes, unsigned code) {
    using namespace patch_format;
    if (code == kRepeatFar) {
        return {kMinRepeatBytes + bytes[1], load_u16(bytes + 2) | std::size_t{bytes[4]} << 16, 5};
    }
    if (code == kRepeatWide8) {
        return {kMinRepeatBytes + kDirectRepeats + bytes[1], load_u16(bytes + 2), 4};
    }
    return {kMinRepeatBytes + code - kFirstRepeat, load_u16(bytes + 1), 3};
}

inline OperationEnds ends_of_operation(const patch_format::Codes& codes, const std::uint8_t* body, std::size_t begin) {
    using namespace patch_format;
    const unsigned code = body[begin] & kCodeMask;
    std::size_t end = begin + 1;
    if (code < kNothing) {
        std::size_t source = 0;
        while (code >= codes.first[source + 1]) {
            ++source;
        }
        end += (code - codes.first[source] + 1) * codes.operand_bytes[source];
    } else if (code >= kFirstWide8) {
        const std::size_t source = (code - kFirstWide8) % codes.num_sources;
        const bool is_wide16 = code >= kFirstWide8 + codes.num_sources;
        const std::size_t length = is_wide16 ? load_u16(body + end) : codes.direct_lengths[source] + 1 + body[end];
        end += (is_wide16 ? 2 : 1) + length * codes.operand_bytes[source];
    }
    const bool keeps = (body[begin] & kKeepFlag) != 0;
    return OperationEnds{end, keeps ? end + bytes_of_number(body[end]) : end};
}

// Appends a repeat of `size` bytes of operations at `place`. If it keeps bytes, the caller appends their number.
inline void append_repeat(PagedVector<std::uint8_t>& body, std::size_t place, std::size_t size, bool keeps) {
    using namespace patch_format;
    const std::size_t excess = size - kMinRepeatBytes;
    const unsigned flag = keeps ? kKeepFlag : 0;
    if (place > kMaxNearPlace) {
        body.push_back(static_cast<std::uint8_t>(flag | kRepeatFar));
        body.push_back(static_cast<std::uint8_t>(excess));
    } else if (excess < kDirectRepeats) {
        body.push_back(static_cast<std::uint8_t>(flag | static_cast<unsigned>(kFirstRepeat + excess)));
    } else {
        body.push_back(static_cast<std::uint8_t>(flag | kRepeatWide8));
        body.push_back(static_cast<std::uint8_t>(excess - kDirectRepeats));
    }
    body.push_back(static_cast<std::uint8_t>(place & 0xFF));
    body.push_back(static_cast<std::uint8_t>(place >> 8 & 0xFF));
    if (place > kMaxNearPlace) {
        body.push_back(static_cast<std::uint8_t>(place >> 16));
    }
}

// Rebuilds a self-coded frame; the previous contents of `frame` are not read.
std::size_t decode_self_coded(const SegmentHeader& header, ByteSpan body, std::size_t place, FrameBuffer& frame);

// Turns `frame` into the patched frame in place. `base` must not be `frame`.
std::size_t apply_patch(const SegmentHeader& header, ByteSpan body, std::size_t place, const FrameBuffer& base,
                        FrameBuffer& frame);

}  // namespace framestow
