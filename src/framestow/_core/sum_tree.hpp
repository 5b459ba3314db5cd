// A sum tree: weights of slots, and the slot at a given partial sum.
//
// Nodes have 16 children, so that a node fills one or two cache lines and a million slots need five levels. A node's
// sum is always recomputed from its children, never adjusted by a difference. So the sums depend on the weights alone
// and rounding errors do not accumulate. Weights are float, sums double.
//
// Weights lie in pages of 4,096 slots with the nodes above them. A page whose weights are all zero is freed, so a
// sparse ring needs memory only for its used pages.
//
// Threads: the caller serialises all calls. Nothing is checked: weights must be finite and not negative, slots not
// negative unless stated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

namespace framestow {

class SumTree {
public:
    double total() const { return total_; }
    float smallest() const { return smallest_; }  // of the weights above zero; infinite if there is none
    std::size_t nbytes() const;

    // Returns the weight of a slot; 0 if it was never set.
    float weight(std::size_t slot) const;

    // Sets weights; the last row of a repeated slot counts. Skips rows with a negative slot. Changes nothing if memory
    // runs out.
    void set(const std::int64_t* slots, const float* weights, std::size_t count);

    // Finds the slot of each target in [0, total()): the first slot whose cumulative weight exceeds the target.
    // Rounding never selects a slot of weight zero. Requires total() > 0.
    void find(const double* targets, std::size_t count, std::int64_t* slots, float* weights) const;

private:
    static constexpr std::size_t kFanOut = 16;                     // children of a node
    static constexpr std::size_t kNodeLeaves = kFanOut * kFanOut;  // slots below an upper node; lower nodes of a page
    static constexpr std::size_t kPageLeaves = kFanOut * kNodeLeaves;       // slots of a page
    static constexpr float kNone = std::numeric_limits<float>::infinity();  // minimum where no weight is above zero

    template <std::size_t num_nodes>
    struct Nodes {
        double sums[num_nodes] = {};
        float minima[num_nodes];
        Nodes();
    };

    struct alignas(64) Page {
        float weights[kPageLeaves] = {};
        Nodes<kNodeLeaves> lower;  // 16 weights each
        Nodes<kFanOut> upper;      // 16 lower nodes each
    };

    struct Level {  // nodes above the pages: one page each, then 16 nodes of the level below
        std::vector<double> sums;
        std::vector<float> minima;
    };

    void make_pages(const std::int64_t* slots, const float* weights, std::size_t count);
    void make_levels(std::size_t num_pages);
    void refresh_page_nodes(const std::int64_t* slots, std::size_t count);
    void refresh_pages(const std::int64_t* slots, std::size_t count);
    void refresh_page(std::size_t page);
    void refresh_levels(const std::int64_t* slots, std::size_t count);
    void set_few(const std::int64_t* slots, const float* weights, std::size_t count);
    void find_few(const double* targets, std::size_t count, std::int64_t* slots, float* weights) const;

    std::vector<std::unique_ptr<Page>> pages_;  // null if all weights are zero; one per node of the lowest level
    std::vector<Level> levels_;                 // each padded to a multiple of 16 nodes; the last has 16
    std::size_t num_pages_ = 0;                 // number of pages that are not null
    double total_ = 0.0;
    float smallest_ = kNone;
};

}  // namespace framestow
