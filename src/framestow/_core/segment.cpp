#include "segment.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "packings/patches.hpp"
#include "segment_header.hpp"

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
    if (!format.is_raw) {
        pixels_.emplace(format.pixels);
    }
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

// Reading patches takes ten times as long as copying raw frames, which is not worth a small saving.
bool is_raw_better(const PatchesWriter& patches, std::size_t raw_bytes) {
    return 4 * patches.payload_bytes() > 3 * raw_bytes;
}

// The segment that a PatchesWriter writes.
std::size_t bytes_of(const PatchesWriter& patches, const FrameGeometry& geometry) {
    const std::size_t raw_bytes = patches.num_frames() * geometry.frame_bytes();
    return kHeaderBytes + (is_raw_better(patches, raw_bytes) ? raw_bytes : patches.payload_bytes());
}

void write_patches(const PatchesWriter& patches, std::uint8_t* target, DecodingScratch& scratch) {
    SegmentHeader header = patches.header();
    const std::size_t size = bytes_of(patches, header.geometry);
    if (is_raw_better(patches, patches.num_frames() * header.geometry.frame_bytes())) {
        unpack_patches(header, patches.view(), 0, header.num_frames, scratch, target + kHeaderBytes);
        header.encoding = Encoding::kRaw;
        header.group_frames = 1;
    } else {
        patches.copy_payload(target + kHeaderBytes);
    }
    write_header(header, target, size);
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

constexpr std::size_t kFramesConverted = 16;  // at a time, so that their pixels stay in the cache

// Unpacks scaled floats: pixels become floats, and exact frames replace them. `num_before(place)` counts the exact
// frames before a place, `place_of(ordinal)` is the inverse, and the other two functions unpack either kind.
template <typename NumBefore, typename PlaceOf, typename UnpackPixels, typename UnpackExact>
void unpack_scaled(const FrameFormat& format, std::size_t first, std::size_t count, DecodingScratch& scratch,
                   std::uint8_t* out, const NumBefore& num_before, const PlaceOf& place_of,
                   const UnpackPixels& unpack_pixels, const UnpackExact& unpack_exact) {
    const std::size_t frame_bytes = format.frame_bytes();
    std::size_t ordinal = num_before(first);
    const std::size_t end = num_before(first + count);
    if (end - ordinal < count) {
        const std::size_t pixel_bytes = format.pixels.frame_bytes();
        scratch.pixels.resize(std::min(count, kFramesConverted) * pixel_bytes);
        for (std::size_t done = 0; done < count; done += kFramesConverted) {
            const std::size_t taken = std::min(kFramesConverted, count - done);
            unpack_pixels(first + done, taken, scratch.pixels.data());
            from_pixels(scratch.pixels.data(), taken * pixel_bytes, format.scaled_bytes, out + done * frame_bytes);
        }
    }
    while (ordinal < end) {
        const std::size_t place = place_of(ordinal);
        std::size_t span = 1;
        while (ordinal + span < end && place_of(ordinal + span) == place + span) {
            ++span;
        }
        if (place < first || place + span > first + count) {
            throw DamagedSegment("segment has float frames at places that do not ascend");
        }
        unpack_exact(ordinal, span, out + (place - first) * frame_bytes);
        ordinal += span;
    }
}

}  // namespace

std::size_t raw_segment_bytes(const FrameFormat& format, std::size_t num_frames) {
    return payload_begin(format) + num_frames * format.pixels.frame_bytes();
}

SegmentWriter::SegmentWriter(const FrameFormat& format) : format_(format) {
    if (!format.is_raw) {
        patches_.emplace(format.pixels, default_group_frames(format.pixels));
    }
}

void SegmentWriter::begin_stretch(const StretchStart& start, FrameEncoder& encoder) {
    if (format_.lead_ins == 0) {
        return;
    }
    if (!stretches_) {
        stretches_ = std::make_unique<Stretches>();
    }
    std::uint32_t number = 0;
    if (start.padding == StretchPadding::kLeadIns) {
        if (!stretches_->lead_ins) {
            stretches_->lead_ins = std::make_unique<SegmentWriter>(format_.of_lead_ins());
        }
        for (std::size_t frame = 0; frame < format_.lead_ins; ++frame) {
            stretches_->lead_ins->append(start.lead_ins + frame * format_.frame_bytes(), encoder);
        }
        number = stretches_->lead_ins->num_frames() / format_.lead_ins;
    }
    stretches_->table.push_back(Stretches::Entry{num_frames_, number});
}

