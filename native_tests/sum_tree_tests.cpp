// Tests of the sum tree against a plain array. Exits with 0 on success.
#include "sum_tree.hpp"

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "check.hpp"

using namespace framestow;

namespace {

// Compares a tree with the weights that it should have.
void check_tree(const SumTree& tree, const std::map<std::int64_t, float>& weights) {
    double total = 0.0;
    float smallest = std::numeric_limits<float>::infinity();
    for (const auto& [slot, weight] : weights) {
        CHECK(tree.weight(static_cast<std::size_t>(slot)) == weight);
        total += static_cast<double>(weight);
        smallest = weight > 0.0F ? std::min(smallest, weight) : smallest;
    }
    CHECK(std::abs(tree.total() - total) <= 1e-12 * total);
    CHECK(tree.smallest() == smallest);
}

// Checks that a target in the middle of a slot's share finds that slot.
void check_every_slot_is_found(const SumTree& tree, const std::map<std::int64_t, float>& weights) {
    std::vector<double> targets;
    std::vector<std::int64_t> expected;
    double before = 0.0;
    for (const auto& [slot, weight] : weights) {
        if (weight > 0.0F) {
            targets.push_back(before + static_cast<double>(weight) / 2);
            expected.push_back(slot);
            before += static_cast<double>(weight);
        }
    }
    std::vector<std::int64_t> slots(targets.size());
    std::vector<float> found(targets.size());
    tree.find(targets.data(), targets.size(), slots.data(), found.data());
    CHECK(slots == expected);
    for (std::size_t row = 0; row < slots.size(); ++row) {
        CHECK(found[row] == weights.at(slots[row]));
    }
}

void random_changes_equal_those_of_an_array(std::int64_t num_slots, std::uint32_t seed) {
    std::mt19937 random(seed);
    SumTree tree;
    std::map<std::int64_t, float> weights;
    for (int round = 0; round < 30; ++round) {
        std::vector<std::int64_t> slots;
        std::vector<float> values;
        const std::size_t count = round % 10 == 9 ? 3000 : random() % 70;
        for (std::size_t row = 0; row < count; ++row) {
            const auto slot = static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(num_slots + 1)) - 1;
            const bool is_zero = random() % 4 == 0;
            slots.push_back(slot);
            const auto value = std::ldexp(static_cast<float>(random() % 1000 + 1), static_cast<int>(random() % 20));
            values.push_back(is_zero ? 0.0F : value);
            if (slot >= 0) {
                weights[slot] = values.back();
            }
        }
        tree.set(slots.data(), values.data(), count);
        check_tree(tree, weights);
        check_every_slot_is_found(tree, weights);
    }
}

void targets_at_borders_never_find_a_zero_weight() {
    SumTree tree;
    const std::vector<std::int64_t> slots{0, 1, 2, 3, 20, 5000};
    const std::vector<float> weights{0.0F, 0.1F, 0.0F, 0.2F, 0.3F, 0.0F};
    tree.set(slots.data(), weights.data(), slots.size());
    const double all = tree.total();
    const std::vector<double> targets{0.0, static_cast<double>(0.1F), std::nextafter(all, 0.0), all, 2 * all};
    std::vector<std::int64_t> found(targets.size());
    std::vector<float> found_weights(targets.size());
    tree.find(targets.data(), targets.size(), found.data(), found_weights.data());
    CHECK((found == std::vector<std::int64_t>{1, 3, 20, 20, 20}));
}

void ten_million_updates_leave_no_drift() {
    constexpr std::size_t kSlots = 5000, kBatch = 1000;
    std::mt19937 random(7);
    SumTree tree, fresh;
    std::vector<std::int64_t> slots(kBatch);
    std::vector<float> weights(kBatch), last(kSlots);
    for (std::size_t round = 0; round < 10'000'000 / kBatch; ++round) {
        for (std::size_t row = 0; row < kBatch; ++row) {
            slots[row] = static_cast<std::int64_t>(random() % kSlots);
            weights[row] = std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(random() % 30));
            last[static_cast<std::size_t>(slots[row])] = weights[row];
        }
        tree.set(slots.data(), weights.data(), kBatch);
    }
    std::vector<std::int64_t> all_slots;
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
        all_slots.push_back(static_cast<std::int64_t>(slot));
    }
    fresh.set(all_slots.data(), last.data(), kSlots);
    CHECK(tree.total() == fresh.total());
    CHECK(tree.smallest() == fresh.smallest());
}

void pages_without_a_weight_are_freed() {
    SumTree tree;
    std::size_t most = 0;
    constexpr std::int64_t kWindow = 10'000, kSlots = 5'000'000, kStride = 5000;
    std::vector<std::int64_t> slots;
    std::vector<float> weights;
    for (std::int64_t first = 0; first < kSlots; first += kStride) {
        slots.clear();
        weights.clear();
        for (std::int64_t slot = first - kWindow; slot < first - kWindow + kStride; ++slot) {
            slots.push_back(std::max<std::int64_t>(slot, -1));
            weights.push_back(0.0F);
        }
        for (std::int64_t slot = first; slot < first + kStride; ++slot) {
            slots.push_back(slot);
            weights.push_back(1.0F);
        }
        tree.set(slots.data(), weights.data(), slots.size());
        most = std::max(most, tree.nbytes());
    }
    CHECK(tree.total() == static_cast<double>(kWindow));
    CHECK(most < 200'000);
}

void an_empty_tree_accepts_any_weights() {
    SumTree tree;
    CHECK(tree.total() == 0.0 && tree.nbytes() == 0 && tree.weight(12345) == 0.0F);
    const std::int64_t slot = 7;
    const float zero = 0.0F, one = 1.0F;
    tree.set(&slot, &zero, 1);
    tree.set(nullptr, nullptr, 0);
    CHECK(tree.total() == 0.0 && tree.nbytes() == 0);
    tree.set(&slot, &one, 1);
    CHECK(tree.total() == 1.0 && tree.smallest() == 1.0F);
    tree.set(&slot, &zero, 1);
    CHECK(tree.total() == 0.0 && std::isinf(tree.smallest()));
}

}  // namespace

int main() {
    an_empty_tree_accepts_any_weights();
    random_changes_equal_those_of_an_array(10, 1);
    random_changes_equal_those_of_an_array(4096, 2);
    random_changes_equal_those_of_an_array(100'000, 3);
    random_changes_equal_those_of_an_array(2'000'000, 4);
    targets_at_borders_never_find_a_zero_weight();
    ten_million_updates_leave_no_drift();
    pages_without_a_weight_are_freed();
    std::puts("sum tree tests: all hold");
    return 0;
}
