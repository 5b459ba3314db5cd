// The frames of several environments: sealed segments in RAM or in files, and one open segment per environment in RAM.
//
// A FrameFormat says how frames are stored: packed, or raw, and whether floats k / 255 are stored as pixels k.
// Positions count the frames of an environment from 0 and never restart. Segment k holds frames_per_segment positions
// from k
// * frames_per_segment on. Any sealed segment may be evicted, so the stored frames may have gaps. Frames are packed
// when they are appended: an open segment is as small as a sealed one, plus two to ten raw frames. A raw segment is
// allocated whole with its first frame, and stays where it is when it is sealed. In files all segments are packed.
//
// A segment has the paddings of the stretches that begin in it (segment_stretches.hpp), so they live as long as its
// frames. Of format().lead_ins 0, no padding is stored.
//
// Ownership: copies its arguments. Arguments are checked before anything changes: std::out_of_range for environments
// and positions, std::invalid_argument for the rest, DamagedSegment from restore.
//
// Threads: one thread may append and evict while any number of threads read; every call is safe beside every other.
//  - A FairGate guards the tables. The writer holds it for one frame, readers while they look segments up and while
//    they unpack frames of an open segment. The bytes of a sealed segment never change and are unpacked without it.
//  - A `Snapshot` sees every frame that was stored when it started, until it stops. Segments evicted meanwhile are
//    retired: they count in nbytes() and are freed once no older snapshot is left.
//  - A segment that moves to a file is retired from RAM in the same way. A read that found it in RAM unpacks it
//    there, a later one reads the file; the bytes are the same. A file stays open while a segment in it is stored or
//    retired.
//  - append() waits for readers for microseconds. evict() and move_to_file() also wait while too much is retired
//    (RetiredSegments), so a thread with a Snapshot must not wait for the writer. Files are read without the gate,
//    except for a segment that a new one may use as its base.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "fair_gate.hpp"
#include "forks.hpp"
#include "packings/patches.hpp"
#include "sealed_segments.hpp"
#include "segment.hpp"
#include "segment_files.hpp"

namespace framestow {

class FrameStore;

// Keeps every frame readable that was stored when it started, until it is stopped or destroyed. Belongs to one thread
// at a time.
class Snapshot {
public:
    explicit Snapshot(FrameStore& store);
    ~Snapshot() { stop(); }
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;

    void stop();

    // Call it before each read: whether the snapshot has not stopped.
    bool may_read() const;
    FrameStore& store() const { return store_; }
    SnapshotLedger::Ticket ticket() const { return entry_.ticket; }

private:
    FrameStore& store_;  // must outlive the snapshot
    mutable SnapshotLedger::Entry entry_;
};

class FrameStore final : public HeldByForks {
public:
    struct Bytes {
        std::size_t sealed;    // allocated for sealed segments
        std::size_t open;      // open segments and the scratch of packing and unpacking
        std::size_t index;     // tables of segment places
        std::size_t in_files;  // sealed segments on disk
    };

    // `step_bytes`: bytes that each frame occupies elsewhere, for charged_bytes().
    FrameStore(std::size_t num_envs, const FrameFormat& format, std::uint32_t frames_per_segment,
               std::size_t step_bytes = 0);
    FrameStore(const FrameStore&) = delete;
    FrameStore& operator=(const FrameStore&) = delete;

    const FrameFormat& format() const { return format_; }
    const FrameGeometry& geometry() const { return format_.pixels; }
    std::size_t num_envs() const { return envs_.size(); }
    std::uint32_t frames_per_segment() const { return frames_per_segment_; }
    Bytes nbytes() const;

    // Returns the bytes that count against a budget: at least nbytes() plus step_bytes per frame, without retired
    // segments. The value depends only on the stored frames, not on history or place. So eviction by budget is the same
    // after saving and loading. Only for the writer.
    std::size_t charged_bytes() const;
    void charge_steps(std::size_t step_bytes) { step_bytes_ = step_bytes; }  // from now on; only for the writer

    // The commits of a store, each with the open segments and at most `most_steps` steps of `step_bytes`. They are
    // charged from now on; only for the writer.
    struct Commits {
        std::size_t count = 0;
        std::size_t most_steps = 0;
        std::size_t step_bytes = 0;
    };
    void charge_commits(const Commits& commits) { commits_ = commits; }

    // Appends frame i to env_ids[i]; an environment may repeat. `stretch_starts`: one per frame, or null if no frame
    // begins a stretch whose padding is stored. append_without_waiting stops before it would have to wait for readers,
    // and returns the number of frames appended.
    void append(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                const StretchStart* stretch_starts = nullptr);
    std::size_t append_without_waiting(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                                       const StretchStart* stretch_starts = nullptr);