void SegmentWriter::append(const std::uint8_t* frame, FrameEncoder& encoder) {
    if (!format_.is_scaled()) {
        append_pixels(frame, encoder);
    } else if (to_pixels(frame, format_.pixels.frame_bytes(), format_.scaled_bytes, encoder.converted())) {
        append_pixels(encoder.converted(), encoder);
    } else {
        append_exact(frame, encoder);
    }
}

void SegmentWriter::append_pixels(const std::uint8_t* pixels, FrameEncoder& encoder) {
    if (patches_) {
        patches_->append(pixels, encoder.pixels());
    } else {
        std::memcpy(raw_frame(num_frames_), pixels, format_.pixels.frame_bytes());
    }
    ++num_frames_;
}

// Repeats the pixels before it, so that these take no bytes; zeros at the beginning of a segment.
void SegmentWriter::append_exact(const std::uint8_t* frame, FrameEncoder& encoder) {
    if (!exact_) {
        exact_ = std::make_unique<ExactFrames>(format_.floats());
    }
    exact_->frames.append(frame, encoder.floats());
    exact_->places.push_back(num_frames_);
    const std::size_t pixel_bytes = format_.pixels.frame_bytes();
    if (num_frames_ == 0) {
        std::memset(encoder.converted(), 0, pixel_bytes);
    } else if (patches_) {
        patches_->copy_last_frame(encoder.converted());
    } else {
        std::memcpy(encoder.converted(), raw_frame(num_frames_ - 1), pixel_bytes);
    }
    append_pixels(encoder.converted(), encoder);
}

std::uint8_t* SegmentWriter::raw_frame(std::size_t place) const {
    return raw_segment_ + raw_segment_bytes(format_, place);
}

void SegmentWriter::finish(SharedOperations& shared_operations) {
    if (patches_) {
        patches_->finish(shared_operations);
    }
    if (exact_) {
        exact_->frames.finish(shared_operations);
    }
    if (stretches_ && stretches_->lead_ins) {
        stretches_->lead_ins->finish(shared_operations);
    }
}

void SegmentWriter::clear() {
    num_frames_ = 0;
    raw_segment_ = nullptr;
    exact_.reset();
    stretches_.reset();
    if (patches_) {
        patches_->clear();
    }
}

std::size_t SegmentWriter::pixel_segment_bytes() const {
    return patches_ ? bytes_of(*patches_, format_.pixels) : kHeaderBytes + num_frames_ * format_.pixels.frame_bytes();
}

SegmentCounts SegmentWriter::counts() const {
    SegmentCounts counts;
    counts.num_exact = static_cast<std::uint32_t>(num_exact());
    counts.num_whole = stretches_ && stretches_->lead_ins ? stretches_->lead_ins->num_frames() / format_.lead_ins : 0;
    return counts;
}

std::size_t SegmentWriter::packed_bytes() const {
    if (!stretches_) {
        return frame_segment_bytes();
    }
    return kStretchesHeaderBytes + frame_segment_bytes() + stretches_->table.size() * kStretchBytes +
           (stretches_->lead_ins ? stretches_->lead_ins->packed_bytes() : 0);
}

std::size_t SegmentWriter::frame_segment_bytes() const {
    if (!format_.is_scaled()) {
        return pixel_segment_bytes();
    }
    return kScaledHeaderBytes + pixel_segment_bytes() + num_exact() * kPlaceBytes +
           (exact_ ? bytes_of(exact_->frames, format_.floats()) : 0);
}

void SegmentWriter::write_to(std::uint8_t* target, DecodingScratch& scratch) const {
    if (!stretches_) {
        write_frames(target, scratch);
        return;
    }
    write_frames(target + kStretchesHeaderBytes, scratch);
    std::uint8_t* entry = target + kStretchesHeaderBytes + frame_segment_bytes();
    for (const Stretches::Entry& stretch : stretches_->table) {
        store_u32(entry, stretch.place);
        store_u32(entry + 4, stretch.lead_ins);
        entry += kStretchBytes;
    }
    if (stretches_->lead_ins) {
        stretches_->lead_ins->write_to(entry, scratch);
    }
    write_stretches_header(target, packed_bytes(), frame_segment_bytes(), stretches_->table.size());
}

