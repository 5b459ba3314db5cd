// The files in which segments lie: each opened once, and closed when no segment lies in it any more.
//
// A path is the name of one file for as long as segments lie in it: it may be removed meanwhile, not given to another.
// Not thread-safe; reading from the files is.
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
#include "segment_arena.hpp"

// A file that sealed segments are read from: opened once, read at any offset by any number of threads.
//
// Read with pread (ReadFile with an offset elsewhere), never mapped: a mapped file that is cut short ends the process
// with SIGBUS, and bytes that are verified and then read again from a page may have changed in between. The file may be
// appended to, renamed and removed meanwhile; what was there when it was opened stays readable.
//
// Ownership: closes what it opened. A process that forks reads on in both.
namespace framestow {

// The system's number says why; bindings/errors.cpp makes the OSError of it that Python would raise.
class FileNotOpened : public std::runtime_error {
public:
    FileNotOpened(const std::string& path, int error) : std::runtime_error(path), error_(error) {}
    int error() const { return error_; }

private:
    int error_;
};

class SegmentFile {
public:
    // `path` as the system takes it: its bytes, UTF-8 on Windows. Throws FileNotOpened.
    explicit SegmentFile(const std::string& path);
    ~SegmentFile();
    SegmentFile(const SegmentFile&) = delete;
    SegmentFile& operator=(const SegmentFile&) = delete;

    const std::string& path() const { return path_; }

    // Fills `target`. Throws DamagedSegment where the file ends before that or the system cannot read it.
    void read(std::uint64_t offset, std::uint8_t* target, std::size_t size) const;

    // Asks the system to fetch what will be read soon, and does not wait for it. A hint, where there is such a thing.
    void expect_reading(std::uint64_t offset, std::size_t size) const noexcept;

private:
    std::string path_;
#ifdef _WIN32
    void* handle_;
#else
    int descriptor_;
#endif
};


// Where the bytes of a sealed segment lie: in the arena, in a file, or nowhere. Plain values that own nothing.

struct FilePlace {
    SegmentFile* file = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::optional<std::uint32_t> checksum;  // that the segment begins with, where it is known
};

using SegmentPlace = std::variant<std::monostate, StoredSegment, FilePlace>;
inline constexpr SegmentPlace kNowhere{};

inline bool is_nowhere(const SegmentPlace& place) { return std::holds_alternative<std::monostate>(place); }

// None for a segment that lies in a file.
inline ByteSpan bytes_in_ram(const SegmentPlace& place) {
    const auto* const stored = std::get_if<StoredSegment>(&place);
    return stored == nullptr ? ByteSpan{} : stored->span();
}

inline std::size_t size_of(const SegmentPlace& place) {
    const auto* const in_file = std::get_if<FilePlace>(&place);
    return in_file == nullptr ? bytes_in_ram(place).size : in_file->size;
}


class SegmentFiles {
public:
    // Notes that a segment lies there. Throws FileNotOpened.
    FilePlace add(const std::string& path, std::uint64_t offset, std::size_t size,
                  std::optional<std::uint32_t> checksum);
    void release(const FilePlace& place);

    std::size_t num_files() const { return files_.size(); }
    std::size_t nbytes() const { return nbytes_; }  // of the segments
    std::size_t index_bytes() const;

private:
    struct OpenFile {
        explicit OpenFile(const std::string& path) : file(path) {}
        SegmentFile file;
        std::size_t num_segments = 0;
    };

    std::map<std::string, OpenFile> files_;
    std::size_t nbytes_ = 0;
};


// A segment that lies in a file, as bytes in RAM that were verified.

// Room for one segment and for what decoders may load behind it.
using SegmentBuffer = std::vector<std::uint8_t>;

// Reads into `buffer` and verifies: the checksum is that of the bytes, and the one that is known. What is returned is
// padded, and stays until the buffer is used again. Throws DamagedSegment.
ByteSpan read_segment(const FilePlace& place, SegmentBuffer& buffer);


// Asks memory for what a window will read of a sealed segment, so that it answers while other windows are unpacked.
//
// In two steps, for the second one has to read what the first one asked for. Hints only: any bytes are safe, nothing is
// written, nothing is thrown. `first` and `count` are frames within the segment. Thread-safe.

// The header, and where in the group table the first frame's group stands.
void prefetch_directory(ByteSpan segment, const FrameGeometry& geometry, std::size_t first);

// The base frame, the operations shared by many frames, and the groups of the frames.
void prefetch_frames(ByteSpan segment, std::size_t first, std::size_t count);

}  // namespace framestow
