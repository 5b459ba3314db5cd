#include "raw_frames.hpp"

#include <cstring>

namespace framestow {

void unpack_raw(const SegmentHeader& header, const Payload& payload, std::size_t first, std::size_t count,
                DecodingScratch& /*scratch*/, std::uint8_t* out) {
    const std::size_t frame_bytes = header.geometry.frame_bytes();
    if (payload.body.size != static_cast<std::uint64_t>(header.num_frames) * frame_bytes) {
        throw DamagedSegment("raw segment does not hold the frames that its header promises");
    }
    std::memcpy(out, payload.body.bytes + first * frame_bytes, count * frame_bytes);
}

void RawWriter::append(const std::uint8_t* frame) {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    std::memcpy(frames_ + num_frames_ * frame_bytes, frame, frame_bytes);
    ++num_frames_;
}

void RawWriter::copy_last_frame(std::uint8_t* out) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    std::memcpy(out, frames_ + (num_frames_ - 1) * frame_bytes, frame_bytes);
}

void RawWriter::clear() {
    frames_ = nullptr;
    num_frames_ = 0;
}

Payload RawWriter::payload() const {
    return Payload{ByteSpan{}, ByteSpan{frames_, num_frames_ * geometry_.frame_bytes()}};
}

}  // namespace framestow
