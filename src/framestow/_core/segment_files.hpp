// Sealed segments in files: open files, places of segments, verified reading, and prefetching.
//
//   SegmentFile     a file that is opened once and read at any offset by any number of threads
//   SegmentPlace    where the bytes of a segment lie: in the arena, in a file, or nowhere
//   SegmentFiles    the open files; each is closed when no segment lies in it any more
//   read_segment    reads and verifies one segment
//   prefetch_*      ask memory for bytes of a segment before they are used
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "bytes.hpp"
#include "frame_geometry.hpp"
#include "pages.hpp"
#include "processor.hpp"
#include "segment_arena.hpp"
#include "segment_header.hpp"

namespace framestow {

// Carries the system's error number; bindings/module.cpp raises the OSError that Python would raise.
class FileNotOpened : public std::runtime_error {
public:
    FileNotOpened(const std::string& path, int error) : std::runtime_error(path), error_(error) {}
    int error() const { return error_; }

private:
    int error_;
};

// A file of sealed segments, opened once and read at any offset by any number of threads.
//
// Read with pread (ReadFile with an offset on Windows), never mapped: truncating a mapped file ends the process with
// SIGBUS, and mapped bytes may change between verification and use. The file may be appended to, renamed and removed
// meanwhile; the bytes present at opening stay readable.
//
// Ownership: closes the file that it opened. Both processes may read after a fork.
class SegmentFile {
public:
    // `path`: the bytes that the system expects, UTF-8 on Windows. Throws FileNotOpened, and DamagedSegment for a link
    // or what is no regular file; on Windows file_system.py alone looks for these, when a log is opened.
    explicit SegmentFile(const std::string& path);
    ~SegmentFile();
    SegmentFile(const SegmentFile&) = delete;
    SegmentFile& operator=(const SegmentFile&) = delete;

    const std::string& path() const { return path_; }

    // Fills `target`. Throws DamagedSegment if the file ends early or the system cannot read it.
    void read(std::uint64_t offset, std::uint8_t* target, std::size_t size) const;

    // Asks the system to fetch these bytes soon, without waiting. A hint; does nothing on systems without one.
    void expect_read(std::uint64_t offset, std::size_t size) const noexcept;

private:
    std::string path_;  // for messages, and as the key in SegmentFiles
#ifdef _WIN32
    void* handle_;  // open to read until the destructor
#else
    int descriptor_;  // open to read until the destructor
#endif
};

struct FilePlace {
    SegmentFile* file = nullptr;  // owned by SegmentFiles, which counts this segment
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::optional<std::uint32_t> checksum;  // of the segment, if known
    std::optional<std::uint32_t>
        of_all_bytes;              // checksum of all bytes, as a store names it; replaces the segment's own
    SegmentCounts counts{};        // known with the checksum
    std::size_t charged_size = 0;  // what FrameStore::charged_size() gives
};

// Where the bytes of a sealed segment lie. A plain value that owns nothing.
using SegmentPlace = std::variant<std::monostate, StoredSegment, FilePlace>;
inline constexpr SegmentPlace kNowhere{};

inline bool is_nowhere(const SegmentPlace& place) { return std::holds_alternative<std::monostate>(place); }

// Returns an empty span for a segment in a file.
inline ByteSpan bytes_in_ram(const SegmentPlace& place) {
    const auto* const stored = std::get_if<StoredSegment>(&place);
    return stored == nullptr ? ByteSpan{} : stored->span();
}

inline std::size_t size_of(const SegmentPlace& place) {
    const auto* const in_file = std::get_if<FilePlace>(&place);
    return in_file == nullptr ? bytes_in_ram(place).size : in_file->size;
}

// The files in which segments lie. Each is opened once and closed when its last segment is released.
//
// A path names one file while segments lie in it: the file may be removed, but not replaced by another. Not
// thread-safe; reading from the files is.
class SegmentFiles {
public:
    // Adds a segment of the file. Throws FileNotOpened.
    FilePlace add(const std::string& path, std::uint64_t offset, std::size_t size,
                  std::optional<std::uint32_t> checksum);
    void release(const FilePlace& place);

    std::size_t num_files() const { return files_.size(); }
    std::size_t nbytes() const { return nbytes_; }  // of all segments
    std::size_t index_bytes() const;

private:
    struct OpenFile {
        explicit OpenFile(const std::string& path) : file(path) {}
        SegmentFile file;
        std::size_t num_segments = 0;
    };

    std::map<std::string, OpenFile> files_;  // by path
    std::size_t nbytes_ = 0;
};

// A segment that lies in a file, as bytes in RAM that were verified.

// Holds one segment and the padding that decoders may load after it.
using SegmentBuffer = PagedVector<std::uint8_t>;

// Reads a segment of a file into `buffer` and verifies its checksum, also against the known ones. Returns a padded span
// that is valid until the buffer is used again. Throws DamagedSegment.
ByteSpan read_segment(const FilePlace& place, SegmentBuffer& buffer);

// Prefetching asks memory for the parts of a sealed segment that a window needs, while other windows are unpacked. Two
// steps, since the second reads bytes that the first requested. Only hints: any bytes are safe, nothing is written or
// thrown. `first` and `count` are frames within the segment. Thread-safe.
//
// prefetch_directory: the header, and the first frame's entry of the group table.
void prefetch_directory(ByteSpan segment, const FrameGeometry& geometry, std::size_t first);

// The first bytes of raw frames that begin `begin` bytes after the header; the processor fetches the following ones.
void prefetch_raw(ByteSpan segment, std::size_t begin);

// The base frame, the shared operations, and the groups of the frames: `queue` then has them instead of others.
void prefetch_frames(ByteSpan segment, std::size_t first, std::size_t count, PrefetchQueue& queue);

}  // namespace framestow
