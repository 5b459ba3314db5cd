#include "cheapest_way.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <tuple>

namespace framestow {
namespace {

constexpr int kWorse = 1;  // literals that go on are not taken: no matter by how much they are dearer

constexpr std::size_t kNumParts = 4;     // walked through side by side, as each load waits for the one before
constexpr std::size_t kManyBytes = 256;  // that are worth being parted
constexpr std::size_t kRunUp = 32;       // bytes behind a part, after which its state hardly depends on what follows

}  // namespace

bool CheapestWay::Excess::operator<(const Excess& other) const {
    return std::tie(matches, literals) < std::tie(other.matches, other.literals);
}

CheapestWay::CheapestWay(int literal_cost, int operation_cost, unsigned possible_matches)
    : literal_cost_(literal_cost), operation_cost_(operation_cost) {
    Excess none{{}, kWorse};
    none.matches.fill(operation_cost);
    state_of(none);
    for (std::size_t number = 0; number < excesses_.size(); ++number) {
        const Excess behind = excesses_[number];
        for (unsigned matches = 0; matches < kNumMatchSets; ++matches) {
            table_.push_back(state_of(before(behind, matches & possible_matches)));
        }
    }
    known_.clear();
    excesses_ = {};
}

// A match that begins takes an operation and the cheapest way from its end; where one does not go on it is as dear as
// one that begins.
CheapestWay::Excess CheapestWay::before(const Excess& behind, unsigned matches) const {
    const auto is_match = [&](std::size_t kind) { return (matches >> kind & 1U) != 0; };
    const int literals = literal_cost_ + std::min(behind.literals, 0);
    int cheapest = operation_cost_ + literals;
    for (std::size_t kind = 0; kind < kNumMatchKinds; ++kind) {
        cheapest = is_match(kind) ? std::min(cheapest, behind.matches[kind]) : cheapest;
    }
    Excess excess{};
    for (std::size_t kind = 0; kind < kNumMatchKinds; ++kind) {
        excess.matches[kind] = is_match(kind) ? behind.matches[kind] - cheapest : operation_cost_;
    }
    excess.literals = std::min(literals - cheapest, kWorse);
    return excess;
}

CheapestWay::State CheapestWay::state_of(const Excess& excess) {
    if (excesses_.size() * kNumMatchSets > std::numeric_limits<State>::max()) {
        throw std::length_error("more ways than states: must be fewer kinds of matches, or cheaper operations");
    }
    const auto [found, is_new] = known_.emplace(excess, static_cast<State>(excesses_.size() * kNumMatchSets));
    if (is_new) {
        const auto cheapest = std::find(excess.matches.begin(), excess.matches.end(), 0);
        excesses_.push_back(excess);
        ways_.push_back(Way{static_cast<Kind>(cheapest - excess.matches.begin()), excess.literals <= 0});
    }
    return found->second;
}

void CheapestWay::walk_back(const std::uint8_t* matches, std::size_t size, State* states) const {
    const State* const table = table_.data();
    std::size_t rest = size;  // bytes not walked through side by side
    if (size >= kManyBytes) {
        const std::size_t part = size / kNumParts;
        rest = size - kNumParts * part;
        std::array<std::size_t, kNumParts> behind{};
        for (std::size_t byte = part + kRunUp; byte-- > part;) {
            for (std::size_t number = 0; number + 1 < kNumParts; ++number) {
                behind[number] = table[behind[number] + matches[rest + number * part + byte]];
            }
        }
        for (std::size_t byte = part; byte-- > 0;) {
            for (std::size_t number = 0; number < kNumParts; ++number) {
                const std::size_t place = rest + number * part + byte;
                behind[number] = table[behind[number] + matches[place]];
                states[place] = static_cast<State>(behind[number]);
            }
        }
    }
    std::size_t behind = rest < size ? states[rest] : 0;
    for (std::size_t byte = rest; byte-- > 0;) {
        behind = table[behind + matches[byte]];
        states[byte] = static_cast<State>(behind);
    }
}

}  // namespace framestow
