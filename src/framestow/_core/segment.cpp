#include "segment.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "packings/raw_frames.hpp"

namespace framestow {
namespace {

constexpr std::uint32_t kSegmentFrames = 320;
constexpr std::uint32_t kGroupFrames = 4;
constexpr std::size_t kMinRawSegmentBytes = 16384;                       // header and index stay far below 1 % of this
constexpr std::size_t kMaxUsualRawBytes = std::size_t{8} * 1024 * 1024;  // large frames: smaller segments
constexpr std::uint32_t kFewFrames = 8;
constexpr std::uint64_t kMaxRawSegmentBytes = std::uint64_t{1} << 31;  // offsets within a segment have 32 bits

}  // namespace

std::uint32_t default_frames_per_segment(const FrameGeometry& geometry) {
    const std::size_t frame_bytes = geometry.frame_bytes();
    const std::uint64_t enough = (kMinRawSegmentBytes + frame_bytes - 1) / frame_bytes;
    const std::uint64_t few = std::max<std::uint64_t>(kMaxUsualRawBytes / frame_bytes, kFewFrames);
    const std::uint64_t most = kMaxRawSegmentBytes / frame_bytes;
    return static_cast<std::uint32_t>(std::min({most, few, std::max<std::uint64_t>(kSegmentFrames, enough)}));
}

std::uint32_t default_group_frames(const FrameGeometry& geometry) {
    return std::max(kGroupFrames, default_frames_per_segment(geometry) / kSegmentFrames * kGroupFrames);
}

void check_segment_frames(const FrameGeometry& geometry, std::uint64_t num_frames) {
    if (num_frames == 0 || num_frames > kMaxSegmentFrames) {
        throw std::invalid_argument("a segment of " + std::to_string(num_frames) + " frames: it must have 1 to 2**24");
    }
    if (num_frames * geometry.frame_bytes() > kMaxRawSegmentBytes) {
        throw std::invalid_argument("a segment of " + std::to_string(num_frames) + " frames of " +
                                    std::to_string(geometry.frame_bytes()) +
                                    " bytes: it must have at most 2**31 bytes; take fewer frames");
    }
}

void check_segment_frames(const FrameFormat& format, std::uint64_t num_frames) {
    const FrameGeometry frames = format.is_scaled() ? format.floats() : format.pixels;
    check_segment_frames(frames, num_frames);
    const std::uint64_t num_lead_ins = num_frames * format.lead_ins;
    if (num_lead_ins > kMaxSegmentFrames || num_lead_ins * frames.frame_bytes() > kMaxRawSegmentBytes) {
        throw std::invalid_argument("a segment of " + std::to_string(num_frames) + " frames of " +
                                    std::to_string(frames.frame_bytes()) + " bytes in stacks of " +
                                    std::to_string(format.lead_ins + 1) +
                                    ": the older frames of all stacks must be at most 2**24 frames and 2**31 bytes; "
                                    "take fewer frames");
    }
}

FrameEncoder::FrameEncoder(const FrameFormat& format) : format_(format) {
    if (format.is_scaled()) {
        converted_.resize(format.pixels.frame_bytes());
    }
}

PatchEncoder& FrameEncoder::pixels() {
    if (!pixels_) {
        pixels_.emplace(format_.pixels);
    }
    return *pixels_;
}

PatchEncoder& FrameEncoder::floats() {
    if (!floats_) {
        floats_.emplace(format_.floats());
    }
    return *floats_;
}

std::size_t FrameEncoder::nbytes() const {
    return (pixels_ ? pixels_->nbytes() : 0) + (floats_ ? floats_->nbytes() : 0) + converted_.capacity();
}

namespace {

std::size_t raw_bytes_of(const SegmentHeader& header) { return header.num_frames * header.geometry.frame_bytes(); }

// Reading patches takes ten times as long as copying raw frames, which is not worth a small saving.
bool is_raw_better(std::size_t payload_bytes, std::size_t raw_bytes) { return 4 * payload_bytes > 3 * raw_bytes; }

// The segment that write_segment() writes.
std::size_t segment_bytes_of(const PayloadWriter& frames) {
    const std::size_t payload_bytes = frames.payload().size(), raw_bytes = raw_bytes_of(frames.header());
    return kHeaderBytes + (is_raw_better(payload_bytes, raw_bytes) ? raw_bytes : payload_bytes);
}

void write_segment(const PayloadWriter& frames, std::uint8_t* target, DecodingScratch& scratch) {
    SegmentHeader header = frames.header();
    const Payload payload = frames.payload();
    std::uint8_t* const begin = target + kHeaderBytes;
    if (!is_raw_better(payload.size(), raw_bytes_of(header))) {
        std::copy_n(payload.table.bytes, payload.table.size, begin);
        std::copy_n(payload.body.bytes, payload.body.size, begin + payload.table.size);
    } else if (payload.body.bytes != begin) {  // raw frames may be there already
        unpack_frames(header, payload, 0, header.num_frames, scratch, begin);
        header.encoding = Encoding::kRaw;
        header.group_frames = 1;
    }
    write_header(header, target, segment_bytes_of(frames));
}

std::size_t payload_begin(const FrameFormat& format) {
    return kHeaderBytes + (format.is_scaled() ? kScaledHeaderBytes : 0);
}

DecodingScratch& scratch_of_floats(DecodingScratch& scratch) {
    if (!scratch.floats) {
        scratch.floats = std::make_unique<DecodingScratch>();
    }
    return *scratch.floats;
}

}  // namespace

std::size_t raw_segment_bytes(const FrameFormat& format, std::size_t num_frames) {
    return payload_begin(format) + num_frames * format.pixels.frame_bytes();
}

SegmentWriter::SegmentWriter(const FrameFormat& format, FrameEncoder& encoder) : format_(format), encoder_(encoder) {
    if (format.is_raw) {
        pixels_ = std::make_unique<RawWriter>(format.pixels);
    } else {
        pixels_ = std::make_unique<PatchesWriter>(format.pixels, default_group_frames(format.pixels), encoder.pixels());
    }
}

void SegmentWriter::begin_raw(std::uint8_t* segment) { pixels_->begin_in_place(segment + payload_begin(format_)); }

void SegmentWriter::begin_stretch(const StretchStart& start) {
    if (format_.lead_ins == 0) {
        return;
    }
    if (!stretches_) {
        stretches_ = std::make_unique<Stretches>();
    }
    std::uint32_t number = 0;  // of its lead-ins, from 1 on; 0: zeros
    if (start.padding == StretchPadding::kLeadIns) {
        if (!stretches_->lead_ins) {
            stretches_->lead_ins = std::make_unique<SegmentWriter>(format_.of_lead_ins(), encoder_);
        }
        for (std::size_t frame = 0; frame < format_.lead_ins; ++frame) {
            stretches_->lead_ins->append(start.lead_ins + frame * format_.frame_bytes());
        }
        number = stretches_->lead_ins->num_frames() / format_.lead_ins;
    }
    append_u32(stretches_->entries, num_frames_);
    append_u32(stretches_->entries, number);
}

void SegmentWriter::append(const std::uint8_t* frame) {
    if (!format_.is_scaled()) {
        append_pixels(frame);
    } else if (to_pixels(frame, format_.pixels.frame_bytes(), format_.scaled_bytes, encoder_.converted())) {
        append_pixels(encoder_.converted());
    } else {
        append_exact(frame);
    }
}

void SegmentWriter::append_pixels(const std::uint8_t* pixels) {
    pixels_->append(pixels);
    ++num_frames_;
}

// Repeats the pixels before it, so that these take no bytes; zeros at the beginning of a segment.
void SegmentWriter::append_exact(const std::uint8_t* frame) {
    if (!exact_) {
        exact_ = std::make_unique<ExactFrames>(format_.floats(), encoder_.floats());
    }
    exact_->frames.append(frame);
    append_u32(exact_->places, num_frames_);
    if (num_frames_ == 0) {
        std::memset(encoder_.converted(), 0, format_.pixels.frame_bytes());
    } else {
        pixels_->copy_last_frame(encoder_.converted());
    }
    append_pixels(encoder_.converted());
}

void SegmentWriter::finish() {
    pixels_->finish();
    if (exact_) {
        exact_->frames.finish();
    }
    if (stretches_ && stretches_->lead_ins) {
        stretches_->lead_ins->finish();
    }
}

void SegmentWriter::clear() {
    num_frames_ = 0;
    pixels_->clear();
    exact_.reset();
    stretches_.reset();
}

SegmentCounts SegmentWriter::counts() const {
    SegmentCounts counts;
    counts.num_exact = exact_ ? exact_->frames.header().num_frames : 0;
    counts.num_whole = stretches_ && stretches_->lead_ins ? stretches_->lead_ins->num_frames() / format_.lead_ins : 0;
    return counts;
}

std::size_t SegmentWriter::packed_bytes() const {
    if (!stretches_) {
        return frame_segment_bytes();
    }
    return kStretchesHeaderBytes + frame_segment_bytes() + stretches_->entries.size() +
           (stretches_->lead_ins ? stretches_->lead_ins->packed_bytes() : 0);
}

std::size_t SegmentWriter::frame_segment_bytes() const {
    return segment_bytes_of(*pixels_) + (format_.is_scaled() ? kScaledHeaderBytes : 0) +
           (exact_ ? exact_->places.size() + segment_bytes_of(exact_->frames) : 0);
}

void SegmentWriter::write_to(std::uint8_t* target, DecodingScratch& scratch) const {
    if (!stretches_) {
        write_frames(target, scratch);
        return;
    }
    const std::vector<std::uint8_t>& entries = stretches_->entries;
    write_frames(target + kStretchesHeaderBytes, scratch);
    std::uint8_t* const end =
        std::copy(entries.begin(), entries.end(), target + kStretchesHeaderBytes + frame_segment_bytes());
    if (stretches_->lead_ins) {
        stretches_->lead_ins->write_to(end, scratch);
    }
    write_stretches_header(target, packed_bytes(), frame_segment_bytes(), entries.size() / kStretchBytes);
}

void SegmentWriter::write_frames(std::uint8_t* target, DecodingScratch& scratch) const {
    if (!format_.is_scaled()) {
        write_segment(*pixels_, target, scratch);
        return;
    }
    const std::size_t pixel_bytes = segment_bytes_of(*pixels_);
    write_segment(*pixels_, target + kScaledHeaderBytes, scratch);
    if (exact_) {
        std::uint8_t* const end =
            std::copy(exact_->places.begin(), exact_->places.end(), target + kScaledHeaderBytes + pixel_bytes);
        write_segment(exact_->frames, end, scratch_of_floats(scratch));
    }
    write_scaled_header(target, frame_segment_bytes(), pixel_bytes, counts().num_exact);
}

SegmentView SegmentWriter::view() const {
    SegmentView view;
    view.header = pixels_->header();
    view.payload = pixels_->payload();
    if (exact_) {
        view.exact = ExactPlaces{exact_->places.data(), exact_->places.size() / kPlaceBytes};
        view.exact_header = exact_->frames.header();
        view.exact_payload = exact_->frames.payload();
    }
    if (stretches_) {
        view.stretches.entries = stretches_->entries.data();
        view.stretches.num_stretches = stretches_->entries.size() / kStretchBytes;
        view.open_lead_ins = stretches_->lead_ins.get();
    }
    return view;
}

std::size_t SegmentWriter::nbytes() const {
    std::size_t total = pixels_->nbytes();
    if (exact_) {
        total += exact_->places.capacity() + exact_->frames.nbytes();
    }
    if (stretches_) {
        total +=
            sizeof(Stretches) + stretches_->entries.capacity() +
            (stretches_->lead_ins ? sizeof(SegmentWriter) + kPixelWriterBytes + stretches_->lead_ins->nbytes() : 0);
    }
    return total;
}

namespace {

void check_geometry_of(const SegmentHeader& header, const FrameGeometry& geometry) {
    if (header.geometry != geometry) {
        throw DamagedSegment("its header belongs to other frames: expected " + geometry.text() + ", not " +
                             header.geometry.text());
    }
}

template <typename ReadHeader>
SegmentView viewed(const FrameFormat& format, ByteSpan segment, const ReadHeader& read) {
    SegmentView view;
    ScaledParts parts{segment, {}, {}};
    if (format.lead_ins > 0 && has_stretches(segment)) {
        view.stretches = stretch_table(segment);
        parts.pixels = view.stretches.frames;
    }
    if (format.is_scaled()) {
        parts = scaled_parts(parts.pixels);
        view.exact = parts.places;
    }
    view.header = read(parts.pixels);
    check_geometry_of(view.header, format.pixels);
    view.payload = payload_of(view.header, parts.pixels);
    if (view.exact.count > 0) {
        view.exact_header = read(parts.exact);
        check_geometry_of(view.exact_header, format.floats());
        view.exact_payload = payload_of(view.exact_header, parts.exact);
    }
    if (view.exact_header.num_frames != view.exact.count) {
        throw DamagedSegment("segment has " + std::to_string(view.exact_header.num_frames) + " float frames and " +
                             std::to_string(view.exact.count) + " places: it must have one per place");
    }
    return view;
}

void check_stretches(const FrameFormat& format, const SegmentView& view) {
    const StretchTable& stretches = view.stretches;
    std::size_t num_given = 0;
    for (std::size_t stretch = 0; stretch < stretches.num_stretches; ++stretch) {
        const std::size_t next =
            stretch + 1 < stretches.num_stretches ? stretches.place(stretch + 1) : view.header.num_frames;
        if (stretches.place(stretch) >= next) {
            throw DamagedSegment("segment has a stretch at place " + std::to_string(stretches.place(stretch)) +
                                 ": places must be ascending and below " + std::to_string(view.header.num_frames));
        }
        if (stretches.lead_ins_of(stretch) != 0 && stretches.lead_ins_of(stretch) != ++num_given) {
            throw DamagedSegment("segment has a stretch with the lead-ins " +
                                 std::to_string(stretches.lead_ins_of(stretch)) + ": expected " +
                                 std::to_string(num_given));
        }
    }
    const std::size_t num_frames =
        num_given == 0 && stretches.lead_ins.size == 0
            ? 0
            : view_verified_segment(format.of_lead_ins(), stretches.lead_ins).header.num_frames;
    if (num_frames != num_given * format.lead_ins) {
        throw DamagedSegment("segment has " + std::to_string(num_frames) + " lead-ins: expected " +
                             std::to_string(format.lead_ins) + " for each of " + std::to_string(num_given) +
                             " stretches");
    }
}

}  // namespace

SegmentView view_segment(const FrameFormat& format, ByteSpan segment) { return viewed(format, segment, read_header); }

SegmentView view_verified_segment(const FrameFormat& format, ByteSpan segment) {
    ByteSpan frames = segment;
    if (format.lead_ins > 0 && has_stretches(segment)) {
        verify_checksum(segment);
        frames = stretch_table(segment).frames;
    }
    if (format.is_scaled()) {
        verify_checksum(frames);
    }
    const SegmentView view = viewed(format, segment, verify_segment);
    const ExactPlaces& exact = view.exact;
    for (std::size_t ordinal = 0; ordinal < exact.count; ++ordinal) {
        const std::size_t next = ordinal + 1 < exact.count ? exact.place(ordinal + 1) : view.header.num_frames;
        if (exact.place(ordinal) >= next) {
            throw DamagedSegment("segment has a float frame at place " + std::to_string(exact.place(ordinal)) +
                                 ": places must be ascending and below " + std::to_string(view.header.num_frames));
        }
    }
    check_stretches(format, view);
    return view;
}

namespace {

constexpr std::size_t kFramesConverted = 16;  // at a time, so that their pixels stay in the cache

// Pixels become floats, and exact frames replace them.
void unpack_scaled(const FrameFormat& format, const SegmentView& view, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    const std::size_t frame_bytes = format.frame_bytes();
    std::size_t ordinal = view.exact.num_before(first);
    const std::size_t end = view.exact.num_before(first + count);
    if (end - ordinal < count) {
        const std::size_t pixel_bytes = format.pixels.frame_bytes();
        scratch.pixels.resize(std::min(count, kFramesConverted) * pixel_bytes);
        for (std::size_t done = 0; done < count; done += kFramesConverted) {
            const std::size_t taken = std::min(kFramesConverted, count - done);
            unpack_frames(view.header, view.payload, first + done, taken, scratch, scratch.pixels.data());
            from_pixels(scratch.pixels.data(), taken * pixel_bytes, format.scaled_bytes, out + done * frame_bytes);
        }
    }
    while (ordinal < end) {
        const std::size_t place = view.exact.place(ordinal);
        std::size_t span = 1;
        while (ordinal + span < end && view.exact.place(ordinal + span) == place + span) {
            ++span;
        }
        if (place < first || place + span > first + count) {
            throw DamagedSegment("segment has float frames at places that do not ascend");
        }
        unpack_frames(view.exact_header, view.exact_payload, ordinal, span, scratch_of_floats(scratch),
                      out + (place - first) * frame_bytes);
        ordinal += span;
    }
}

}  // namespace

void unpack_frames(const FrameFormat& format, const SegmentView& view, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    if (format.is_scaled()) {
        unpack_scaled(format, view, first, count, scratch, out);
    } else {
        unpack_frames(view.header, view.payload, first, count, scratch, out);
    }
}

void unpack_frames(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    row_of(header.encoding).unpack(header, payload, first, count, scratch, out);
}

bool unpack_padding(const FrameFormat& format, const SegmentView& view, std::size_t place, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out) {
    const std::size_t stretch = view.stretches.find(place);
    if (stretch == view.stretches.num_stretches) {
        return false;
    }
    const std::size_t frame_bytes = format.frame_bytes();
    const std::size_t number = view.stretches.lead_ins_of(stretch);
    if (number == 0) {
        std::memset(out, 0, count * frame_bytes);
        return true;
    }
    const FrameFormat lead_in_format = format.of_lead_ins();
    const SegmentView lead_ins = view.open_lead_ins != nullptr ? view.open_lead_ins->view()
                                                               : view_segment(lead_in_format, view.stretches.lead_ins);
    const std::uint64_t end = std::uint64_t{number} * format.lead_ins;
    if (end > lead_ins.header.num_frames) {
        throw DamagedSegment("segment has " + std::to_string(lead_ins.header.num_frames) + " lead-ins: stretch " +
                             std::to_string(stretch) + " needs more");
    }
    const std::size_t taken = std::min(count, std::size_t{format.lead_ins});
    std::uint8_t* const oldest = out + (count - taken) * frame_bytes;
    unpack_frames(lead_in_format, lead_ins, static_cast<std::size_t>(end) - taken, taken, scratch, oldest);
    for (std::uint8_t* older = out; older < oldest; older += frame_bytes) {
        std::memcpy(older, oldest, frame_bytes);
    }
    return true;
}

SegmentCounts counts_of(const FrameFormat& format, ByteSpan segment) {
    SegmentCounts counts;
    if (format.is_scaled()) {
        const std::size_t num_exact = num_exact_of(format.lead_ins > 0 ? without_stretches(segment) : segment);
        counts.num_exact = static_cast<std::uint32_t>(num_exact);
    }
    if (format.lead_ins > 0 && has_stretches(segment)) {
        counts.num_whole = static_cast<std::uint32_t>(stretch_table(segment).num_with_lead_ins());
    }
    return counts;
}

std::vector<std::uint8_t> pack_segment(const FrameGeometry& geometry, const std::uint8_t* frames,
                                       std::uint32_t num_frames) {
    FrameEncoder encoder(geometry);
    SegmentWriter writer(geometry, encoder);
    for (std::size_t index = 0; index < num_frames; ++index) {
        writer.append(frames + index * geometry.frame_bytes());
    }
    writer.finish();
    DecodingScratch scratch;
    std::vector<std::uint8_t> segment(writer.packed_bytes());
    writer.write_to(segment.data(), scratch);
    return segment;
}

std::vector<std::uint8_t> packed_segment(const FrameFormat& format, ByteSpan raw_segment) {
    if (format.lead_ins > 0 && has_stretches(raw_segment)) {
        const StretchTable stretches = stretch_table(raw_segment);
        std::vector<std::uint8_t> segment = packed_segment(format, stretches.frames);
        const std::size_t frame_segment_bytes = segment.size();
        segment.insert(segment.begin(), kStretchesHeaderBytes, std::uint8_t{0});
        segment.insert(segment.end(), stretches.entries, raw_segment.bytes + raw_segment.size);
        write_stretches_header(segment.data(), segment.size(), frame_segment_bytes, stretches.num_stretches);
        return segment;
    }
    const SegmentView view = view_segment(format, raw_segment);
    std::vector<std::uint8_t> pixels = pack_segment(format.pixels, view.payload.body.bytes, view.header.num_frames);
    if (!format.is_scaled()) {
        return pixels;
    }
    const std::size_t pixel_bytes = pixels.size();
    pixels.insert(pixels.begin(), kScaledHeaderBytes, std::uint8_t{0});
    pixels.insert(pixels.end(), view.exact.places, raw_segment.bytes + raw_segment.size);
    write_scaled_header(pixels.data(), pixels.size(), pixel_bytes, view.exact.count);
    return pixels;
}

void unpack_segment(ByteSpan segment, const FrameGeometry& geometry, std::size_t num_frames, std::uint8_t* out) {
    const SegmentHeader header = verify_segment(segment);
    if (header.geometry != geometry || header.num_frames != num_frames) {
        throw DamagedSegment("segment has " + std::to_string(header.num_frames) + " frames of " +
                             header.geometry.text() + ": expected " + std::to_string(num_frames) + " of " +
                             geometry.text());
    }
    std::vector<std::uint8_t> padded(segment.size + kReadPadding);
    std::memcpy(padded.data(), segment.bytes, segment.size);
    DecodingScratch scratch;
    unpack_frames(header, payload_of(header, ByteSpan{padded.data(), segment.size}), 0, num_frames, scratch, out);
}

SegmentHeader verify_segment(ByteSpan segment) {
    verify_checksum(segment);
    return read_header(segment);
}

}  // namespace framestow
