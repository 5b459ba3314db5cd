#include "step_index.hpp"

#include <algorithm>
#include <iterator>

namespace framestow {

void HiddenIndices::add(const std::vector<std::int64_t>& ascending) {
    std::vector<std::int64_t> all;
    all.reserve(size() + ascending.size());
    std::set_union(begin(), end(), ascending.begin(), ascending.end(), std::back_inserter(all));
    indices_ = std::move(all);
    gone_ = 0;
}

void HiddenIndices::remove(const std::vector<std::int64_t>& ascending) {
    if (std::equal(ascending.begin(), ascending.end(), begin())) {
        gone_ += ascending.size();
        close_up();
        return;
    }
    const auto from = std::lower_bound(indices_.begin() + static_cast<std::ptrdiff_t>(gone_), indices_.end(),
                                       ascending.front());
    auto leaving = ascending.begin();
    indices_.erase(std::remove_if(from, indices_.end(),
                                  [&](std::int64_t index) {
                                      const bool leaves = leaving != ascending.end() && *leaving == index;
                                      leaving += leaves ? 1 : 0;
                                      return leaves;
                                  }),
                   indices_.end());
}

void HiddenIndices::drop_before(std::int64_t oldest) {
    while (gone_ < indices_.size() && indices_[gone_] < oldest) {
        ++gone_;
    }
    close_up();
}

void HiddenIndices::close_up() {
    if (gone_ > 64 && gone_ > indices_.size() / 2) {
        indices_.erase(indices_.begin(), indices_.begin() + static_cast<std::ptrdiff_t>(gone_));
        gone_ = 0;
    }
}

bool HiddenIndices::is_among(std::int64_t index) const { return std::binary_search(begin(), end(), index); }

std::int64_t HiddenIndices::other_among(std::int64_t oldest, std::int64_t rank) const {
    // Between `oldest` and hidden index number k there are `hidden[k] - oldest - k` others, which never falls with k.
    const std::int64_t* hidden = begin();
    std::size_t low = 0, high = size();
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (hidden[middle] - oldest - static_cast<std::int64_t>(middle) <= rank) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return oldest + rank + static_cast<std::int64_t>(low);
}


bool StreamCourses::may_append(const std::int32_t* streams, std::size_t count) {
    ++num_checks_;
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        if (streams[row] < 0 || stream >= memory_.num_streams || !memory_.is_open[stream] ||
            named_in_[stream] == num_checks_) {
            return false;
        }
        named_in_[stream] = num_checks_;
    }
    return true;
}

}  // namespace framestow
