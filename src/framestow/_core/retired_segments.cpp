#include "retired_segments.hpp"

namespace framestow {

void RetiredSegments::add(Ticket retirement, std::size_t stream, std::int64_t number, const SegmentPlace& place) {
    retired_.push_back(Retired{retirement, stream, number, place});
    nbytes_ += bytes_in_ram(place).size;
}

void RetiredSegments::free_before(Ticket ticket) {
    auto first_kept = retired_.begin();
    for (; first_kept != retired_.end() && first_kept->retirement < ticket; ++first_kept) {
        if (const auto* const stored = std::get_if<StoredSegment>(&first_kept->place)) {
            nbytes_ -= stored->size;
            arena_.release(*stored);
        } else {
            files_.release(std::get<FilePlace>(first_kept->place));
        }
    }
    retired_.erase(retired_.begin(), first_kept);
}

const SegmentPlace* RetiredSegments::find(std::size_t stream, std::int64_t number, Ticket ticket) const {
    for (const Retired& retired : retired_) {
        if (retired.stream == stream && retired.number == number && retired.retirement >= ticket) {
            return &retired.place;
        }
    }
    return nullptr;
}

}  // namespace framestow
