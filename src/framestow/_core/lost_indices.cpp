#include "lost_indices.hpp"

#include <algorithm>
#include <iterator>

namespace framestow {

bool LostIndices::contains(std::int64_t index) const { return std::binary_search(begin(), end(), index); }

std::size_t LostIndices::add(const std::vector<std::int64_t>& ascending) {
    const std::size_t before = size();
    std::vector<std::int64_t> all;
    all.reserve(before + ascending.size());
    std::set_union(begin(), end(), ascending.begin(), ascending.end(), std::back_inserter(all));
    indices_ = std::move(all);
    gone_ = 0;
    return indices_.size() - before;
}

void LostIndices::drop_before(std::int64_t oldest) {
    while (gone_ < indices_.size() && indices_[gone_] < oldest) {
        ++gone_;
    }
    if (gone_ > 64 && gone_ > indices_.size() / 2) {
        indices_.erase(indices_.begin(), indices_.begin() + static_cast<std::ptrdiff_t>(gone_));
        gone_ = 0;
    }
}

std::int64_t LostIndices::other(std::int64_t oldest, std::int64_t rank) const {
    // Between `oldest` and lost index number k there are `lost[k] - oldest - k` others, which never falls with k.
    const std::int64_t* lost = begin();
    std::size_t low = 0, high = size();
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (lost[middle] - oldest - static_cast<std::int64_t>(middle) <= rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return oldest + rank + static_cast<std::int64_t>(low);
}

}  // namespace framestow
