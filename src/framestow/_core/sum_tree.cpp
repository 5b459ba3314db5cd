#include "sum_tree.hpp"

#include <algorithm>

#include "processor.hpp"

namespace framestow {
namespace {

constexpr std::size_t kWide = 16;        // children per node
constexpr std::size_t kRowsAtOnce = 64;  // processed level by level, so that their cache misses overlap

inline void prefetch_node(const double* sums) {  // the sums of its children
    prefetch(sums);
    prefetch(sums + kWide / 2);
}

// Adds in four lanes, which compilers vectorise without reordering sums.
template <typename Number>
double sum_of(const Number* children) {
    double lanes[4] = {};
    for (std::size_t start = 0; start < kWide; start += 4) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            lanes[lane] += static_cast<double>(children[start + lane]);
        }
    }
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

float minimum_of(const float* children) {
    float lanes[4] = {children[0], children[1], children[2], children[3]};
    for (std::size_t start = 4; start < kWide; start += 4) {
        for (std::size_t lane = 0; lane < 4; ++lane) {
            lanes[lane] = std::min(lanes[lane], children[start + lane]);
        }
    }
    return std::min(std::min(lanes[0], lanes[1]), std::min(lanes[2], lanes[3]));
}

float minimum_above_zero(const float* weights, float none) {
    float above_zero[kWide];
    for (std::size_t at = 0; at < kWide; ++at) {
        above_zero[at] = weights[at] > 0.0F ? weights[at] : none;
    }
    return minimum_of(above_zero);
}

// Returns the first of `count` numbers whose cumulative sum exceeds `target`, and subtracts the earlier ones from
// `target`. Branchless: the comparisons are unpredictable.
template <typename Number>
std::size_t place_in(const Number* numbers, double& target) {
    double sum = 0.0, before = 0.0;
    std::size_t place = 0;
    for (std::size_t at = 0; at < 4; ++at) {
        sum += static_cast<double>(numbers[at]);
        const bool is_behind = sum <= target;
        place += is_behind ? 1 : 0;
        before = is_behind ? sum : before;
    }
    if (place == 4) {  // rounding: `target` is below the node's sum
        do {
            --place;
        } while (!(numbers[place] > 0));
        target = static_cast<double>(numbers[place]);
        return place;
    }
    target -= before;
    return place;
}

// Returns the child that `target` falls into and subtracts the earlier ones, first by quarters of the node.
template <typename Number>
std::size_t child_at(const Number* children, double& target) {
    double quarters[4];
    for (std::size_t quarter = 0; quarter < 4; ++quarter) {
        const Number* first = children + 4 * quarter;
        quarters[quarter] = (static_cast<double>(first[0]) + static_cast<double>(first[1])) +
                            (static_cast<double>(first[2]) + static_cast<double>(first[3]));
    }
    const std::size_t start = 4 * place_in(quarters, target);
    return start + place_in(children + start, target);
}

// Calls use(node) for the node of each slot, `leaves` slots per node; once for consecutive slots of one node.
template <typename Use>
void each_node(const std::int64_t* slots, std::size_t count, std::size_t leaves, Use use) {
    std::size_t last = std::numeric_limits<std::size_t>::max();
    for (std::size_t row = 0; row < count; ++row) {
        if (slots[row] >= 0 && static_cast<std::size_t>(slots[row]) / leaves != last) {
            last = static_cast<std::size_t>(slots[row]) / leaves;
            use(last);
        }
    }
}

}  // namespace

template <std::size_t num_nodes>
SumTree::Nodes<num_nodes>::Nodes() {
    std::fill_n(minima, num_nodes, kNone);
}

std::size_t SumTree::nbytes() const {
    std::size_t bytes = num_pages_ * sizeof(Page) + pages_.capacity() * sizeof(pages_[0]);
    for (const Level& level : levels_) {
        bytes += level.sums.capacity() * sizeof(double) + level.minima.capacity() * sizeof(float);
    }
    return bytes;
}

