#include "segment_files.hpp"

#include <algorithm>
#include <system_error>

#include "checksum.hpp"
#include "segment.hpp"
#include "segment_header.hpp"

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace framestow {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // systems read at most 2 GiB per call

[[noreturn]] void refuse_snapshot(int error) {
    throw DamagedSegment("it cannot be read (" + std::system_category().message(error) + ")");
}

}  // namespace

#ifdef _WIN32

namespace {

std::wstring widened(const std::string& path) {
    const int size = MultiByteToWideChar(CP_UTF8, 0, path.data(), static_cast<int>(path.size()), nullptr, 0);
    std::wstring wide(static_cast<std::size_t>(size), L'\0');
    MultiByteToWideChar(CP_UTF8, 0, path.data(), static_cast<int>(path.size()), wide.data(), size);
    return wide;
}

// Returns the number of bytes read, 0 at the file's end.
std::size_t read_some(void* handle, std::uint64_t offset, std::uint8_t* target, std::size_t size) {
    OVERLAPPED place{};
    place.Offset = static_cast<DWORD>(offset & 0xFFFFFFFFU);
    place.OffsetHigh = static_cast<DWORD>(offset >> 32);
    DWORD num_read = 0;
    if (!ReadFile(handle, target, static_cast<DWORD>(size), &num_read, &place) && GetLastError() != ERROR_HANDLE_EOF) {
        refuse_snapshot(static_cast<int>(GetLastError()));
    }
    return num_read;
}

}  // namespace

SegmentFile::SegmentFile(const std::string& path)
    : path_(path),
      // Other processes may write, rename and remove it.
      handle_(CreateFileW(widened(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                          nullptr, OPEN_EXISTING, FILE_FLAG_RANDOM_ACCESS, nullptr)) {
    if (handle_ == INVALID_HANDLE_VALUE) {
        throw FileNotOpened(path, static_cast<int>(GetLastError()));
    }
}

SegmentFile::~SegmentFile() { CloseHandle(handle_); }

void SegmentFile::expect_read(std::uint64_t, std::size_t) const noexcept {}

#else

namespace {

std::size_t read_some(int descriptor, std::uint64_t offset, std::uint8_t* target, std::size_t size) {
    for (;;) {
        const ssize_t num_read = pread(descriptor, target, size, static_cast<off_t>(offset));
        if (num_read >= 0) {
            return static_cast<std::size_t>(num_read);
        }
        if (errno != EINTR) {
            refuse_snapshot(errno);
        }
    }
}

}  // namespace

SegmentFile::SegmentFile(const std::string& path)
    // As file_system.py opens files: a link is not followed, and a pipe does not wait for its other end.
    : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
    struct stat opened{};
    if (descriptor_ < 0 || fstat(descriptor_, &opened) != 0 || !S_ISREG(opened.st_mode)) {
        const int error = errno;
        const bool is_no_file = descriptor_ < 0 ? error == ELOOP : !S_ISREG(opened.st_mode);
        if (descriptor_ >= 0) {
            close(descriptor_);
        }
        if (is_no_file) {
            throw DamagedSegment(path + ": it is a link, or no file: put the file itself there");
        }
        throw FileNotOpened(path, error);
    }
#ifdef POSIX_FADV_RANDOM
    // Segments are read whole and in random order, so reading ahead would fetch unused bytes.
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
#endif
}

SegmentFile::~SegmentFile() { close(descriptor_); }

void SegmentFile::expect_read(std::uint64_t offset, std::size_t size) const noexcept {
#ifdef POSIX_FADV_WILLNEED
    posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_WILLNEED);
#else
    (void)offset;
    (void)size;
#endif
}

#endif

void SegmentFile::read(std::uint64_t offset, std::uint8_t* target, std::size_t size) const {
    std::size_t done = 0;
    while (done < size) {
#ifdef _WIN32
        void* const file = handle_;
#else
        const int file = descriptor_;
#endif
        const std::size_t num_read = read_some(file, offset + done, target + done, std::min(size - done, kMostAtOnce));
        if (num_read == 0) {
            throw DamagedSegment("the file ends " + std::to_string(size - done) + " bytes before the segment does");
        }
        done += num_read;
    }
}

