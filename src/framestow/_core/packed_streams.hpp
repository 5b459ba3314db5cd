// The packed frames of n streams in RAM: sealed segments, and behind them one open segment a stream.
//
// Positions are absolute in each stream, from 0; segment k holds positions k * frames_per_segment up to the next
// segment's first. Frames are packed as they are appended: an open segment is as small as a sealed one, plus two raw
// frames.
//
// Ownership: copies everything it is given. Threads: none of its own; the caller keeps append, evict and restore
// apart from each other and from reading; any number of threads may read at once (see window_gather.hpp).
// Arguments are checked before anything changes: std::out_of_range for streams and positions, std::invalid_argument
// for the rest, DamagedSegment from restore.
#pragma once

#include <cstdint>
#include <vector>

#include "segment.hpp"
#include "segment_arena.hpp"

namespace framestow {

class PackedStreams {
public:
    struct Bytes {
        std::size_t sealed;  // taken from the operating system for sealed segments
        std::size_t open;    // open segments, and what packing and unpacking needs beside them
        std::size_t index;   // where each segment lies
    };

    PackedStreams(std::size_t num_streams, const FrameGeometry& geometry, std::uint32_t frames_per_segment);

    const FrameGeometry& geometry() const { return geometry_; }
    std::size_t num_streams() const { return streams_.size(); }
    std::uint32_t frames_per_segment() const { return frames_per_segment_; }
    Bytes nbytes() const;

    // Appends frame i to streams[i]; a stream may occur more than once.
    void append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count);

    // Drops the sealed segments that lie wholly before `before`; returns how many frames they held.
    std::int64_t evict(std::int64_t stream, std::int64_t before);

    std::int64_t first_position(std::int64_t stream) const;
    std::int64_t next_position(std::int64_t stream) const;

    // The segment at a place among those that are held, the oldest first; an open one comes last, in the same format.
    std::int64_t num_segments(std::int64_t stream) const;
    std::vector<std::uint8_t> segment(std::int64_t stream, std::int64_t place) const;

    // Appends a segment that segment() gave, under its number (its first position / frames_per_segment): the first one
    // of an empty stream says where the stream begins. One that is not full becomes the open segment again and goes
    // on as if it had never been written out.
    void restore(std::int64_t stream, std::int64_t number, ByteSpan segment);

    // Reading, unchecked: `number` must be held, and the positions within it too.
    bool is_sealed(std::size_t stream, std::int64_t number) const;
    ByteSpan sealed_segment(std::size_t stream, std::int64_t number) const;
    void unpack(std::size_t stream, std::int64_t number, std::size_t first, std::size_t count,
                DecodingScratch& scratch, std::uint8_t* out) const;

private:
    // Sealed segments of a stream: a queue in a vector, so that its bytes can be counted.
    struct Stream {
        Stream(const FrameGeometry& geometry) : open(geometry) {}
        std::vector<StoredSegment> sealed;
        std::size_t num_dropped = 0;    // dropped entries that still stand at the front of `sealed`
        std::int64_t first_number = 0;  // of the first segment that is held
        SegmentWriter open;

        std::size_t num_sealed() const { return sealed.size() - num_dropped; }
    };

    const Stream& checked_stream(std::int64_t stream) const;
    Stream& checked_stream(std::int64_t stream);
    void seal(Stream& stream);
    void reopen(Stream& stream, const SegmentHeader& header, ByteSpan segment);

    FrameGeometry geometry_;
    std::uint32_t frames_per_segment_;
    std::vector<Stream> streams_;
    SegmentArena arena_;
    PatchEncoder encoder_;
    DecodingScratch scratch_;
};

}  // namespace framestow
