// Decodes any bytes as a segment: the result is frames or DamagedSegment. The input is a segment in its stored form.
//
// It is read unchanged, and again with a corrected checksum so that the decoder runs. The frames must not depend on the
// bytes after the segment, on earlier decoding, or on the window that requests them. The same holds for the lead-ins of
// a segment with stretches.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "../check.hpp"
#include "checksum.hpp"
#include "frame_store.hpp"
#include "segment_header.hpp"
#include "window_reader.hpp"

using namespace framestow;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t max_size);

namespace {

using Bytes = std::vector<std::uint8_t>;
using Frames = std::optional<Bytes>;  // empty if the segment is damaged

constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kMostFrameBytes = 256 * 1024;  // over all frames, so that an input takes milliseconds

ByteSpan span_of(const Bytes& bytes) { return ByteSpan{bytes.data(), bytes.size()}; }

template <typename Unpack>
Frames frames_or_damage(std::size_t frame_bytes, std::uint8_t filling, const Unpack& unpack) {
    Bytes out(frame_bytes, filling);  // exact size, so that AddressSanitizer finds every write beyond it
    try {
        unpack(out.data());
    } catch (const DamagedSegment&) {
        return std::nullopt;
    }
    return out;
}

// A segment followed by exactly the padding that decoders may load.
struct PaddedSegment {
    PaddedSegment(const Bytes& segment, std::uint8_t padding) : bytes(segment), size(segment.size()) {
        bytes.reserve(size + kReadPadding);
        bytes.resize(size + kReadPadding, padding);
    }
    ByteSpan span() const { return ByteSpan{bytes.data(), size}; }

    Bytes bytes;
    std::size_t size;
};

Frames unpack_window(const SegmentHeader& header, const PaddedSegment& segment, std::size_t first, std::size_t count,
                     DecodingScratch& scratch, std::uint8_t filling) {
    return frames_or_damage(count * header.geometry.frame_bytes(), filling, [&](std::uint8_t* out) {
        unpack_frames(header, payload_of(header, segment.span()), first, count, scratch, out);
    });
}

Bytes slice(const Bytes& frames, const SegmentHeader& header, std::size_t first, std::size_t count) {
    const std::size_t frame_bytes = header.geometry.frame_bytes();
    const auto begin = frames.begin() + static_cast<std::ptrdiff_t>(first * frame_bytes);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(count * frame_bytes));
}

struct Window {
    std::size_t first;
    std::size_t count;
};

Window draw_window(const SegmentHeader& header, std::minstd_rand& random) {
    const std::size_t first = random() % header.num_frames;
    return Window{first, 1 + random() % (header.num_frames - first)};
}

// Returns all frames, after checking that every way to request them gives the same.
Frames check_decoder(const SegmentHeader& header, const Bytes& segment, std::minstd_rand& random) {
    DecodingScratch scratch;
    const PaddedSegment padded(segment, 0x00);
    const PaddedSegment padded_otherwise(segment, 0xFF);
    const Frames whole = unpack_window(header, padded, 0, header.num_frames, scratch, 0x11);
    CHECK(whole == unpack_window(header, padded_otherwise, 0, header.num_frames, scratch, 0xEE));
    for (int round = 0; round < 3; ++round) {
        const Window window = draw_window(header, random);
        const Frames part = unpack_window(header, padded, window.first, window.count, scratch, 0x11);
        CHECK(!whole || part == slice(*whole, header, window.first, window.count));
    }
    CHECK(whole == frames_or_damage(header.num_frames * header.geometry.frame_bytes(), 0x11, [&](std::uint8_t* out) {
              unpack_segment(span_of(segment), header.geometry, header.num_frames, out);
          }));
    return whole;
}

void check_that_other_frames_are_refused(const SegmentHeader& header, const Bytes& segment) {
    FrameGeometry other = header.geometry;
    ++other.rows;
    std::uint8_t nothing = 0;
    bool is_refused = false;
    try {
        unpack_segment(span_of(segment), other, header.num_frames, &nothing);
    } catch (const DamagedSegment&) {
        is_refused = true;
    }
    CHECK(is_refused);
}

// Stores it as a sealed segment, or as an open one, which is decoded and packed again.
void check_streams(const SegmentHeader& header, const Bytes& segment, const Frames& whole, bool is_open,
                   std::minstd_rand& random) {
    FrameStore packed(1, header.geometry, header.num_frames + (is_open ? 1 : 0));
    try {
        packed.restore(0, 0, span_of(segment));
    } catch (const DamagedSegment&) {
        CHECK(is_open && !whole && packed.num_frames() == 0);
        return;
    }
    CHECK(whole || !is_open);
    const Window window = draw_window(header, random);
    const std::int32_t stream = 0;
    const auto last = static_cast<std::int64_t>(window.first + window.count - 1);
    const auto count = static_cast<std::int32_t>(window.count);
    const Frames part = frames_or_damage(window.count * header.geometry.frame_bytes(), 0x11, [&](std::uint8_t* out) {
        const WindowRequests requests{&stream, &last, &count, 1};
        read_windows(packed, requests, window.count, StackPadding::kFirstFrame, out);
    });
    CHECK(!whole || part == slice(*whole, header, window.first, window.count));
}

