// Indices within a span that may not be drawn, ascending: which others are left, by rank, without a search by trial.
//
// Usually there are none, or only the newest few, which wait for the steps that their returns still lack: then a rank is
// found by one comparison, and the oldest of those few are taken out at the front. Otherwise a rank takes log2(hidden)
// comparisons, and taking some out moves those behind them.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class HiddenIndices {
public:
    std::size_t size() const { return indices_.size() - gone_; }
    const std::int64_t* begin() const { return indices_.data() + gone_; }
    const std::int64_t* end() const { return indices_.data() + indices_.size(); }

    bool contains(std::int64_t index) const { return size() != 0 && index >= *begin() && is_among(index); }

    // Adds an index above all others.
    void push(std::int64_t index) { indices_.push_back(index); }

    // Adds ascending indices, some of which may be here.
    void add(const std::vector<std::int64_t>& ascending);

    // Takes out ascending indices, all of which are here.
    void remove(const std::vector<std::int64_t>& ascending);

    // Forgets those below `oldest`.
    void drop_before(std::int64_t oldest);

    // The index that has `rank` others that are not hidden between it and `oldest`, below which none is.
    std::int64_t other(std::int64_t oldest, std::int64_t rank) const {
        return size() == 0 || oldest + rank < *begin() ? oldest + rank : other_among(oldest, rank);
    }

private:
    bool is_among(std::int64_t index) const;
    std::int64_t other_among(std::int64_t oldest, std::int64_t rank) const;
    void close_up();

    std::vector<std::int64_t> indices_;
    std::size_t gone_ = 0;  // at the front, forgotten
};

}  // namespace framestow