    // Evicts the sealed segments that lie wholly in positions `first` up to, excluding, `before`; returns their number
    // of frames. evict_without_waiting evicts nothing and returns no value if it would have to wait.
    std::int64_t evict(std::int64_t env_id, std::int64_t before, std::int64_t first = 0);
    std::optional<std::int64_t> evict_without_waiting(std::int64_t env_id, std::int64_t before, std::int64_t first = 0);

    // Positions of the oldest stored frame (or the open segment's first position) and of the next frame to be appended.
    std::int64_t first_position(std::int64_t env_id) const;
    std::int64_t next_position(std::int64_t env_id) const;

    // Returns the number of stored frames over all environments, and how many of them are exact among scaled floats.
    // Those in a file count as scaled until it is read.
    std::int64_t num_frames() const;
    std::int64_t num_exact() const { return sum_of(&SegmentCounts::num_exact); }

    // Returns the number of observations that are stored whole, with their older frames as lead-ins. Those in a file
    // are known once it was read.
    std::int64_t num_whole() const { return sum_of(&SegmentCounts::num_whole); }

    // Returns the numbers of the stored sealed segments, ascending.
    std::vector<std::int64_t> sealed_numbers(std::int64_t env_id) const;

    // Returns the segment of that number (its first position / frames_per_segment), packed; an open one in the same
    // format. Throws std::out_of_range if it is not stored.
    std::vector<std::uint8_t> segment(std::int64_t env_id, std::int64_t number);

    // Appends a segment that segment() returned, under its number, which may leave a gap. An empty environment may
    // begin at any number. A segment that is not full becomes the open segment and continues as if it had never been
    // written out.
    void restore(std::int64_t env_id, std::int64_t number, ByteSpan segment);

    // Makes an empty environment continue with the first frame of that segment.
    void begin_at(std::int64_t env_id, std::int64_t number);

    // Reads the sealed segment from a file from now on, at `offset`, and frees its RAM. Each read verifies its
    // checksum, and that it is the segment that was moved. Throws FileNotOpened, std::out_of_range if the segment is
    // not sealed or not stored, std::invalid_argument for another size.
    void move_to_file(std::int64_t env_id, std::int64_t number, const std::string& path, std::uint64_t offset,
                      std::size_t size);

    // Appends a full segment in a file, without reading it now. Each read verifies that all its bytes have this
    // checksum. Without one the first read records the segment's own; all later ones must agree.
    void restore_in_file(std::int64_t env_id, std::int64_t number, const std::string& path, std::uint64_t offset,
                         std::size_t size, std::optional<std::uint32_t> of_all_bytes = std::nullopt);

    // The segments that a snapshot sees, looked up under the gate. A view holds the gate while it lives, about a
    // microsecond. Environments must be in range, segments and positions readable.
    class View {
    public:
        explicit View(const Snapshot& snapshot);

        std::int64_t first_position(std::size_t env_id) const;  // of the frames stored now
        std::int64_t next_position(std::size_t env_id) const;

        // Returns the place of the segment with a window's first frame, or null unless all `count` frames up to `last`
        // are readable. A sealed segment keeps its place while the snapshot lives; an open one has kNowhere. Copy the
        // place while the view lives.
        const SegmentPlace* find_window(std::size_t env_id, std::int64_t last, std::int64_t count) const;
        const SegmentPlace* find(std::size_t env_id, std::int64_t number) const;  // the same for one segment
        void unpack_open(std::size_t env_id, std::size_t first, std::size_t count, DecodingScratch& scratch,
                         std::uint8_t* out) const;
        bool unpack_open_padding(std::size_t env_id, std::size_t first, std::size_t count, DecodingScratch& scratch,
                                 std::uint8_t* out) const;

    private:
        const FrameStore& store_;
        SnapshotLedger::Ticket ticket_;
        std::shared_lock<FairGate> gate_lock_;
    };

    // Unpacks frames first .. first + count - 1 of the sealed segment that View::find returned. A segment in a file is
    // read into a buffer of this thread. Throws DamagedStoredSegment.
    void unpack_sealed(const SegmentPlace& place, std::size_t env_id, std::int64_t number, std::size_t first,
                       std::size_t count, DecodingScratch& scratch, std::uint8_t* out);

    // Unpacks the last `count` frames before frame `first` of that segment, if a stretch with a stored padding begins
    // there; otherwise returns false. Reads and throws as unpack_sealed.
    bool unpack_sealed_padding(const SegmentPlace& place, std::size_t env_id, std::int64_t number, std::size_t first,
                               std::size_t count, DecodingScratch& scratch, std::uint8_t* out);

