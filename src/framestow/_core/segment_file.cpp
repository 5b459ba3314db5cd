#include "segment_file.hpp"

#include <algorithm>
#include <system_error>

#include "damaged_segment.hpp"

#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace framestow {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // systems read 2 GiB at most in a call

[[noreturn]] void refuse_reading(int error) {
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

// Gives how many bytes were read, none at the file's end.
std::size_t read_some(void* handle, std::uint64_t offset, std::uint8_t* target, std::size_t size) {
    OVERLAPPED place{};
    place.Offset = static_cast<DWORD>(offset & 0xFFFFFFFFU);
    place.OffsetHigh = static_cast<DWORD>(offset >> 32);
    DWORD num_read = 0;
    if (!ReadFile(handle, target, static_cast<DWORD>(size), &num_read, &place) && GetLastError() != ERROR_HANDLE_EOF) {
        refuse_reading(static_cast<int>(GetLastError()));
    }
    return num_read;
}

}  // namespace

SegmentFile::SegmentFile(const std::string& path)
    : path_(path),
      // Others may write, rename and remove it.
      handle_(CreateFileW(widened(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                          nullptr, OPEN_EXISTING, FILE_FLAG_RANDOM_ACCESS, nullptr)) {
    if (handle_ == INVALID_HANDLE_VALUE) {
        throw FileNotOpened(path, static_cast<int>(GetLastError()));
    }
}

SegmentFile::~SegmentFile() { CloseHandle(handle_); }

void SegmentFile::expect_reading(std::uint64_t, std::size_t) const noexcept {}

#else

namespace {

std::size_t read_some(int descriptor, std::uint64_t offset, std::uint8_t* target, std::size_t size) {
    for (;;) {
        const ssize_t num_read = pread(descriptor, target, size, static_cast<off_t>(offset));
        if (num_read >= 0) {
            return static_cast<std::size_t>(num_read);
        }
        if (errno != EINTR) {
            refuse_reading(errno);
        }
    }
}

}  // namespace

SegmentFile::SegmentFile(const std::string& path) : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) {
        throw FileNotOpened(path, errno);
    }
#ifdef POSIX_FADV_RANDOM
    // Segments are read whole and anywhere: reading ahead would fetch what nobody asks for.
    posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
#endif
}

SegmentFile::~SegmentFile() { close(descriptor_); }

void SegmentFile::expect_reading(std::uint64_t offset, std::size_t size) const noexcept {
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

}  // namespace framestow
