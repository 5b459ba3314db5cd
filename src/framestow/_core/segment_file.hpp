// A file that sealed segments are read from: opened once, read at any offset by any number of threads.
//
// Read with pread (ReadFile with an offset elsewhere), never mapped: a mapped file that is cut short ends the process
// with SIGBUS, and bytes that are verified and then read again from a page may have changed in between. The file may be
// appended to, renamed and removed meanwhile; what was there when it was opened stays readable.
//
// Ownership: closes what it opened. A process that forks reads on in both.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

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

}  // namespace framestow