// Checks that every function that verifies refuses a segment with a wrong checksum.
void check_segment(const Bytes& segment) {
    SegmentHeader header;
    try {
        header = verify_segment(span_of(segment));
    } catch (const DamagedSegment&) {
        return;
    }
    if (header.num_frames * header.geometry.frame_bytes() > kMostFrameBytes) {
        return;
    }
    std::minstd_rand random(crc32c(span_of(segment)));
    const Frames whole = check_decoder(header, segment, random);
    check_that_other_frames_are_refused(header, segment);
    if (random() % 4 == 0) {  // takes most of the time
        check_streams(header, segment, whole, random() % 2 == 0, random);
    }
}

// Returns the segment with right checksums of all its parts.
Bytes with_right_checksums(Bytes segment) {
    const auto correct = [&](std::size_t begin, std::size_t size) {
        if (size >= kChecksumBytes) {
            std::uint8_t* const part = segment.data() + begin;
            store_u32(part, crc32c(ByteSpan{part + kChecksumBytes, size - kChecksumBytes}));
        }
    };
    const StretchTable stretches = stretch_table(span_of(segment));
    correct(kStretchesHeaderBytes, stretches.frames.size);
    correct(segment.size() - stretches.lead_ins.size, stretches.lead_ins.size);
    correct(0, segment.size());
    return segment;
}

// Unpacks what stands before each frame, before and after it was stored.
void check_stretches(const Bytes& given) {
    FrameGeometry geometry;
    Bytes segment;
    try {
        geometry = read_header(stretch_table(span_of(given)).frames).geometry;
        segment = with_right_checksums(given);
    } catch (const DamagedSegment&) {
        return;
    }
    std::minstd_rand random(crc32c(span_of(segment)));
    const FrameFormat format(geometry, random() % 4 == 0, 0, 1 + random() % 4);
    const PaddedSegment padded(segment, 0x00);
    const PaddedSegment padded_otherwise(segment, 0xFF);
    const std::size_t count = 1 + random() % 6;
    const std::size_t size = count * format.frame_bytes();
    const auto padding_before = [&](const PaddedSegment& one, std::size_t place, std::uint8_t filling,
                                    bool& is_padded) {
        DecodingScratch scratch;
        return frames_or_damage(size, filling, [&](std::uint8_t* out) {
            is_padded = unpack_padding(format, view_segment(format, one.span()), place, count, scratch, out);
        });
    };
    std::uint32_t num_frames = 0;
    try {
        num_frames = view_verified_segment(format, padded.span()).header.num_frames;
    } catch (const DamagedSegment&) {
        num_frames = 0;
    }
    if (std::max<std::size_t>(num_frames, 8) * size > kMostFrameBytes) {
        return;
    }
    std::unique_ptr<FrameStore> store;
    if (num_frames > 0) {
        store = std::make_unique<FrameStore>(1, format, num_frames + random() % 2);
        try {
            store->restore(0, 0, span_of(segment));
        } catch (const DamagedSegment&) {
            store.reset();
        }
    }
    for (std::size_t place = 0; place < std::max<std::size_t>(num_frames, 8); ++place) {
        bool is_padded = false, is_padded_otherwise = false;
        const Frames before = padding_before(padded, place, 0x11, is_padded);
        CHECK(before == padding_before(padded_otherwise, place, 0x11, is_padded_otherwise));
        CHECK(is_padded == is_padded_otherwise);
        if (store && before && is_padded && place < num_frames) {
            const std::int32_t stream = 0, one = 1;
            const auto last = static_cast<std::int64_t>(place);
            const Frames stored = frames_or_damage(size + format.frame_bytes(), 0x11, [&](std::uint8_t* out) {
                read_windows(*store, WindowRequests{&stream, &last, &one, 1}, count + 1, StackPadding::kFirstFrame,
                             out);
            });
            CHECK(!stored || std::equal(before->begin(), before->end(), stored->begin()));
        }
    }
}

std::uint32_t one_to(std::uint32_t most, std::minstd_rand& random) {
    return static_cast<std::uint32_t>(1 + random() % most);
}

SegmentHeader header_or_a_new_one(const Bytes& segment, std::minstd_rand& random) {
    try {
        return read_header(span_of(segment));
    } catch (const DamagedSegment&) {
        const auto encoding = static_cast<Encoding>(random() % kEncodings.size());
        const EncodingRow& row = row_of(encoding);
        const std::uint32_t row_bytes = one_to(40, random);
        FrameGeometry geometry{one_to(20, random), row_bytes, std::min(row_bytes, one_to(4, random))};
        if (row.is_of_colour) {
            geometry = FrameGeometry{one_to(20, random), 3 * one_to(24, random), 3};
        } else if (row.is_of_planes) {
            geometry = FrameGeometry{3 * one_to(20, random), row_bytes, 1, true};
        }
        return SegmentHeader{encoding, one_to(8, random), one_to(5, random), geometry};
    }
}

