#include "packed_streams.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "damaged_segment.hpp"

namespace framestow {
namespace {

constexpr std::size_t kFirstRoom = 16;  // segments
constexpr std::size_t kLookEvery = 2;   // anchors, for the background: as good as each, in half the time

// Called before a segment is allocated, so that nothing can fail between that and noting it.
void make_room_for_one(std::vector<StoredSegment>& sealed) {
    if (sealed.size() == sealed.capacity()) {
        sealed.reserve(std::max(kFirstRoom, sealed.size() + sealed.size() / 2));
    }
}

}  // namespace

PackedStreams::PackedStreams(std::size_t num_streams, const FrameGeometry& geometry,
                             std::uint32_t frames_per_segment)
    : geometry_(geometry), frames_per_segment_(frames_per_segment), encoder_(geometry), background_(geometry.frame_bytes()) {
    check_segment_frames(geometry, frames_per_segment);
    streams_.reserve(num_streams);
    for (std::size_t index = 0; index < num_streams; ++index) {
        streams_.emplace_back(geometry);
    }
    scratch_.resize(geometry);
    looked_at_.resize(geometry.frame_bytes());
}

PackedStreams::Bytes PackedStreams::nbytes() const {
    const std::shared_lock<FairGate> looking(gate_);
    Bytes bytes{arena_.nbytes(), encoder_.nbytes() + shared_operations_.nbytes() + background_.nbytes() +
                    looked_at_.capacity() + scratch_.nbytes(),
                arena_.index_bytes() + streams_.capacity() * sizeof(Stream) + retired_.capacity() * sizeof(Retired)};
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

void PackedStreams::check_streams(const std::int32_t* streams, std::size_t count) const {
    for (std::size_t index = 0; index < count; ++index) {
        checked_stream(streams[index]);
    }
}

void PackedStreams::append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count) {
    check_streams(streams, count);
    for (std::size_t index = 0; index < count; ++index) {
        const std::lock_guard<FairGate> writing(gate_);
        append_one(streams_[static_cast<std::size_t>(streams[index])], frames + index * geometry_.frame_bytes());
    }
}

std::size_t PackedStreams::append_without_waiting(const std::int32_t* streams, const std::uint8_t* frames,
                                                  std::size_t count) {
    check_streams(streams, count);
    for (std::size_t index = 0; index < count; ++index) {
        const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
        if (!writing) {
            return index;
        }
        append_one(streams_[static_cast<std::size_t>(streams[index])], frames + index * geometry_.frame_bytes());
    }
    return count;
}

void PackedStreams::append_one(Stream& stream, const std::uint8_t* frame) {
    if (stream.open.num_frames() == 0) {
        begin_segment(stream);
    }
    stream.open.append(frame, encoder_);
    if (stream.open.num_frames() == frames_per_segment_) {
        seal(stream);
        free_unseen();
    }
}

// Bases the segment on the background of the one before, where that serves better than a first frame. Looks at its
// anchors alone, which are quick to unpack.
void PackedStreams::begin_segment(Stream& stream) {
    if (stream.num_sealed() == 0) {
        return;
    }
    const ByteSpan segment = stream.segment(stream.open_number() - 1).span();
    const SegmentHeader header = read_header(segment);
    if (header.packing != PackingKind::kPatches) {
        return;
    }
    background_.clear();
    for (std::size_t frame = 0; frame < header.num_frames; frame += kLookEvery * header.group_frames) {
        unpack_frames(header, segment, frame, 1, scratch_, looked_at_.data());
        background_.look_at(looked_at_.data());
    }
    if (background_.serves_better_than_first()) {
        stream.open.begin(background_.frame());
    }
}

void PackedStreams::seal(Stream& stream) {
    stream.open.finish(shared_operations_);
    make_room_for_one(stream.sealed);
    const StoredSegment stored = arena_.allocate(stream.open.packed_bytes());
    stream.open.write_to(stored.bytes, scratch_);
    stream.sealed.push_back(stored);
    stream.open.clear();
}

std::int64_t PackedStreams::evict(std::int64_t stream, std::int64_t before) {
    while (!keeps_all(stream, before)) {
        std::unique_lock<FairGate> writing(gate_);
        free_unseen();
        if (has_room_to_retire()) {
            return retire_before(static_cast<std::size_t>(stream), before);
        }
        const ReadingLedger::Ticket oldest = retired_.front().retirement;
        writing.unlock();
        readings_.wait_until_unseen(oldest);
    }
    return 0;
}

std::optional<std::int64_t> PackedStreams::evict_without_waiting(std::int64_t stream, std::int64_t before) {
    if (keeps_all(stream, before)) {
        return 0;
    }
    const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
    if (!writing) {
        return std::nullopt;
    }
    free_unseen();
    if (!has_room_to_retire()) {
        return std::nullopt;
    }
    return retire_before(static_cast<std::size_t>(stream), before);
}

// Most evictions let nothing go: they are told from the others without keeping a reader out.
bool PackedStreams::keeps_all(std::int64_t stream_number, std::int64_t before) const {
    const Stream& stream = checked_stream(stream_number);
    const std::shared_lock<FairGate> looking(gate_);
    return first_kept(stream, before) == stream.first_number;
}

// Number of the first segment that stays.
std::int64_t PackedStreams::first_kept(const Stream& stream, std::int64_t before) const {
    return std::max(stream.first_number, std::min(before / frames_per_segment_, stream.open_number()));
}

std::int64_t PackedStreams::retire_before(std::size_t stream_number, std::int64_t before) {
    Stream& stream = streams_[stream_number];
    const std::int64_t first_to_stay = first_kept(stream, before);
    const std::int64_t num_dropped = first_to_stay - stream.first_number;
    retired_.reserve(retired_.size() + static_cast<std::size_t>(num_dropped));
    const ReadingLedger::Ticket retirement = readings_.retire();
    for (; stream.first_number < first_to_stay; ++stream.first_number, ++stream.num_dropped) {
        const StoredSegment& segment = stream.sealed[stream.num_dropped];
        retired_.push_back(Retired{retirement, stream_number, stream.first_number, segment});
        retired_bytes_ += segment.size;
    }
    if (2 * stream.num_dropped > stream.sealed.size()) {
        stream.sealed.erase(stream.sealed.begin(),
                            stream.sealed.begin() + static_cast<std::ptrdiff_t>(stream.num_dropped));
        stream.num_dropped = 0;
    }
    free_unseen();
    return num_dropped * frames_per_segment_;
}

bool PackedStreams::has_room_to_retire() const {
    return retired_.size() < kMaxRetired && retired_bytes_ < kMaxRetiredBytes;
}

void PackedStreams::free_unseen() {
    if (retired_.empty()) {
        return;
    }
    const ReadingLedger::Ticket oldest = readings_.oldest();
    auto first_seen = retired_.begin();
    for (; first_seen != retired_.end() && first_seen->retirement < oldest; ++first_seen) {
        arena_.release(first_seen->segment);
        retired_bytes_ -= first_seen->segment.size;
    }
    retired_.erase(retired_.begin(), first_seen);
    has_retired_.store(!retired_.empty());
}

const PackedStreams::Retired* PackedStreams::find_retired(std::size_t stream, std::int64_t number,
                                                          ReadingLedger::Ticket ticket) const {
    for (const Retired& retired : retired_) {
        if (retired.stream == stream && retired.number == number && retired.retirement >= ticket) {
            return &retired;
        }
    }
    return nullptr;
}

std::int64_t PackedStreams::first_position(std::int64_t stream) const {
    const std::shared_lock<FairGate> looking(gate_);
    return checked_stream(stream).first_number * frames_per_segment_;
}

std::int64_t PackedStreams::next_position(std::int64_t stream) const {
    const std::shared_lock<FairGate> looking(gate_);
    return next_position_of(checked_stream(stream));
}

std::int64_t PackedStreams::next_position_of(const Stream& stream) const {
    return stream.open_number() * frames_per_segment_ + stream.open.num_frames();
}

std::int64_t PackedStreams::num_segments(std::int64_t stream) const {
    const std::shared_lock<FairGate> looking(gate_);
    return checked_stream(stream).num_segments();
}

std::vector<std::uint8_t> PackedStreams::segment(std::int64_t stream_number, std::int64_t place) const {
    const Stream& stream = checked_stream(stream_number);
    const std::shared_lock<FairGate> looking(gate_);
    if (place < 0 || place >= stream.num_segments()) {
        throw std::out_of_range("segment is " + std::to_string(place) + ": stream " + std::to_string(stream_number) +
                                " holds " + std::to_string(stream.num_segments()) + ", counted from 0");
    }
    const std::int64_t number = stream.first_number + place;
    if (number < stream.open_number()) {
        const ByteSpan span = stream.segment(number).span();
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
    const std::lock_guard<FairGate> writing(gate_);
    const std::int64_t wanted = stream.open_number();
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

// Packs the frames again upon the base that the segment has. One that was kept raw has none, and takes what a new
// segment would take.
void PackedStreams::reopen(Stream& stream, const SegmentHeader& header, ByteSpan segment) {
    std::vector<std::uint8_t> padded(segment.size + kReadPadding);
    std::memcpy(padded.data(), segment.bytes, segment.size);
    std::vector<std::uint8_t> frames(header.num_frames * geometry_.frame_bytes());
    unpack_frames(header, ByteSpan{padded.data(), segment.size}, 0, header.num_frames, scratch_, frames.data());
    if (header.packing == PackingKind::kPatches) {
        stream.open.begin(scratch_.base.frame());
    } else {
        begin_segment(stream);
    }
    for (std::size_t index = 0; index < header.num_frames; ++index) {
        stream.open.append(frames.data() + index * geometry_.frame_bytes(), encoder_);
    }
}

PackedStreams::View::View(const Reading& reading)
    : packed_(reading.packed()), ticket_(reading.ticket()), looking_(packed_.gate_) {}

std::int64_t PackedStreams::View::first_position(std::size_t stream) const {
    return packed_.streams_[stream].first_number * packed_.frames_per_segment_;
}

std::int64_t PackedStreams::View::next_position(std::size_t stream) const {
    return packed_.next_position_of(packed_.streams_[stream]);
}

bool PackedStreams::View::is_readable(std::size_t stream, std::int64_t last, std::int64_t count) const {
    if (last < count - 1 || last >= next_position(stream)) {
        return false;
    }
    const std::int64_t first_held = packed_.streams_[stream].first_number;
    for (std::int64_t number = (last - count + 1) / packed_.frames_per_segment_;
         number < first_held && number <= last / packed_.frames_per_segment_; ++number) {
        if (packed_.find_retired(stream, number, ticket_) == nullptr) {
            return false;
        }
    }
    return true;
}

ByteSpan PackedStreams::View::sealed_segment(std::size_t stream_number, std::int64_t number) const {
    const Stream& stream = packed_.streams_[stream_number];
    if (number >= stream.open_number()) {
        return ByteSpan{};
    }
    if (number >= stream.first_number) {
        return stream.segment(number).span();
    }
    return packed_.find_retired(stream_number, number, ticket_)->segment.span();
}

void PackedStreams::View::unpack_open(std::size_t stream, std::size_t first, std::size_t count,
                                      DecodingScratch& scratch, std::uint8_t* out) const {
    packed_.streams_[stream].open.unpack(first, count, scratch, out);
}

void PackedStreams::unpack_sealed(ByteSpan segment, std::size_t stream, std::int64_t number, std::size_t first,
                                  std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const {
    const SegmentHeader header = read_header(segment);
    if (header.geometry != geometry_ || header.num_frames != frames_per_segment_) {
        throw DamagedSegment("segment " + std::to_string(number) + " of stream " + std::to_string(stream) +
                             " was changed in memory: its header belongs to other frames");
    }
    unpack_frames(header, segment, first, count, scratch, out);
}

void PackedStreams::stop_reading(ReadingLedger::Ticket ticket) {
    readings_.stop(ticket);
    if (has_retired_.load()) {
        // Somebody else has the gate: the writer, who frees at its next segment, or a reader that stops as well.
        const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
        if (writing) {
            free_unseen();
        }
    }
}

Reading::Reading(PackedStreams& packed) : packed_(packed), ticket_(packed.readings_.start()) {}

void Reading::stop() {
    if (!has_stopped_) {
        has_stopped_ = true;
        packed_.stop_reading(ticket_);
    }
}

}  // namespace framestow