float SumTree::weight(std::size_t slot) const {
    const std::size_t page = slot / kPageLeaves;
    return page < pages_.size() && pages_[page] ? pages_[page]->weights[slot % kPageLeaves] : 0.0F;
}

void SumTree::set(const std::int64_t* slots, const float* weights, std::size_t count) {
    make_pages(slots, weights, count);
    for (std::size_t row = 0; row < count; row += kRowsAtOnce) {
        set_few(slots + row, weights + row, std::min(kRowsAtOnce, count - row));
    }
    refresh_page_nodes(slots, count);
    refresh_pages(slots, count);
    refresh_levels(slots, count);
}

void SumTree::set_few(const std::int64_t* slots, const float* weights, std::size_t count) {
    float* places[kRowsAtOnce];
    for (std::size_t row = 0; row < count; ++row) {
        const std::size_t number = slots[row] < 0 ? pages_.size() : static_cast<std::size_t>(slots[row]) / kPageLeaves;
        places[row] = nullptr;  // without a page the weight is zero and remains zero
        if (number < pages_.size() && pages_[number]) {
            Page& page = *pages_[number];
            const std::size_t place = static_cast<std::size_t>(slots[row]) % kPageLeaves;
            places[row] = page.weights + place;
            prefetch(places[row]);
            prefetch_node(page.lower.sums + place / kNodeLeaves * kFanOut);
            prefetch(page.lower.minima + place / kNodeLeaves * kFanOut);
            prefetch_node(page.upper.sums);
            prefetch(page.upper.minima);
        }
    }
    for (std::size_t row = 0; row < count; ++row) {
        if (places[row] != nullptr) {
            *places[row] = weights[row];
        }
    }
}

void SumTree::find(const double* targets, std::size_t count, std::int64_t* slots, float* weights) const {
    for (std::size_t row = 0; row < count; row += kRowsAtOnce) {
        find_few(targets + row, std::min(kRowsAtOnce, count - row), slots + row, weights + row);
    }
}

void SumTree::make_pages(const std::int64_t* slots, const float* weights, std::size_t count) {
    for (std::size_t row = 0; row < count; ++row) {
        if (slots[row] < 0 || !(weights[row] > 0.0F)) {
            continue;
        }
        const std::size_t page = static_cast<std::size_t>(slots[row]) / kPageLeaves;
        if (page >= pages_.size()) {
            make_levels(page + 1);
        }
        if (!pages_[page]) {
            pages_[page] = std::make_unique<Page>();
            ++num_pages_;
        }
    }
}

// At least doubles the levels, so the cost per page is small.
void SumTree::make_levels(std::size_t num_pages) {
    std::size_t num_nodes = std::max(num_pages, 2 * pages_.size());
    std::vector<Level> levels;
    do {
        num_nodes = (num_nodes + kFanOut - 1) / kFanOut * kFanOut;
        levels.push_back(Level{std::vector<double>(num_nodes), std::vector<float>(num_nodes, kNone)});
        num_nodes /= kFanOut;
    } while (num_nodes > 1);
    pages_.resize(levels[0].sums.size());
    levels_.swap(levels);
    for (std::size_t page = 0; page < pages_.size(); ++page) {
        refresh_page(page);
    }
    refresh_levels(nullptr, std::numeric_limits<std::size_t>::max());  // all of them
}

void SumTree::refresh_page_nodes(const std::int64_t* slots, std::size_t count) {
    each_node(slots, count, kFanOut, [this](std::size_t node) {
        if (node / kNodeLeaves >= pages_.size() || !pages_[node / kNodeLeaves]) {
            return;
        }
        Page& page = *pages_[node / kNodeLeaves];
        const std::size_t place = node % kNodeLeaves;
        page.lower.sums[place] = sum_of(page.weights + place * kFanOut);
        page.lower.minima[place] = minimum_above_zero(page.weights + place * kFanOut, kNone);
    });
    each_node(slots, count, kNodeLeaves, [this](std::size_t node) {
        if (node / kFanOut >= pages_.size() || !pages_[node / kFanOut]) {
            return;
        }
        Page& page = *pages_[node / kFanOut];
        const std::size_t place = node % kFanOut;
        page.upper.sums[place] = sum_of(page.lower.sums + place * kFanOut);
        page.upper.minima[place] = minimum_of(page.lower.minima + place * kFanOut);
    });
}