void change_header(SegmentHeader& header, std::minstd_rand& random) {
    const EncodingRow& row = row_of(header.encoding);
    switch (random() % 5) {
        case 0:
            header.num_frames = one_to(64, random);
            return;
        case 1:
            header.group_frames = one_to(16, random);
            return;
        case 2:
            header.geometry.rows = row.is_of_planes ? 3 * one_to(20, random) : one_to(64, random);
            return;
        case 3:
            header.geometry.row_bytes = row.is_of_colour ? 3 * one_to(24, random) : one_to(64, random);
            return;
        default:
            header.geometry.pixel_bytes =
                row.is_of_colour || row.is_of_planes ? header.geometry.pixel_bytes : one_to(4, random);
    }
}

// Writes a code and a number that points to the end of the payload or of its body, where a missing bound shows.
void point_at_the_end(const SegmentHeader& header, Bytes& payload, std::minstd_rand& random) {
    const std::size_t num_codes = random() % 3;
    if (payload.size() < num_codes + 2) {
        return;
    }
    std::size_t place = random() % (payload.size() - num_codes - 1);
    if (num_codes > 0) {
        payload[place] =
            static_cast<std::uint8_t>(random() % 3 == 0 ? random() : 96 + random() % 32 + random() % 2 * 128);
    }
    if (num_codes > 1) {
        payload[place + 1] = static_cast<std::uint8_t>(random());
    }
    place += num_codes;
    const std::size_t table_bytes = random() % 4 == 0 ? 0 : 4 * header.num_groups();
    store_u16(payload.data() + place,
              static_cast<std::uint32_t>(payload.size() - table_bytes - random() % 40) & 0xFFFF);
}

void repeat_a_stretch(Bytes& payload, std::size_t max_size, std::minstd_rand& random) {
    if (payload.empty() || payload.size() >= max_size) {
        return;
    }
    const std::size_t first = random() % payload.size();
    const std::size_t length = std::min({1 + random() % 24, payload.size() - first, max_size - payload.size()});
    const Bytes stretch(payload.begin() + static_cast<std::ptrdiff_t>(first),
                        payload.begin() + static_cast<std::ptrdiff_t>(first + length));
    payload.insert(payload.begin() + static_cast<std::ptrdiff_t>(random() % payload.size()), stretch.begin(),
                   stretch.end());
}

void mutate_payload(const SegmentHeader& header, Bytes& payload, std::size_t max_size, std::minstd_rand& random) {
    switch (random() % 8) {
        case 0:
        case 1:
            point_at_the_end(header, payload, random);
            return;
        case 2:
            repeat_a_stretch(payload, max_size, random);
            return;
        default: {
            const std::size_t size = payload.size();
            payload.resize(max_size);
            payload.resize(LLVMFuzzerMutate(payload.data(), size, max_size));
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
    Bytes segment(input, input + size);
    if (has_stretches(span_of(segment))) {
        check_stretches(segment);
    }
    check_segment(segment);
    if (size >= kHeaderBytes) {
        const std::uint32_t checksum = crc32c(ByteSpan{segment.data() + kChecksumBytes, size - kChecksumBytes});
        if (load_u32(segment.data()) != checksum) {
            store_u32(segment.data(), checksum);
            check_segment(segment);
        }
    }
    return 0;
}

// Changes the payload or one field and keeps the header plausible, since most random headers are refused at once. One
// input in 32 is changed anywhere.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* input, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    std::minstd_rand random(seed);
    if (max_size < kHeaderBytes + 1 || random() % 32 == 0) {
        return LLVMFuzzerMutate(input, size, max_size);
    }
    const Bytes segment(input, input + size);
    if (has_stretches(span_of(segment))) {
        const std::size_t new_size = LLVMFuzzerMutate(input, size, max_size);
        std::copy_n(kStretchesMark, new_size < kStretchesHeaderBytes ? 0 : 4, input + kChecksumBytes);
        return new_size;
    }
    SegmentHeader header = header_or_a_new_one(segment, random);
    Bytes payload(segment.begin() + static_cast<std::ptrdiff_t>(std::min(size, kHeaderBytes)), segment.end());
    if (random() % 8 == 0) {
        change_header(header, random);
    } else {
        mutate_payload(header, payload, max_size - kHeaderBytes, random);
    }
    std::copy(payload.begin(), payload.end(), input + kHeaderBytes);
    write_header(header, input, kHeaderBytes + payload.size());
    return kHeaderBytes + payload.size();
}
