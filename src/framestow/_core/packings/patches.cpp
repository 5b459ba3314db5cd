#include "patches.hpp"

#include <algorithm>
#include <cstring>

#include "../segment_header.hpp"
#include "colour_planes.hpp"
#include "patch_decoder.hpp"
#include "shared_operations.hpp"

namespace framestow {

namespace {

constexpr std::uint8_t kMostVotes = 255;

// In blocks whose differences a byte can count, so that the compiler compares many bytes at once. Counts one block of
// `every`, and `every` times its differences; bytes after the last whole block always.
std::size_t count_differing(const std::uint8_t* a, const std::uint8_t* b, std::size_t size, std::size_t every = 1) {
    constexpr std::size_t block = 192;
    std::size_t total = 0;
    std::size_t position = 0;
    for (; position + every * block <= size; position += every * block) {
        std::uint8_t count = 0;
        for (std::size_t index = 0; index < block; ++index) {
            count = static_cast<std::uint8_t>(count + (a[position + index] != b[position + index] ? 1 : 0));
        }
        total += every * count;
    }
    for (; position < size; ++position) {
        total += a[position] != b[position] ? 1 : 0;
    }
    return total;
}

}  // namespace

Background::Background(std::size_t frame_bytes) : candidate_(frame_bytes), votes_(frame_bytes), first_(frame_bytes) {}

void Background::clear() {
    std::fill(votes_.begin(), votes_.end(), std::uint8_t{0});
    num_frames_ = 0;
    differing_ = 0;
    differing_from_first_ = 0;
}

void Background::add_frame(const std::uint8_t* frame) {
    const std::size_t size = candidate_.size();
    if (num_frames_++ == 0) {
        std::copy(frame, frame + size, first_.data());
        std::copy(frame, frame + size, candidate_.data());
    }
    differing_ += count_differing(frame, candidate_.data(), size);
    differing_from_first_ += count_differing(frame, first_.data(), size);
    std::uint8_t* const candidate = candidate_.data();
    std::uint8_t* const votes = votes_.data();
    for (std::size_t index = 0; index < size; ++index) {  // by masks, since a compiler vectorizes no branches
        const std::uint8_t value = frame[index], old = candidate[index], num_votes = votes[index];
        const std::uint8_t open = num_votes == 0 ? 0xFF : 0;
        const std::uint8_t change = open != 0 || old == value ? 1 : 0xFF;  // 0xFF: -1
        const std::uint8_t most = num_votes == kMostVotes && change == 1 ? 1 : 0;
        candidate[index] = static_cast<std::uint8_t>((value & open) | (old & ~open));
        votes[index] = static_cast<std::uint8_t>(num_votes + change - most);
    }
}

bool Background::serves_better_than_first() const { return 20 * differing_ < 17 * differing_from_first_; }

namespace {

constexpr std::size_t kLinesAPatch = 16;  // prefetched of the next window, per patch of this one

std::size_t begin_of_group(const Payload& payload, std::size_t group) {
    const std::size_t place = load_u32(payload.table.bytes + group * kOffsetBytes);
    if (place > payload.body.size) {
        throw DamagedSegment("group of a segment begins behind the segment's end");
    }
    return place;
}

// Returns the frame that the anchor of `group` gives. Throws DamagedSegment if this anchor has a reference itself.
const FrameBuffer& reference_frame(const SegmentHeader& header, const Payload& payload, std::size_t group,
                                   DecodingScratch& scratch) {
    const std::size_t num_slots = scratch.references.size();
    for (std::size_t slot = 0; slot < std::min(scratch.num_references, num_slots); ++slot) {
        if (scratch.references[slot].group == group) {
            return scratch.references[slot].frame;
        }
    }
    if (group >= header.num_groups()) {
        throw DamagedSegment("patch refers to a group that is not there");
    }
    ReferenceFrame& reference = scratch.references[scratch.num_references % num_slots];
    reference.frame.resize(header.geometry);
    std::memcpy(reference.frame.frame(), scratch.base.frame(), header.geometry.frame_bytes());
    apply_patch(header, payload.body, begin_of_group(payload, group), scratch.base, reference.frame);
    reference.group = group;
    ++scratch.num_references;
    return reference.frame;
}

}  // namespace

SegmentHeader as_pixels(const SegmentHeader& header) {
    SegmentHeader joined = header;
    if (header.encoding == Encoding::kPlanarPatches) {
        joined.encoding = Encoding::kPixelPatches;
        joined.geometry = header.geometry.joined();
    }
    return joined;
}

// Continues where `scratch.up_to` says, if that leads to the frames.
void unpack_patches(const SegmentHeader& given, const Payload& payload, std::size_t first, std::size_t count,
                    DecodingScratch& scratch, std::uint8_t* out) {
    if (payload.table.size < given.num_groups() * kOffsetBytes) {
        throw DamagedSegment("segment is shorter than its table of groups");
    }
    const SegmentHeader header = as_pixels(given);
    const std::size_t frame_bytes = header.geometry.frame_bytes();
    scratch.base.resize(header.geometry);
    scratch.frame.resize(header.geometry);
    std::size_t index = first / header.group_frames * header.group_frames;
    std::size_t place = 0;
    const UnpackedUpTo before = scratch.up_to.value_or(UnpackedUpTo{});
    if (scratch.up_to) {
        scratch.up_to->body = nullptr;  // until all frames are unpacked
    }
    if (before.body != payload.body.bytes) {
        decode_self_coded(header, payload.body, 0, scratch.base);
        scratch.num_references = 0;
    } else if (before.next > index && before.next <= first) {
        index = before.next;
        place = before.place;
    }
    for (; index < first + count; ++index) {
        const bool is_anchor = index % header.group_frames == 0;
        const FrameBuffer* patched = is_anchor ? &scratch.base : &scratch.frame;
        if (is_anchor) {
            place = begin_of_group(payload, index / header.group_frames);
        }
        if (place < payload.body.size && payload.body.bytes[place] == patch_format::kReference) {
            patched = &reference_frame(header, payload, payload.body.bytes[place + 1], scratch);
            place += patch_format::kReferenceBytes;
        }
        if (patched != &scratch.frame) {
            std::memcpy(scratch.frame.frame(), patched->frame(), frame_bytes);
        }
        scratch.next_window.request(kLinesAPatch);
        place = apply_patch(header, payload.body, place, scratch.base, scratch.frame);
        if (index >= first) {
            if (given.encoding == Encoding::kPlanarPatches) {
                split_planes(scratch.frame.frame(), frame_bytes / 3, out);
            } else {
                scratch.copy_out(out, scratch.frame.frame(), frame_bytes);
            }
            out += frame_bytes;
        }
    }
    if (scratch.up_to) {
        scratch.up_to->body = payload.body.bytes;
        scratch.up_to->next = index;
        scratch.up_to->place = place;
    }
}

namespace {

constexpr std::size_t kCompareEvery = 3;    // blocks, where a rough number of differing bytes will do
constexpr std::size_t kMostReferences = 8;  // kept per open segment; 16 save another 1 %
constexpr std::size_t kLeastGain = 64;      // bytes; a reference that saves less does not pay

}  // namespace

PatchesWriter::PatchesWriter(const FrameGeometry& geometry, std::uint32_t group_frames, PatchEncoder& encoder)
    : given_(geometry), geometry_(geometry.joined()), group_frames_(group_frames), encoder_(encoder) {
    base_frame_.resize(geometry.frame_bytes());
    last_frame_.resize(geometry.frame_bytes());
    body_.reserve(kReadPadding);
}

void PatchesWriter::begin(const std::uint8_t* base) {
    std::memcpy(base_frame_.data(), base, geometry_.frame_bytes());
    has_base_ = true;
}

void PatchesWriter::append(const std::uint8_t* given) {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    const std::uint8_t* const frame = given_.channels_first ? encoder_.joined(given) : given;
    if (num_frames_ == 0) {
        if (!has_base_) {
            begin(frame);
        }
        repeats_.write_patch(encoder_.encode_self_coded(base_frame_.data()), body_);
    }
    const bool is_anchor = num_frames_ % group_frames_ == 0;
    if (is_anchor) {
        append_u32(group_table_, static_cast<std::uint32_t>(body_.size()));
    }
    const std::uint8_t* previous = is_anchor ? base_frame_.data() : last_frame_.data();
    const std::size_t differing = count_differing(frame, previous, frame_bytes, kCompareEvery);
    const Reference* const reference = find_reference(frame, differing);
    if (reference != nullptr) {
        body_.push_back(static_cast<std::uint8_t>(patch_format::kReference));
        body_.push_back(reference->group);
        previous = reference->frame.data();
    }
    repeats_.write_patch(encoder_.encode_patch(frame, previous, base_frame_.data()), body_);
    if (is_anchor && reference == nullptr && differing > kLeastGain) {
        add_reference(frame, differing);
    }
    std::memcpy(last_frame_.data(), frame, frame_bytes);
    ++num_frames_;
    if (body_.capacity() < body_.size() + kReadPadding) {
        body_.reserve(2 * body_.size() + kReadPadding);
    }
}

// Returns the reference that is the cheapest to patch, or null if none is cheaper than the usual frame, which differs
// in `differing` bytes. Readers rebuild the reference first, so half of its own differing bytes count too.
const PatchesWriter::Reference* PatchesWriter::find_reference(const std::uint8_t* frame, std::size_t differing) {
    Reference* cheapest = nullptr;
    std::size_t limit = differing;
    for (Reference& reference : references_) {
        const std::size_t before = kLeastGain + reference.differing / 2;
        if (before >= limit) {
            continue;
        }
        const std::size_t price =
            before + count_differing(frame, reference.frame.data(), geometry_.frame_bytes(), kCompareEvery);
        if (price < limit) {
            limit = price;
            cheapest = &reference;
        }
    }
    if (cheapest != nullptr) {
        cheapest->last_used = num_frames_;
    }
    return cheapest;
}

// Adds the anchor of the current group. If there are many, it replaces the one that was not used for the longest time.
void PatchesWriter::add_reference(const std::uint8_t* frame, std::size_t differing) {
    const std::size_t group = num_frames_ / group_frames_;
    if (group > patch_format::kMaxReferenceGroup) {
        return;
    }
    auto added = references_.end();
    if (references_.size() < kMostReferences) {
        added = references_.emplace(added);
    } else {
        added = std::min_element(
            references_.begin(), references_.end(),
            [](const Reference& left, const Reference& right) { return left.last_used < right.last_used; });
    }
    added->group = static_cast<std::uint8_t>(group);
    added->last_used = num_frames_;
    added->differing = differing;
    added->frame.assign(frame, frame + geometry_.frame_bytes());
}

void PatchesWriter::finish() {
    if (num_frames_ > 0) {
        SharedOperations shared_operations;
        shared_operations.read(patch_format::codes_of(geometry_.is_colour()), repeats_, body_, group_table_);
        body_.reserve(body_.size() + kReadPadding);
    }
}

void PatchesWriter::clear() {
    num_frames_ = 0;
    has_base_ = false;
    std::vector<std::uint8_t>().swap(group_table_);
    PagedVector<std::uint8_t>().swap(body_);
    body_.reserve(kReadPadding);
    repeats_.clear();
    std::vector<Reference>().swap(references_);
}

SegmentHeader PatchesWriter::header() const {
    const Encoding encoding = given_.channels_first   ? Encoding::kPlanarPatches
                              : geometry_.is_colour() ? Encoding::kPixelPatches
                                                      : Encoding::kPatches;
    return SegmentHeader{encoding, num_frames_, group_frames_, given_};
}

Payload PatchesWriter::payload() const {
    return Payload{ByteSpan{group_table_.data(), group_table_.size()}, ByteSpan{body_.data(), body_.size()}};
}

void PatchesWriter::copy_last_frame(std::uint8_t* out) const {
    if (given_.channels_first) {
        split_planes(last_frame_.data(), last_frame_.size() / 3, out);
    } else {
        std::memcpy(out, last_frame_.data(), last_frame_.size());
    }
}

std::size_t PatchesWriter::nbytes() const {
    return group_table_.capacity() + body_.capacity() + repeats_.nbytes() + base_frame_.capacity() +
           last_frame_.capacity() + references_.capacity() * sizeof(Reference) +
           references_.size() * geometry_.frame_bytes();
}

}  // namespace framestow
