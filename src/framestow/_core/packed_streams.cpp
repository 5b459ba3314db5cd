#include "packed_streams.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "damaged_segment.hpp"

namespace framestow {
namespace {

constexpr std::size_t kFirstRoom = 16;  // segments

// Called before a segment is allocated, so that nothing can fail between that and noting it.
void make_room_for_one(std::vector<StoredSegment>& sealed) {
    if (sealed.size() == sealed.capacity()) {
        sealed.reserve(std::max(kFirstRoom, sealed.size() + sealed.size() / 2));
    }
}

}  // namespace

PackedStreams::PackedStreams(std::size_t num_streams, const FrameGeometry& geometry,
                             std::uint32_t frames_per_segment)
    : geometry_(geometry), frames_per_segment_(frames_per_segment), encoder_(geometry) {
    check_segment_frames(geometry, frames_per_segment);
    streams_.reserve(num_streams);
    for (std::size_t index = 0; index < num_streams; ++index) {
        streams_.emplace_back(geometry);
    }
    scratch_.resize(geometry);
}

PackedStreams::Bytes PackedStreams::nbytes() const {
    Bytes bytes{arena_.nbytes(), encoder_.nbytes() + scratch_.nbytes(),
                arena_.index_bytes() + streams_.capacity() * sizeof(Stream)};
    for (const Stream& stream : streams_) {
        bytes.open += stream.open.nbytes();
        bytes.index += stream.sealed.capacity() * sizeof(StoredSegment);
    }
    return bytes;
}

const PackedStreams::Stream& PackedStreams::checked_stream(std::int64_t stream) const {
    if (stream < 0 || static_cast<std::uint64_t>(stream) >= streams_.size()) {
        throw std::out_of_range("stream is " + std::to_string(stream) + ": must be 0 to " +
                                std::to_string(streams_.size() - 1));
    }
    return streams_[static_cast<std::size_t>(stream)];
}

PackedStreams::Stream& PackedStreams::checked_stream(std::int64_t stream) {
    return const_cast<Stream&>(static_cast<const PackedStreams*>(this)->checked_stream(stream));
}

void PackedStreams::append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) {
    for (std::size_t index = 0; index < count; ++index) {
        checked_stream(streams[index]);
    }
    for (std::size_t index = 0; index < count; ++index) {
        Stream& stream = streams_[static_cast<std::size_t>(streams[index])];
        stream.open.append(frames + index * geometry_.frame_bytes(), encoder_);
        if (stream.open.num_frames() == frames_per_segment_) {
            seal(stream);
        }
    }
}

void PackedStreams::seal(Stream& stream) {
    make_room_for_one(stream.sealed);
    const StoredSegment stored = arena_.allocate(stream.open.packed_bytes());
    stream.open.write_to(stored.bytes, scratch_);
    stream.sealed.push_back(stored);
    stream.open.clear();
}

std::int64_t PackedStreams::evict(std::int64_t stream_number, std::int64_t before) {
    Stream& stream = checked_stream(stream_number);
    std::int64_t num_dropped = 0;
    while (stream.num_sealed() > 0 && (stream.first_number + 1) * frames_per_segment_ <= before) {
        arena_.release(stream.sealed[stream.num_dropped]);
        ++stream.num_dropped;
        ++stream.first_number;
        ++num_dropped;
    }
    if (2 * stream.num_dropped > stream.sealed.size()) {
        stream.sealed.erase(stream.sealed.begin(),
                            stream.sealed.begin() + static_cast<std::ptrdiff_t>(stream.num_dropped));
        stream.num_dropped = 0;
    }
    return num_dropped * frames_per_segment_;
}

std::int64_t PackedStreams::first_position(std::int64_t stream) const {
    return checked_stream(stream).first_number * frames_per_segment_;
}

std::int64_t PackedStreams::next_position(std::int64_t stream_number) const {
    const Stream& stream = checked_stream(stream_number);
    const std::int64_t open_number = stream.first_number + static_cast<std::int64_t>(stream.num_sealed());
    return open_number * frames_per_segment_ + stream.open.num_frames();
}

std::int64_t PackedStreams::num_segments(std::int64_t stream_number) const {
    const Stream& stream = checked_stream(stream_number);
    return static_cast<std::int64_t>(stream.num_sealed()) + (stream.open.num_frames() > 0 ? 1 : 0);
}