void SegmentWriter::write_frames(std::uint8_t* target, DecodingScratch& scratch) const {
    const std::size_t pixel_bytes = pixel_segment_bytes();
    std::uint8_t* const pixels = target + (format_.is_scaled() ? kScaledHeaderBytes : 0);
    if (patches_) {
        write_patches(*patches_, pixels, scratch);
    } else {
        if (target != raw_segment_) {
            std::memcpy(pixels + kHeaderBytes, raw_frame(0), num_frames_ * format_.pixels.frame_bytes());
        }
        write_header(SegmentHeader{Encoding::kRaw, num_frames_, 1, format_.pixels}, pixels, pixel_bytes);
    }
    if (!format_.is_scaled()) {
        return;
    }
    std::uint8_t* place = pixels + pixel_bytes;
    if (exact_) {
        for (const std::uint32_t exact : exact_->places) {
            store_u32(place, exact);
            place += kPlaceBytes;
        }
        write_patches(exact_->frames, place, scratch_of_floats(scratch));
    }
    write_scaled_header(target, frame_segment_bytes(), pixel_bytes, num_exact());
}

void SegmentWriter::unpack_pixels(std::size_t first, std::size_t count, DecodingScratch& scratch,
                                  std::uint8_t* out) const {
    if (patches_) {
        unpack_patches(patches_->header(), patches_->view(), first, count, scratch, out);
    } else {
        std::memcpy(out, raw_frame(first), count * format_.pixels.frame_bytes());
    }
}

