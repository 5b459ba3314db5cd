#include "segment_files.hpp"

namespace framestow {

FilePlace SegmentFiles::add(const std::string& path, std::uint64_t offset, std::size_t size,
                            std::optional<std::uint32_t> checksum) {
    OpenFile& opened = files_.try_emplace(path, path).first->second;
    ++opened.num_segments;
    nbytes_ += size;
    return FilePlace{&opened.file, offset, size, checksum};
}

void SegmentFiles::release(const FilePlace& place) {
    nbytes_ -= place.size;
    const auto opened = files_.find(place.file->path());
    if (--opened->second.num_segments == 0) {
        files_.erase(opened);
    }
}

std::size_t SegmentFiles::index_bytes() const {
    constexpr std::size_t kNodeBytes = 4 * sizeof(void*);  // of the map, about
    std::size_t bytes = 0;
    for (const auto& [path, opened] : files_) {
        bytes += sizeof(opened) + sizeof(path) + 2 * path.capacity() + kNodeBytes;
    }
    return bytes;
}

}  // namespace framestow
