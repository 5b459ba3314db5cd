#include "step_index.hpp"

#include <algorithm>
#include <iterator>

namespace framestow {
namespace {

constexpr std::size_t kManyIndices = 4096;  // fewer keep their memory: the pending ones come and go

}  // namespace

void UnsampleableIndices::add(const std::vector<std::int64_t>& ascending) {
    std::vector<std::int64_t> all;
    all.reserve(size() + ascending.size());
    std::set_union(begin(), end(), ascending.begin(), ascending.end(), std::back_inserter(all));
    indices_ = std::move(all);
    num_removed_ = 0;
}

void UnsampleableIndices::remove(const std::vector<std::int64_t>& ascending) {
    if (std::equal(ascending.begin(), ascending.end(), begin())) {
        num_removed_ += ascending.size();
        compact();
        return;
    }
    const auto from = std::lower_bound(indices_.begin() + static_cast<std::ptrdiff_t>(num_removed_), indices_.end(),
                                       ascending.front());
    auto leaving = ascending.begin();
    indices_.erase(std::remove_if(from, indices_.end(),
                                  [&](std::int64_t index) {
                                      const bool is_leaving = leaving != ascending.end() && *leaving == index;
                                      leaving += is_leaving ? 1 : 0;
                                      return is_leaving;
                                  }),
                   indices_.end());
}

void UnsampleableIndices::remove_before(std::int64_t oldest) {
    while (num_removed_ < indices_.size() && indices_[num_removed_] < oldest) {
        ++num_removed_;
    }
    compact();
}

void UnsampleableIndices::compact() {
    if (num_removed_ > 64 && num_removed_ > indices_.size() / 2) {
        indices_.erase(indices_.begin(), indices_.begin() + static_cast<std::ptrdiff_t>(num_removed_));
        num_removed_ = 0;
        if (indices_.capacity() > kManyIndices && indices_.capacity() / 2 >= indices_.size()) {
            indices_.shrink_to_fit();
        }
    }
}

bool UnsampleableIndices::is_among(std::int64_t index) const { return std::binary_search(begin(), end(), index); }

std::int64_t UnsampleableIndices::sampleable_among(std::int64_t oldest, std::int64_t rank) const {
    // Before unsampleable index number k there are `indices_[k] - oldest - k` sampleable ones, which never decreases
    // with k.
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

bool EnvCursors::are_known(const std::int32_t* env_ids, std::size_t count) {
    ++num_checks_;
    for (std::size_t row = 0; row < count; ++row) {
        const auto env_id = static_cast<std::size_t>(env_ids[row]);
        if (env_ids[row] < 0 || env_id >= num_envs() || last_check_of_[env_id] == num_checks_) {
            return false;
        }
        last_check_of_[env_id] = num_checks_;
    }
    return true;
}

bool EnvCursors::may_append(const std::int32_t* env_ids, std::size_t count) {
    return are_known(env_ids, count) && std::all_of(env_ids, env_ids + count, [&](std::int32_t env_id) {
               return is_open(static_cast<std::size_t>(env_id));
           });
}

}  // namespace framestow
