#include "segment.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "segment_header.hpp"
#include "packings/patches.hpp"

namespace framestow {
namespace {

constexpr std::uint32_t kSegmentFrames = 320;
constexpr std::uint32_t kGroupFrames = 5;
constexpr std::size_t kMinRawSegmentBytes = 16384;  // header and index stay far below 1 % of this
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
        throw std::invalid_argument("a segment of " + std::to_string(num_frames) + " frames: must be 1 to 2**24");
    }
    if (num_frames * geometry.frame_bytes() > kMaxRawSegmentBytes) {
        throw std::invalid_argument("a segment of " + std::to_string(num_frames) + " frames of " +
                                    std::to_string(geometry.frame_bytes()) +
                                    " bytes: must be at most 2**31 bytes; take fewer frames");
    }
}

// Reading patches takes ten times as long as copying raw frames, which is not worth a small saving.
bool SegmentWriter::is_raw_better() const { return 4 * patches_.payload_bytes() > 3 * raw_bytes(); }

std::size_t SegmentWriter::raw_bytes() const { return patches_.num_frames() * geometry_.frame_bytes(); }

std::size_t SegmentWriter::packed_bytes() const {
    return kHeaderBytes + (is_raw_better() ? raw_bytes() : patches_.payload_bytes());
}

void SegmentWriter::write_to(std::uint8_t* target, DecodingScratch& scratch) const {
    SegmentHeader header = patches_.header();
    if (is_raw_better()) {
        header.packing = PackingKind::kRaw;
        header.group_frames = 1;
        unpack(0, num_frames(), scratch, target + kHeaderBytes);
    } else {
        patches_.copy_payload(target + kHeaderBytes);
    }
    write_header(header, target, packed_bytes());
}

void SegmentWriter::unpack(std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const {
    unpack_patches(patches_.header(), patches_.view(), first, count, scratch, out);
}

void unpack_frames(const SegmentHeader& header, ByteSpan padded_segment, std::size_t first, std::size_t count,
                   DecodingScratch& scratch, std::uint8_t* out) {
    const ByteSpan payload = payload_of(padded_segment);
    switch (header.packing) {
        case PackingKind::kRaw:
            unpack_raw(header, payload, first, count, out);
            return;
        case PackingKind::kPatches:
            unpack_patches(header, view_patches(header, payload), first, count, scratch, out);
            return;
    }
}

std::vector<std::uint8_t> pack_segment(const FrameGeometry& geometry, const std::uint8_t* frames,
                                       std::uint32_t num_frames) {
    PatchEncoder encoder(geometry);
    SegmentWriter writer(geometry);
    for (std::size_t index = 0; index < num_frames; ++index) {
        writer.append(frames + index * geometry.frame_bytes(), encoder);
    }
    SharedOperations shared_operations;
    writer.finish(shared_operations);
    DecodingScratch scratch;
    scratch.resize(geometry);
    std::vector<std::uint8_t> segment(writer.packed_bytes());
    writer.write_to(segment.data(), scratch);
    return segment;
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
    scratch.resize(geometry);
    unpack_frames(header, ByteSpan{padded.data(), segment.size}, 0, num_frames, scratch, out);
}

SegmentHeader verify_segment(ByteSpan segment) {
    verify_checksum(segment);
    return read_header(segment);
}

}  // namespace framestow