    // A fork holds the gate, so that a child finds the tables whole.
    bool try_to_hold() override;
    void give_back(bool is_child, bool is_held) override;

private:
    friend class Snapshot;

    struct EnvFrames {
        EnvFrames(const FrameFormat& format, FrameEncoder& encoder) : open(format, encoder) {}
        SealedSegments sealed;
        std::int64_t open_number = 0;  // number of the open segment
        SegmentWriter open;            // the frames of the open segment
        StoredSegment raw{};           // the open segment, if it is raw and has frames

        bool is_empty() const { return sealed.is_empty() && open.num_frames() == 0; }
        std::int64_t first_number() const { return sealed.is_empty() ? open_number : sealed.first_number(); }
    };

    // Segment numbers from `first` up to, excluding, `before`.
    struct Numbers {
        std::int64_t first;
        std::int64_t before;
    };

    const EnvFrames& env_at(std::int64_t env_id) const;
    EnvFrames& env_at(std::int64_t env_id);
    void check_rows(const std::int32_t* env_ids, std::size_t count, const StretchStart* stretch_starts) const;
    Numbers wholly_within(std::int64_t first, std::int64_t before) const;
    bool has_any(std::int64_t env_id, const Numbers& numbers) const;

    std::size_t fixed_charge() const;
    std::int64_t sum_of(std::uint32_t SegmentCounts::* count) const;  // over all segments

    // The functions below require the gate, exclusively where they change anything.
    std::int64_t next_position_of(const EnvFrames& env) const;
    void append_one(EnvFrames& env, const std::uint8_t* frame, const StretchStart& start);
    void begin_segment(EnvFrames& env);
    void seal(EnvFrames& env);
    SegmentOwner owner_of_open(const EnvFrames& env) const;
    void empty_open(EnvFrames& env);
    std::size_t commit_charge(std::size_t num_frames) const;
    std::size_t charged_size(const SegmentPlace& place) const;
    std::size_t charged_size_in_file(const FilePlace& place) const;
    ByteSpan segment_before(const EnvFrames& env);
    [[noreturn]] void refuse_segment(const EnvFrames& env, std::int64_t env_id, std::int64_t number) const;
    void check_follows(const EnvFrames& env, std::int64_t env_id, std::int64_t number) const;
    void reopen(EnvFrames& env, const SegmentView& view);
    std::int64_t retire(std::size_t env_id, const Numbers& numbers);
    void empty_sparse_blocks();
    void free_unreferenced();
    std::unique_lock<FairGate> lock_when_retirable();
    void remember_checksum(std::size_t env_id, std::int64_t number, const FilePlace& place, ByteSpan segment);
    ByteSpan bytes_of(const SegmentPlace& place, std::size_t env_id, std::int64_t number, SegmentBuffer& buffer);
    ByteSpan bytes_to_unpack(const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                             DecodingScratch& scratch);
    template <typename Unpack>
    auto unpack_checked(ByteSpan segment, const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                        const Unpack& unpack) const;
    void stop_snapshot(SnapshotLedger::Entry& entry);

    FrameFormat format_;
    std::uint32_t frames_per_segment_;      // of every sealed segment
    std::size_t step_bytes_;                // charged for each frame besides its own bytes
    Commits commits_;                       // charged with the open segments and some steps each
    mutable FairGate gate_;                 // held shared by readers that look segments up, exclusively by the writer
    SnapshotLedger snapshots_;              // the open ones
    std::vector<EnvFrames> envs_;           // by env_id; never resized
    SegmentArena arena_;                    // sealed segments in RAM, and raw open ones
    SegmentFiles files_;                    // sealed segments in files
    RetiredSegments retired_;               // evicted or moved, but still seen by a snapshot
    std::size_t num_sealed_ = 0;            // stored sealed segments, in RAM and in files
    std::size_t sealed_bytes_ = 0;          // their charged_size()
    std::size_t num_raw_ = 0;               // raw open segments
    std::size_t num_open_ = 0;              // frames in open segments
    std::size_t open_bytes_ = 0;            // bytes of open segments
    std::atomic<bool> has_retired_{false};  // readable without the gate
    FrameEncoder encoder_;                  // scratch of the writer
    std::optional<Background> background_;  // none if segments are raw
    std::vector<std::uint8_t> previous_frame_;  // pixels of the segment before a new one
    DecodingScratch scratch_;
    SegmentBuffer read_from_file_;  // the segment before a new one, if it lies in a file
};

}  // namespace framestow
