// What readers of PackedStreams do: look segments up under the gate, unpack them without it.
#include <string>

#include "damaged_segment.hpp"
#include "packed_streams.hpp"

namespace framestow {
namespace {

[[noreturn]] void refuse_damaged(const SegmentPlace& place, std::size_t stream_number, std::int64_t number,
                                 const DamagedSegment& damage) {
    const auto stream = static_cast<std::int64_t>(stream_number);
    const std::string fault = segment_name(stream, number) + ": " + damage.what();
    const auto* const in_file = std::get_if<FilePlace>(&place);
    throw DamagedHeldSegment(in_file == nullptr ? fault + "; it was changed in memory"
                                                : in_file->file->path() + ", offset " + std::to_string(in_file->offset) +
                                                      ": " + fault + "; repair the store, or skip what is damaged",
                             stream, number);
}

}  // namespace

PackedStreams::View::View(const Reading& reading)
    : packed_(reading.packed()), ticket_(reading.ticket()), looking_(packed_.gate_) {}

std::int64_t PackedStreams::View::first_position(std::size_t stream) const {
    return packed_.streams_[stream].first_number() * packed_.frames_per_segment_;
}

std::int64_t PackedStreams::View::next_position(std::size_t stream) const {
    return packed_.next_position_of(packed_.streams_[stream]);
}

const SegmentPlace* PackedStreams::View::find_window(std::size_t stream_number, std::int64_t last,
                                                     std::int64_t count) const {
    if (last < count - 1 || last >= next_position(stream_number)) {
        return nullptr;
    }
    const std::int64_t first = last - count + 1;
    const std::int64_t first_number = first / packed_.frames_per_segment_;
    const SegmentPlace* const first_place = find(stream_number, first_number);
    // Few windows reach over a border; where it is, one multiplication tells.
    std::int64_t next_number = first_number + 1;
    for (; first_place != nullptr && next_number * packed_.frames_per_segment_ <= last; ++next_number) {
        if (find(stream_number, next_number) == nullptr) {
            return nullptr;
        }
    }
    return first_place;
}

const SegmentPlace* PackedStreams::View::find(std::size_t stream_number, std::int64_t number) const {
    const Stream& stream = packed_.streams_[stream_number];
    if (const SegmentPlace* const sealed = stream.sealed.find(number)) {
        return sealed;
    }
    return number == stream.open_number ? &kNowhere : packed_.retired_.find(stream_number, number, ticket_);
}

void PackedStreams::View::unpack_open(std::size_t stream, std::size_t first, std::size_t count,
                                      DecodingScratch& scratch, std::uint8_t* out) const {
    packed_.streams_[stream].open.unpack(first, count, scratch, out);
}

void PackedStreams::unpack_sealed(const SegmentPlace& place, std::size_t stream, std::int64_t number, std::size_t first,
                                  std::size_t count, DecodingScratch& scratch, std::uint8_t* out) {
    if (const auto* const stored = std::get_if<StoredSegment>(&place)) {
        unpack_checked(stored->span(), place, stream, number, first, count, scratch, out);
        return;
    }
    thread_local SegmentBuffer buffer;
    unpack_checked(bytes_of(place, stream, number, buffer), place, stream, number, first, count, scratch, out);
}

void PackedStreams::unpack_checked(ByteSpan segment, const SegmentPlace& place, std::size_t stream, std::int64_t number,
                                   std::size_t first, std::size_t count, DecodingScratch& scratch,
                                   std::uint8_t* out) const {
    try {
        const SegmentHeader header = read_header(segment);
        if (header.geometry != geometry_ || header.num_frames != frames_per_segment_) {
            throw DamagedSegment("its header belongs to other frames");
        }
        unpack_frames(header, segment, first, count, scratch, out);
    } catch (const DamagedSegment& damage) {
        refuse_damaged(place, stream, number, damage);
    }
}

// Where a segment of a file is verified for the first time, its checksum is what it is known by from then on.
ByteSpan PackedStreams::bytes_of(const SegmentPlace& place, std::size_t stream, std::int64_t number,
                                 SegmentBuffer& buffer) {
    const auto* const in_file = std::get_if<FilePlace>(&place);
    if (in_file == nullptr) {
        return bytes_in_ram(place);
    }
    try {
        const ByteSpan segment = read_segment(*in_file, buffer);
        if (!in_file->checksum) {
            remember_checksum(stream, number, *in_file, checksum_of(segment));
        }
        return segment;
    } catch (const DamagedSegment& damage) {
        refuse_damaged(place, stream, number, damage);
    }
}

void PackedStreams::remember_checksum(std::size_t stream, std::int64_t number, const FilePlace& place,
                                      std::uint32_t checksum) {
    const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
    if (writing) {  // or else the next reading of it
        SegmentPlace* const held = streams_[stream].sealed.find(number);
        auto* const in_file = held == nullptr ? nullptr : std::get_if<FilePlace>(held);
        if (in_file != nullptr && in_file->file == place.file && in_file->offset == place.offset) {
            in_file->checksum = checksum;
        }
    }
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
