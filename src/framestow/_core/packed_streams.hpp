// The packed frames of n streams: sealed segments, in RAM or in files, and behind them one open segment a stream in RAM.
//
// Positions are absolute in each stream, from 0; segment k holds positions k * frames_per_segment up to the next
// segment's first. Any sealed segments may be let go, so what is held may have holes. Frames are packed as they are
// appended: an open segment is as small as a sealed one, plus two raw frames.
//
// Ownership: copies everything it is given. Arguments are checked before anything changes: std::out_of_range for streams
// and positions, std::invalid_argument for the rest, DamagedSegment from restore.
//
// Threads: one may append and evict while any number read (see window_gather.hpp); every call is safe beside every other.
//   - Everything below is guarded by a gate: the writer holds it for one frame, readers while they look segments up
//     and while they unpack frames of an open segment. The bytes of a sealed segment never change and are unpacked
//     without it.
//   - A `Reading` sees every frame that was held when it started, for as long as it lives: segments that are evicted
//     meanwhile are retired, and freed by whoever comes first once no older reading is left. They count in nbytes().
//   - A segment that moves to a file is retired from RAM in the same way: a gather that found it there unpacks it there,
//     one that looks it up later reads the file. The bytes are the same. A file stays open while a segment of it is
//     held or retired.
//   - append() waits for readers for microseconds. evict() and move_to_file() also wait while too much is retired
//     (RetiredSegments): whoever has a Reading must not wait for the writer. Files are read without the gate, but for
//     the one segment that a new one may be based on.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "fair_gate.hpp"
#include "packings/patches.hpp"
#include "sealed_segments.hpp"
#include "segment.hpp"
#include "segment_files.hpp"

namespace framestow {

class PackedStreams;

// Keeps what was held when it started readable until it is stopped or destroyed. Belongs to one thread at a time.
class Reading {
public:
    explicit Reading(PackedStreams& packed);
    ~Reading() { stop(); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    void stop();
    bool has_stopped() const { return has_stopped_; }
    PackedStreams& packed() const { return packed_; }
    ReadingLedger::Ticket ticket() const { return ticket_; }

private:
    PackedStreams& packed_;
    ReadingLedger::Ticket ticket_;
    bool has_stopped_ = false;
};

class PackedStreams {
public:
    struct Bytes {
        std::size_t sealed;    // taken from the operating system for sealed segments
        std::size_t open;      // open segments, and what packing and unpacking needs beside them
        std::size_t index;     // where each segment lies
        std::size_t in_files;  // of sealed segments, on the disk
    };

    // `step_bytes`: what each frame takes elsewhere; see charged_bytes().
    PackedStreams(std::size_t num_streams, const FrameGeometry& geometry, std::uint32_t frames_per_segment,
                  std::size_t step_bytes = 0);

    const FrameGeometry& geometry() const { return geometry_; }
    std::size_t num_streams() const { return streams_.size(); }
    std::uint32_t frames_per_segment() const { return frames_per_segment_; }
    Bytes nbytes() const;

    // What counts against a budget: at least nbytes() and the step_bytes of all frames, but for what only readings still
    // see. It follows from what is held alone, not from what was held before or where it lies, so whoever lets go by
    // it does the same after saving and loading. For the one who appends.
    std::size_t charged_bytes() const;
    void charge_steps(std::size_t step_bytes) { step_bytes_ = step_bytes; }  // from now on; for the one who appends

    // Appends frame i to streams[i]; a stream may occur more than once. The second stops, and returns how many it has
    // appended, where it would have to wait for readers longer than they take to look something up.
    void append(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count);
    std::size_t append_without_waiting(const std::int32_t* streams, const std::uint8_t* frames, std::size_t count);

    // Drops the sealed segments that lie wholly in positions `first` up to `before`; returns how many frames they held.
    // The second returns nothing, and has dropped nothing, where it would have to wait.
    std::int64_t evict(std::int64_t stream, std::int64_t before, std::int64_t first = 0);
    std::optional<std::int64_t> evict_without_waiting(std::int64_t stream, std::int64_t before, std::int64_t first = 0);

    // Of the oldest frame that is held, where the open segment's first counts as held; what the next frame gets.
    std::int64_t first_position(std::int64_t stream) const;
    std::int64_t next_position(std::int64_t stream) const;

    // Frames held over all streams.
    std::int64_t num_frames() const;

    // Numbers of the sealed segments that are held, ascending.
    std::vector<std::int64_t> sealed_numbers(std::int64_t stream) const;

    // The segment of that number (its first position / frames_per_segment); the open one in the same format.
    // std::out_of_range for one that is not held.
    std::vector<std::uint8_t> segment(std::int64_t stream, std::int64_t number);

    // Puts a segment that segment() gave behind what the stream holds, under its number, which may leave a hole; the
    // first one of an empty stream says where it begins. One that is not full becomes the open segment again and
    // goes on as if it had never been written out.
    void restore(std::int64_t stream, std::int64_t number, ByteSpan segment);

    // Lets a stream of which nothing is held go on with the first frame of that segment.
    void begin_at(std::int64_t stream, std::int64_t number);

