// The files in which segments lie: each opened once, and closed when no segment lies in it any more.
//
// A path is the name of one file for as long as segments lie in it: it may be removed meanwhile, not given to another.
// Not thread-safe; reading from the files is.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "segment_place.hpp"

namespace framestow {

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

}  // namespace framestow
