// Which operations write some bytes most cheaply: dynamic programming from the right, as a walk through an automaton.
//
// An operation costs the same however far its match reaches, so all that the way on from a byte depends on is how much
// dearer than the cheapest way each source is that matches here, and literals that go on. These differences are never
// more than what an operation costs: a few hundred states for all pictures. Stepping over a byte is then one load from
// a table (5 cycles) instead of weighing (17). Storer and Szymanski 1982 call the result optimal parsing. Immutable
// once built: any number of threads may use one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace framestow {

class CheapestWay {
public:
    // Of equal cost, the one that stands first here is preferred. The first four are matches: bit i of the matches of
    // a byte says that the source i would write it.
    enum Kind : std::uint8_t { kKeep, kBase, kUp, kRun, kLiteral };
    static constexpr std::size_t kNumMatchKinds = 4;

    // Row of the table, and all that is known about the way on from a byte.
    using State = std::uint16_t;

    // In units that divide both: what a literal byte and an operation cost. `possible_matches` has the bits that can
    // be set at all. Throws std::length_error for 4096 states or more.
    CheapestWay(int literal_cost, int operation_cost, unsigned possible_matches);

    // Sets the state of each of `size` bytes, from the right to the left. Walks through parts of many bytes side by
    // side, each as if nothing came behind it: the choices near its end may be a byte dearer than the cheapest.
    void walk_back(const std::uint8_t* matches, std::size_t size, State* states) const;

    // What the byte is to be written by, and whether literals that reach it go on with it nonetheless.
    Kind kind(State state) const { return ways_[state / kNumMatchSets].kind; }
    bool literals_go_on(State state) const { return ways_[state / kNumMatchSets].literals_go_on; }

private:
    static constexpr std::size_t kNumMatchSets = std::size_t{1} << kNumMatchKinds;

    // Costs beyond that of the cheapest way from this byte on.
    struct Excess {
        std::array<int, kNumMatchKinds> matches;
        int literals;  // those that go on; at most kWorse
        bool operator<(const Excess& other) const;
    };
    struct Way {
        Kind kind;
        bool literals_go_on;
    };

    Excess before(const Excess& behind, unsigned matches) const;
    State state_of(const Excess& excess);

    int literal_cost_;
    int operation_cost_;
    std::map<Excess, State> known_;
    std::vector<Excess> excesses_;
    std::vector<Way> ways_;
    std::vector<State> table_;
};

}  // namespace framestow
