// Counts in a row of places, and by rank in which place the n-th counted thing lies: a binary indexed tree
// (Fenwick 1994), so that a change and a search take log2(places) steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace framestow {

class PrefixCounts {
public:
    struct Found {
        std::size_t place;
        std::uint64_t rank;  // among those of that place
    };

    std::size_t num_places() const { return sums_.size(); }
    std::uint64_t total() const { return total_; }
    std::size_t nbytes() const { return sums_.capacity() * sizeof(std::uint64_t); }

    void clear() {
        sums_.clear();
        total_ = 0;
    }

    void push_back(std::uint64_t count) {
        const std::size_t node = sums_.size() + 1;
        std::uint64_t sum = count;  // of the lowest_bit(node) places up to this one
        for (std::size_t step = 1; step < lowest_bit(node); step *= 2) {
            sum += sums_[node - step - 1];
        }
        sums_.push_back(sum);
        total_ += count;
    }

    void add(std::size_t place, std::uint64_t count) {  // 0 - count takes away
        total_ += count;
        for (std::size_t node = place + 1; node <= sums_.size(); node += lowest_bit(node)) {
            sums_[node - 1] += count;
        }
    }

    Found find(std::uint64_t rank) const {  // below total()
        std::size_t node = 0, step = 1;
        while (2 * step <= sums_.size()) {
            step *= 2;
        }
        for (; step != 0; step /= 2) {
            if (node + step > sums_.size()) {
                continue;
            }
            const std::uint64_t sum = sums_[node + step - 1];  // no branch on it: which way is anybody's guess
            const std::uint64_t is_behind = sum <= rank ? 1 : 0;
            node += step * static_cast<std::size_t>(is_behind);
            rank -= sum & (0 - is_behind);
        }
        return Found{node, rank};
    }

private:
    static std::size_t lowest_bit(std::size_t node) { return node & (~node + 1); }

    std::vector<std::uint64_t> sums_;  // entry n - 1: the counts of the lowest_bit(n) places before place n
    std::uint64_t total_ = 0;
};

}  // namespace framestow