void SumTree::refresh_pages(const std::int64_t* slots, std::size_t count) {
    each_node(slots, count, kPageLeaves, [this](std::size_t page) {
        if (page < pages_.size()) {
            refresh_page(page);
            if (pages_[page] && !(levels_[0].sums[page] > 0.0)) {
                pages_[page].reset();
                --num_pages_;
            }
        }
    });
}

void SumTree::refresh_page(std::size_t page) {
    levels_[0].sums[page] = pages_[page] ? sum_of(pages_[page]->upper.sums) : 0.0;
    levels_[0].minima[page] = pages_[page] ? minimum_of(pages_[page]->upper.minima) : kNone;
}

void SumTree::refresh_levels(const std::int64_t* slots, std::size_t count) {
    if (levels_.empty()) {
        return;
    }
    std::size_t leaves = kPageLeaves;
    for (std::size_t above = 1; above < levels_.size(); ++above) {
        const Level& below = levels_[above - 1];
        Level& level = levels_[above];
        const std::size_t num_nodes = below.sums.size() / kFanOut;
        const auto refresh = [&](std::size_t node) {
            level.sums[node] = sum_of(below.sums.data() + node * kFanOut);
            level.minima[node] = minimum_of(below.minima.data() + node * kFanOut);
        };
        leaves *= kFanOut;
        if (count < num_nodes) {
            each_node(slots, count, leaves, [&](std::size_t node) {
                if (node < num_nodes) {
                    refresh(node);
                }
            });
            continue;
        }
        for (std::size_t node = 0; node < num_nodes; ++node) {
            refresh(node);
        }
    }
    total_ = sum_of(levels_.back().sums.data());
    smallest_ = minimum_of(levels_.back().minima.data());
}

void SumTree::find_few(const double* targets, std::size_t count, std::int64_t* slots, float* weights) const {
    double left[kRowsAtOnce];
    std::size_t nodes[kRowsAtOnce] = {};
    std::copy_n(targets, count, left);
    for (std::size_t above = levels_.size(); above-- > 0;) {
        for (std::size_t row = 0; row < count; ++row) {
            nodes[row] = nodes[row] * kFanOut + child_at(levels_[above].sums.data() + nodes[row] * kFanOut, left[row]);
            if (above != 0) {
                prefetch_node(levels_[above - 1].sums.data() + nodes[row] * kFanOut);
            }
        }
    }
    for (std::size_t row = 0; row < count; ++row) {
        prefetch_node(pages_[nodes[row]]->upper.sums);
    }
    for (std::size_t row = 0; row < count; ++row) {
        const Page& page = *pages_[nodes[row]];
        nodes[row] = nodes[row] * kFanOut + child_at(page.upper.sums, left[row]);
        prefetch_node(page.lower.sums + nodes[row] % kFanOut * kFanOut);
    }
    for (std::size_t row = 0; row < count; ++row) {
        const Page& page = *pages_[nodes[row] / kFanOut];
        const std::size_t first = nodes[row] % kFanOut * kFanOut;
        nodes[row] = nodes[row] * kFanOut + child_at(page.lower.sums + first, left[row]);
        prefetch(page.weights + nodes[row] % kNodeLeaves * kFanOut);
    }
    for (std::size_t row = 0; row < count; ++row) {
        const float* leaves = pages_[nodes[row] / kNodeLeaves]->weights + nodes[row] % kNodeLeaves * kFanOut;
        const std::size_t leaf = child_at(leaves, left[row]);
        slots[row] = static_cast<std::int64_t>(nodes[row] * kFanOut + leaf);
        weights[row] = leaves[leaf];
    }
}

}  // namespace framestow
