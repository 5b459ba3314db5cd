// Indices within a span that may not be drawn, ascending: which others are left, by rank, without a search by trial.
//
// Threads: the caller keeps all calls apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class LostIndices {
public:
    std::size_t size() const { return indices_.size() - gone_; }
    const std::int64_t* begin() const { return indices_.data() + gone_; }
    const std::int64_t* end() const { return indices_.data() + indices_.size(); }

    bool contains(std::int64_t index) const;

    // Adds an index above all others.
    void push(std::int64_t index) { indices_.push_back(index); }

    // Adds ascending indices; returns how many are new.
    std::size_t add(const std::vector<std::int64_t>& ascending);

    // Forgets those below `oldest`.
    void drop_before(std::int64_t oldest);

    // The index that has `rank` others that are not lost between it and `oldest`, below which none is lost.
    std::int64_t other(std::int64_t oldest, std::int64_t rank) const;

private:
    std::vector<std::int64_t> indices_;
    std::size_t gone_ = 0;  // at the front, forgotten
};

}  // namespace framestow