std::vector<std::uint8_t> PackedStreams::segment(std::int64_t stream_number, std::int64_t place) const {
    const Stream& stream = checked_stream(stream_number);
    if (place < 0 || place >= num_segments(stream_number)) {
        throw std::out_of_range("segment is " + std::to_string(place) + ": stream " + std::to_string(stream_number) +
                                " holds " + std::to_string(num_segments(stream_number)) + ", counted from 0");
    }
    const std::int64_t number = stream.first_number + place;
    const auto index = static_cast<std::size_t>(stream_number);
    if (is_sealed(index, number)) {
        const ByteSpan span = sealed_segment(index, number);
        return std::vector<std::uint8_t>(span.bytes, span.bytes + span.size);
    }
    DecodingScratch scratch;
    scratch.resize(geometry_);
    std::vector<std::uint8_t> bytes(stream.open.packed_bytes());
    stream.open.write_to(bytes.data(), scratch);
    return bytes;
}

void PackedStreams::restore(std::int64_t stream_number, std::int64_t number, ByteSpan segment) {
    Stream& stream = checked_stream(stream_number);
    const std::int64_t wanted = stream.first_number + static_cast<std::int64_t>(stream.num_sealed());
    const bool is_empty = stream.num_sealed() == 0 && stream.open.num_frames() == 0;
    if (stream.open.num_frames() > 0 || number < 0 || (number != wanted && !is_empty)) {
        throw std::invalid_argument("segment " + std::to_string(number) + " does not follow what stream " +
                                    std::to_string(stream_number) + " holds: restore segments in order, and nothing "
                                    "after one that is not full");
    }
    const SegmentHeader header = verify_segment(segment);
    if (header.geometry != geometry_ || header.num_frames > frames_per_segment_) {
        throw DamagedSegment("segment " + std::to_string(number) + " of stream " + std::to_string(stream_number) +
                             " holds " + std::to_string(header.num_frames) + " frames of " + header.geometry.text() +
                             ": expected at most " + std::to_string(frames_per_segment_) + " of " + geometry_.text());
    }
    if (header.num_frames < frames_per_segment_) {
        reopen(stream, header, segment);
    } else {
        make_room_for_one(stream.sealed);
        const StoredSegment stored = arena_.allocate(segment.size);
        std::memcpy(stored.bytes, segment.bytes, segment.size);
        stream.sealed.push_back(stored);
    }
    if (is_empty) {
        stream.first_number = number;
    }
}

void PackedStreams::reopen(Stream& stream, const SegmentHeader& header, ByteSpan segment) {
    std::vector<std::uint8_t> frames(header.num_frames * geometry_.frame_bytes());
    unpack_segment(segment, geometry_, header.num_frames, frames.data());
    for (std::size_t index = 0; index < header.num_frames; ++index) {
        stream.open.append(frames.data() + index * geometry_.frame_bytes(), encoder_);
    }
}

bool PackedStreams::is_sealed(std::size_t stream_number, std::int64_t number) const {
    const Stream& stream = streams_[stream_number];
    return number - stream.first_number < static_cast<std::int64_t>(stream.num_sealed());
}

ByteSpan PackedStreams::sealed_segment(std::size_t stream_number, std::int64_t number) const {
    const Stream& stream = streams_[stream_number];
    return stream.sealed[stream.num_dropped + static_cast<std::size_t>(number - stream.first_number)].span();
}

void PackedStreams::unpack(std::size_t stream_number, std::int64_t number, std::size_t first, std::size_t count,
                           DecodingScratch& scratch, std::uint8_t* out) const {
    if (!is_sealed(stream_number, number)) {
        streams_[stream_number].open.unpack(first, count, scratch, out);
        return;
    }
    const ByteSpan segment = sealed_segment(stream_number, number);
    const SegmentHeader header = read_header(segment);
    if (header.geometry != geometry_ || header.num_frames != frames_per_segment_) {
        throw DamagedSegment("segment " + std::to_string(number) + " of stream " + std::to_string(stream_number) +
                             " was changed in memory: its header belongs to other frames");
    }
    unpack_frames(header, segment, first, count, scratch, out);
}

}  // namespace framestow