    // From now on the sealed segment, whose bytes stand at `offset` of that file, is read from there. Each reading
    // verifies its checksum, and that it is the one that was moved. Throws FileNotOpened, std::out_of_range for a
    // segment that is not sealed or not held, std::invalid_argument for another size.
    void move_to_file(std::int64_t stream, std::int64_t number, const std::string& path, std::uint64_t offset,
                      std::size_t size);

    // As restore(), for a full segment in a file, of which nothing is read now. The first reading of it tells its
    // checksum, and all others must agree.
    void restore_in_file(std::int64_t stream, std::int64_t number, const std::string& path, std::uint64_t offset,
                         std::size_t size);

    // What a reading sees, looked up under the gate, which it holds while it lives: a microsecond. Streams must be in
    // range, segments and positions readable.
    class View {
    public:
        explicit View(const Reading& reading);

        std::int64_t first_position(std::size_t stream) const;  // of what is held now
        std::int64_t next_position(std::size_t stream) const;

        // Where the segment with a window's first frame lies, if all of its `count` frames up to `last` are readable;
        // nothing if not. A sealed one stays there for as long as the reading, an open one is nowhere. What is pointed
        // to is to be copied while the view lives.
        const SegmentPlace* find_window(std::size_t stream, std::int64_t last, std::int64_t count) const;
        const SegmentPlace* find(std::size_t stream, std::int64_t number) const;  // the same for one segment
        void unpack_open(std::size_t stream, std::size_t first, std::size_t count, DecodingScratch& scratch,
                         std::uint8_t* out) const;

    private:
        const PackedStreams& packed_;
        ReadingLedger::Ticket ticket_;
        std::shared_lock<FairGate> gate_lock_;
    };

    // Frames first .. first + count - 1 of the sealed segment that View::find gave for this stream and number. One in a file is
    // read into a buffer of this thread. Throws DamagedStoredSegment.
    void unpack_sealed(const SegmentPlace& place, std::size_t stream, std::int64_t number, std::size_t first,
                       std::size_t count, DecodingScratch& scratch, std::uint8_t* out);

private:
    friend class Reading;

    struct Stream {
        Stream(const FrameGeometry& geometry) : open(geometry) {}
        SealedSegments sealed;
        std::int64_t open_number = 0;
        SegmentWriter open;

        bool is_empty() const { return sealed.is_empty() && open.num_frames() == 0; }
        std::int64_t first_number() const { return sealed.is_empty() ? open_number : sealed.first_number(); }
    };

    // Numbers `first` up to `before`.
    struct Numbers {
        std::int64_t first;
        std::int64_t before;
    };

    const Stream& checked_stream(std::int64_t stream) const;
    Stream& checked_stream(std::int64_t stream);
    void check_streams(const std::int32_t* streams, std::size_t count) const;
    Numbers wholly_within(std::int64_t first, std::int64_t before) const;
    bool holds_any(std::int64_t stream, const Numbers& numbers) const;

    std::size_t fixed_charge() const;

    // The rest wants the gate held: alone where something changes.
    std::int64_t next_position_of(const Stream& stream) const;
    void append_one(Stream& stream, const std::uint8_t* frame);
    void begin_segment(Stream& stream);
    void seal(Stream& stream);
    ByteSpan segment_before(const Stream& stream);
    [[noreturn]] void refuse_segment(const Stream& stream, std::int64_t stream_number, std::int64_t number) const;
    void check_follows(const Stream& stream, std::int64_t stream_number, std::int64_t number) const;
    void reopen(Stream& stream, const SegmentHeader& header, ByteSpan segment);
    std::int64_t retire(std::size_t stream, const Numbers& numbers);
    void empty_sparse_blocks();
    void free_unreferenced();
    std::unique_lock<FairGate> lock_when_retirable();
    void remember_checksum(std::size_t stream, std::int64_t number, const FilePlace& place, std::uint32_t checksum);
    ByteSpan bytes_of(const SegmentPlace& place, std::size_t stream, std::int64_t number, SegmentBuffer& buffer);
    void unpack_checked(ByteSpan segment, const SegmentPlace& place, std::size_t stream, std::int64_t number,
                        std::size_t first, std::size_t count, DecodingScratch& scratch, std::uint8_t* out) const;
    void stop_reading(ReadingLedger::Ticket ticket);

    FrameGeometry geometry_;
    std::uint32_t frames_per_segment_;
    std::size_t step_bytes_;
    mutable FairGate gate_;
    ReadingLedger readings_;
    std::vector<Stream> streams_;
    SegmentArena arena_;
    SegmentFiles files_;
    RetiredSegments retired_{arena_, files_};
    std::size_t num_sealed_ = 0;    // segments that are held, wherever they lie
    std::size_t sealed_bytes_ = 0;  // of these
    std::size_t num_open_ = 0;      // frames of open segments
    std::size_t open_bytes_ = 0;    // that open segments take
    std::atomic<bool> has_retired_{false};  // for whoever has not got the gate
    PatchEncoder encoder_;
    Background background_;
    std::vector<std::uint8_t> previous_frame_;  // a frame of the segment before the one that begins
    DecodingScratch scratch_;
    SegmentBuffer read_from_file_;  // the segment before, where it lies there
};

}  // namespace framestow
