// Weights in a row of slots, and for a number below their sum the slot that it falls into: a sum tree whose nodes have
// 16 children, so that a node is one or two cache lines and a million slots are five nodes deep.
//
// The sum of a node is always computed anew from its children, never by adding a difference: sums follow from the
// weights alone, whatever came before, and no error grows. Weights are float, sums double.
//
// Weights lie in pages of 4,096 slots, together with the nodes over them. A page whose weights are all zero is given
// back, so a ring whose few held slots wander through many takes memory for those alone.
//
// Threads: the caller keeps all calls apart. Nothing is checked: slots must not be negative but where it is said,
// weights be finite and not negative.
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
    float smallest() const { return smallest_; }  // of the weights above zero; infinite where there is none
    std::size_t nbytes() const;

    // The weight of a slot; 0 for one that never had any.
    float weight(std::size_t slot) const;

    // Sets weights in order: where a slot comes twice, the last one counts. Leaves out rows with a negative slot.
    // Where memory runs out nothing is changed.
    void set(const std::int64_t* slots, const float* weights, std::size_t count);

    // Finds the slots that targets, from 0 on and below total(), fall into: the first up to which the weights sum up to
    // more. However sums are rounded, the weight of such a slot is above zero. There must be one: total() > 0.
    void find(const double* targets, std::size_t count, std::int64_t* slots, float* weights) const;

private:
    static constexpr std::size_t kFanOut = 16;
    static constexpr std::size_t kNodeLeaves = kFanOut * kFanOut;
    static constexpr std::size_t kPageLeaves = kFanOut * kNodeLeaves;
    static constexpr float kNone = std::numeric_limits<float>::infinity();

    template <std::size_t num_nodes>
    struct Nodes {
        double sums[num_nodes] = {};
        float minima[num_nodes];
        Nodes();
    };

    struct alignas(64) Page {
        float weights[kPageLeaves] = {};
        Nodes<kNodeLeaves> lower;  // of 16 weights each
        Nodes<kFanOut> upper;      // of 16 lower nodes each
    };

    struct Level {  // nodes over the pages: of one page each, then of 16 nodes of the level below
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

    std::vector<std::unique_ptr<Page>> pages_;  // null where all weights are zero; as many as the lowest level has nodes
    std::vector<Level> levels_;                 // of whole sixteens of nodes; the last one has 16
    std::size_t num_pages_ = 0;                 // that are not null
    double total_ = 0.0;
    float smallest_ = kNone;
};

}  // namespace framestow