void SegmentWriter::unpack(std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const {
    if (!format_.is_scaled()) {
        unpack_pixels(first, count, scratch, out);
        return;
    }
    const auto num_before = [&](std::size_t place) -> std::size_t {
        if (!exact_) {
            return 0;
        }
        const auto& places = exact_->places;
        return static_cast<std::size_t>(std::lower_bound(places.begin(), places.end(), place) - places.begin());
    };
    unpack_scaled(
        format_, first, count, scratch, out, num_before,
        [&](std::size_t ordinal) { return std::size_t{exact_->places[ordinal]}; },
        [&](std::size_t begin, std::size_t taken, std::uint8_t* target) {
            unpack_pixels(begin, taken, scratch, target);
        },
        [&](std::size_t ordinal, std::size_t span, std::uint8_t* target) {
            const PatchesWriter& frames = exact_->frames;
            unpack_patches(frames.header(), frames.view(), ordinal, span, scratch_of_floats(scratch), target);
        });
}

namespace {

// Unpacks the last `count` frames of the lead-ins with that number, from 1 on, by unpack(first, count, out).
template <typename Unpack>
void unpack_lead_ins(const FrameFormat& format, std::size_t number, std::size_t count, std::uint8_t* out,
                     const Unpack& unpack) {
    const std::size_t frame_bytes = format.frame_bytes();
    const std::size_t taken = std::min(count, std::size_t{format.lead_ins});
    std::uint8_t* const oldest = out + (count - taken) * frame_bytes;
    unpack(number * format.lead_ins - taken, taken, oldest);
    for (std::uint8_t* older = out; older < oldest; older += frame_bytes) {
        std::memcpy(older, oldest, frame_bytes);
    }
}

}  // namespace

bool SegmentWriter::unpack_padding(std::size_t place, std::size_t count, DecodingScratch& scratch,
                                   std::uint8_t* out) const {
    if (!stretches_) {
        return false;
    }
    const auto& table = stretches_->table;
    const auto stretch =
        std::lower_bound(table.begin(), table.end(), place,
                         [](const Stretches::Entry& entry, std::size_t wanted) { return entry.place < wanted; });
    if (stretch == table.end() || stretch->place != place) {
        return false;
    }
    if (stretch->lead_ins == 0) {
        std::memset(out, 0, count * format_.frame_bytes());
    } else {
        unpack_lead_ins(format_, stretch->lead_ins, count, out,
                        [&](std::size_t first, std::size_t taken, std::uint8_t* target) {
                            stretches_->lead_ins->unpack(first, taken, scratch, target);
                        });
    }
    return true;
}

std::size_t SegmentWriter::nbytes() const {
    std::size_t total = patches_ ? patches_->nbytes() : 0;
    if (exact_) {
        total += exact_->places.capacity() * sizeof(std::uint32_t) + exact_->frames.nbytes();
    }
    if (stretches_) {
        total += sizeof(Stretches) + stretches_->table.capacity() * sizeof(Stretches::Entry) +
                 (stretches_->lead_ins ? sizeof(SegmentWriter) + stretches_->lead_ins->nbytes() : 0);
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
    view.segment = segment;
    if (format.lead_ins > 0 && has_stretches(segment)) {
        view.stretches = stretch_table(segment);
        view.segment = view.stretches.frames;
    }
    if (format.is_scaled()) {
        view.scaled = scaled_parts(view.segment);
        view.segment = view.scaled.pixels;
    }
    view.header = read(view.segment);
    check_geometry_of(view.header, format.pixels);
    if (view.scaled.num_exact > 0) {
        view.exact_header = read(view.scaled.exact);
        check_geometry_of(view.exact_header, format.floats());
    }
    if (view.exact_header.num_frames != view.scaled.num_exact) {
        throw DamagedSegment("segment has " + std::to_string(view.exact_header.num_frames) + " float frames and " +
                             std::to_string(view.scaled.num_exact) + " places: it must have one per place");
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
    const std::size_t num_exact = view.scaled.num_exact;
    for (std::size_t ordinal = 0; ordinal < num_exact; ++ordinal) {
        const std::size_t next = ordinal + 1 < num_exact ? view.scaled.place(ordinal + 1) : view.header.num_frames;
        if (view.scaled.place(ordinal) >= next) {
            throw DamagedSegment("segment has a float frame at place " + std::to_string(view.scaled.place(ordinal)) +
                                 ": places must be ascending and below " + std::to_string(view.header.num_frames));
        }
    }
    check_stretches(format, view);
    return view;
}

void unpack_frames(const FrameFormat& format, const SegmentView& view, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    if (!format.is_scaled()) {
        unpack_frames(view.header, view.segment, first, count, scratch, out);
        return;
    }
    unpack_scaled(
        format, first, count, scratch, out, [&](std::size_t place) { return view.scaled.num_exact_before(place); },
        [&](std::size_t ordinal) { return view.scaled.place(ordinal); },
        [&](std::size_t begin, std::size_t taken, std::uint8_t* target) {
            unpack_frames(view.header, view.segment, begin, taken, scratch, target);
        },
        [&](std::size_t ordinal, std::size_t span, std::uint8_t* target) {
            unpack_frames(view.exact_header, view.scaled.exact, ordinal, span, scratch_of_floats(scratch), target);
        });
}

void unpack_frames(const SegmentHeader& header, ByteSpan padded_segment, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    row_of(header.encoding).unpack(header, payload_of(padded_segment), first, count, scratch, out);
}

bool unpack_padding(const FrameFormat& format, const SegmentView& view, std::size_t place, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out) {
    const std::size_t stretch = view.stretches.find(place);
    if (stretch == view.stretches.num_stretches) {
        return false;
    }
    const std::size_t number = view.stretches.lead_ins_of(stretch);
    if (number == 0) {
        std::memset(out, 0, count * format.frame_bytes());
        return true;
    }
    const FrameFormat lead_in_format = format.of_lead_ins();
    const SegmentView lead_ins = view_segment(lead_in_format, view.stretches.lead_ins);
    if (std::uint64_t{number} * format.lead_ins > lead_ins.header.num_frames) {
        throw DamagedSegment("segment has " + std::to_string(lead_ins.header.num_frames) + " lead-ins: stretch " +
                             std::to_string(stretch) + " needs more");
    }
    unpack_lead_ins(format, number, count, out, [&](std::size_t first, std::size_t taken, std::uint8_t* target) {
        unpack_frames(lead_in_format, lead_ins, first, taken, scratch, target);
    });
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
    SegmentWriter writer(geometry);
    for (std::size_t index = 0; index < num_frames; ++index) {
        writer.append(frames + index * geometry.frame_bytes(), encoder);
    }
    SharedOperations shared_operations;
    writer.finish(shared_operations);
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
    std::vector<std::uint8_t> pixels =
        pack_segment(format.pixels, payload_of(view.segment).bytes, view.header.num_frames);
    if (!format.is_scaled()) {
        return pixels;
    }
    const std::size_t pixel_bytes = pixels.size();
    pixels.insert(pixels.begin(), kScaledHeaderBytes, std::uint8_t{0});
    pixels.insert(pixels.end(), view.scaled.places, raw_segment.bytes + raw_segment.size);
    write_scaled_header(pixels.data(), pixels.size(), pixel_bytes, view.scaled.num_exact);
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
    unpack_frames(header, ByteSpan{padded.data(), segment.size}, 0, num_frames, scratch, out);
}

SegmentHeader verify_segment(ByteSpan segment) {
    verify_checksum(segment);
    return read_header(segment);
}

}  // namespace framestow
