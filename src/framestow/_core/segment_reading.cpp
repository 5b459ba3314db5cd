#include "segment_reading.hpp"

#include "damaged_segment.hpp"
#include "segment_header.hpp"

namespace framestow {

ByteSpan read_segment(const FilePlace& place, SegmentBuffer& buffer) {
    if (buffer.size() < place.size + kReadPadding) {
        buffer.resize(place.size + kReadPadding);
    }
    place.file->read(place.offset, buffer.data(), place.size);
    const ByteSpan segment{buffer.data(), place.size};
    verify_checksum(segment);
    if (place.checksum && *place.checksum != checksum_of(segment)) {
        throw DamagedSegment("another segment stands there: its checksum is not the one that was written");
    }
    return segment;
}

}  // namespace framestow