FilePlace SegmentFiles::add(const std::string& path, std::uint64_t offset, std::size_t size,
                            std::optional<std::uint32_t> checksum) {
    OpenFile& opened = files_.try_emplace(path, path).first->second;
    ++opened.num_segments;
    nbytes_ += size;
    return FilePlace{&opened.file, offset, size, checksum, std::nullopt};
}

void SegmentFiles::release(const FilePlace& place) {
    nbytes_ -= place.size;
    const auto opened = files_.find(place.file->path());
    if (--opened->second.num_segments == 0) {
        files_.erase(opened);
    }
}

std::size_t SegmentFiles::index_bytes() const {
    constexpr std::size_t kNodeBytes = 4 * sizeof(void*);  // estimate for the map
    std::size_t bytes = 0;
    for (const auto& [path, opened] : files_) {
        bytes += sizeof(opened) + sizeof(path) + 2 * path.capacity() + kNodeBytes;
    }
    return bytes;
}

ByteSpan read_segment(const FilePlace& place, SegmentBuffer& buffer) {
    if (buffer.size() < place.size + kReadPadding) {
        buffer.resize(place.size + kReadPadding);
    }
    place.file->read(place.offset, buffer.data(), place.size);
    const ByteSpan segment{buffer.data(), place.size};
    const bool is_written = place.of_all_bytes && *place.of_all_bytes == crc32c(segment);
    if (!is_written) {
        verify_checksum(segment);
    }
    const bool is_another = place.checksum ? *place.checksum != checksum_of(segment) : false;
    if (is_another || (place.of_all_bytes && !is_written)) {
        throw DamagedSegment("another segment stands there: its checksum is not the one that was written");
    }
    return segment;
}
namespace {

constexpr std::size_t kMostRawBytes = 2 * 1024;
constexpr std::size_t kMostBytes = 32 * 1024;  // per part; more would evict bytes being unpacked from the cache

// From `begin` up to `end` or the segment's end, at most `most` bytes.
ByteSpan part_of(ByteSpan segment, std::size_t begin, std::size_t end, std::size_t most) {
    end = std::min({end, begin + most, segment.size});
    return begin < end ? ByteSpan{segment.bytes + begin, end - begin} : ByteSpan{};
}

void prefetch_part(ByteSpan part) {
    for (std::size_t at = 0; at < part.size; at += kLineBytes) {
        prefetch(part.bytes + at);
    }
}

}  // namespace

void prefetch_directory(ByteSpan segment, const FrameGeometry& geometry, std::size_t first) {
    prefetch_part(part_of(segment, 0, 1, kLineBytes));
    const std::size_t entry = kHeaderBytes + first / default_group_frames(geometry) * kOffsetBytes;
    prefetch_part(part_of(segment, entry, entry + 3 * kOffsetBytes, kLineBytes + 1));
}

void prefetch_raw(ByteSpan segment, std::size_t begin) {
    prefetch_part(part_of(segment, kHeaderBytes + begin, segment.size, kMostRawBytes));
}

void prefetch_frames(ByteSpan segment, std::size_t first, std::size_t count, PrefetchQueue& queue) {
    if (segment.size < kHeaderBytes) {
        return;
    }
    const SegmentHeader header = peek_header(segment);
    const auto number = static_cast<std::uint8_t>(header.encoding);
    if (!is_encoding(number) || !row_of(header.encoding).has_base || header.group_frames == 0) {
        return;
    }
    const std::size_t group_frames = header.group_frames;
    const std::size_t num_groups = header.num_groups();
    const std::size_t body = kHeaderBytes + num_groups * kOffsetBytes;
    const std::size_t first_group = first / group_frames;
    const std::size_t end_group = (first + count - 1) / group_frames + 1;
    if (body > segment.size || end_group > num_groups) {
        return;
    }
    const auto begin_of = [&](std::size_t group) {
        return group < num_groups ? body + load_u32(segment.bytes + kHeaderBytes + group * kOffsetBytes) : segment.size;
    };
    queue.replace(part_of(segment, body, begin_of(0), kMostBytes),
                  part_of(segment, begin_of(first_group), begin_of(end_group), kMostBytes));
}

}  // namespace framestow
