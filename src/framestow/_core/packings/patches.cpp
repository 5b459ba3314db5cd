#include "patches.hpp"

#include <algorithm>
#include <cstring>

#include "../damaged_segment.hpp"
#include "patch_decoder.hpp"

namespace framestow {
namespace {

std::size_t begin_of_group(const PatchesView& view, std::size_t group) {
    const std::size_t place = load_u32(view.group_table.bytes + group * kOffsetBytes);
    if (place > view.body.size) {
        throw DamagedSegment("group of a segment begins behind the segment's end");
    }
    return place;
}

}  // namespace

PatchesView view_patches(const SegmentHeader& header, ByteSpan payload) {
    const std::size_t table_bytes = header.num_groups() * kOffsetBytes;
    if (payload.size < table_bytes) {
        throw DamagedSegment("segment is shorter than its table of groups");
    }
    return PatchesView{ByteSpan{payload.bytes, table_bytes},
                       ByteSpan{payload.bytes + table_bytes, payload.size - table_bytes}};
}

void unpack_patches(const SegmentHeader& header, const PatchesView& view, std::size_t first, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out) {
    const FrameGeometry& geometry = header.geometry;
    const std::size_t frame_bytes = geometry.frame_bytes();
    decode_self_coded(view.body, 0, geometry, scratch.base);
    std::size_t place = 0;
    for (std::size_t index = first / header.group_frames * header.group_frames; index < first + count; ++index) {
        if (index % header.group_frames == 0) {
            place = begin_of_group(view, index / header.group_frames);
            std::memcpy(scratch.frame.frame(), scratch.base.frame(), frame_bytes);
        }
        place = apply_patch(view.body, place, geometry, scratch.base, scratch.frame);
        if (index >= first) {
            std::memcpy(out, scratch.frame.frame(), frame_bytes);
            out += frame_bytes;
        }
    }
}

PatchesWriter::PatchesWriter(const FrameGeometry& geometry, std::uint32_t group_frames)
    : geometry_(geometry), group_frames_(group_frames) {
    base_frame_.resize(geometry.frame_bytes());
    last_frame_.resize(geometry.frame_bytes());
    body_.reserve(kReadPadding);
}

void PatchesWriter::begin(const std::uint8_t* base) {
    std::memcpy(base_frame_.data(), base, geometry_.frame_bytes());
    has_base_ = true;
}

void PatchesWriter::append(const std::uint8_t* frame, PatchEncoder& encoder) {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    if (num_frames_ == 0) {
        if (!has_base_) {
            begin(frame);
        }
        repeats_.write_patch(encoder.encode_self_coded(base_frame_.data()), body_);
    }
    const bool is_anchor = num_frames_ % group_frames_ == 0;
    if (is_anchor) {
        const std::size_t position = group_table_.size();
        group_table_.resize(position + kOffsetBytes);
        store_u32(group_table_.data() + position, static_cast<std::uint32_t>(body_.size()));
    }
    const std::uint8_t* const previous = is_anchor ? base_frame_.data() : last_frame_.data();
    repeats_.write_patch(encoder.encode_patch(frame, previous, base_frame_.data()), body_);
    std::memcpy(last_frame_.data(), frame, frame_bytes);
    ++num_frames_;
    if (body_.capacity() < body_.size() + kReadPadding) {
        body_.reserve(2 * body_.size() + kReadPadding);
    }
}

void PatchesWriter::finish(SharedOperations& shared_operations) {
    if (num_frames_ > 0) {
        shared_operations.gather(body_, group_table_);
        body_.reserve(body_.size() + kReadPadding);
    }
}

void PatchesWriter::clear() {
    num_frames_ = 0;
    has_base_ = false;
    std::vector<std::uint8_t>().swap(group_table_);
    std::vector<std::uint8_t>().swap(body_);
    body_.reserve(kReadPadding);
    repeats_.clear();
}

SegmentHeader PatchesWriter::header() const {
    return SegmentHeader{PackingKind::kPatches, num_frames_, group_frames_, geometry_};
}

PatchesView PatchesWriter::view() const {
    return PatchesView{ByteSpan{group_table_.data(), group_table_.size()}, ByteSpan{body_.data(), body_.size()}};
}

void PatchesWriter::copy_payload(std::uint8_t* target) const {
    std::copy(group_table_.begin(), group_table_.end(), target);
    std::copy(body_.begin(), body_.end(), target + group_table_.size());
}

std::size_t PatchesWriter::nbytes() const {
    return group_table_.capacity() + body_.capacity() + repeats_.nbytes() + base_frame_.capacity() +
           last_frame_.capacity();
}

}  // namespace framestow
