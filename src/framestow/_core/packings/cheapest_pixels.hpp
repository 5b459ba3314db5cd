// The cheapest operations that write some pixels of a colour frame (encoding 2).
//
// For each pixel it finds the sources that can write it, near and far ones included, then the cheapest sequence of
// operations, by dynamic programming from right to left. CheapestWay does the same for bytes with a table; for nine
// kinds with different costs it would have too many states, so here the costs of all kinds are computed at once, in one
// SSE2 register, with equal results elsewhere. Owns its scratch; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "patch_format.hpp"

namespace framestow {

// A frame and the sources that its bytes may be copied from; a self-coded frame has only the row above and the run.
struct Pictures {
    const std::uint8_t* frame;
    const std::uint8_t* previous;  // the patched frame; not read for a self-coded frame
    const std::uint8_t* base;      // of the segment; not read for a self-coded frame
    std::size_t row_bytes;
    std::size_t pixel_bytes;
    std::size_t frame_bytes;
};

class CheapestPixels {
public:
    // The first eight are numbered like the bits of a pixel's sources.
    enum Kind : std::uint8_t { kKeep, kBase, kUp, kRun, kNearKept, kNearUp, kFarKept, kFarUp, kLiteral };
    static constexpr std::size_t kNumKinds = 9;
    static constexpr std::size_t kLanes = 16;  // of a register; those beyond the kinds cost the most
    using Costs = std::array<std::uint8_t, kLanes>;

    // In bytes. Opening an operation costs its codes, and time to read it, of which the base frame, which every window
    // reads, costs more.
    static constexpr Costs kPerPixel = {0, 0, 0, 0, 1, 1, 2, 2, 3, 255, 255, 255, 255, 255, 255, 255};
    static constexpr Costs kInPatches = {2, 2, 2, 2, 3, 3, 3, 3, 2};
    static constexpr Costs kInBase = {6, 6, 6, 6, 7, 7, 7, 7, 6};

    explicit CheapestPixels(std::size_t num_pixels);

    // Finds the operations for pixels `begin` to `end`, of a patch or of a self-coded frame.
    void find(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end);

    Kind kind(std::size_t pixel) const { return kinds_[pixel]; }
    // Whether an operation of that kind that reaches this pixel also writes it.
    bool continues(std::size_t pixel, Kind kind) const { return (continuing_[pixel] >> kind & 1U) != 0; }

    std::size_t nbytes() const;

private:
    void find_sources(const Pictures& pictures, bool is_self_coded, std::size_t begin, std::size_t end);
    void walk_back(const Costs& opening, std::size_t begin, std::size_t end);

    std::vector<std::uint8_t> sources_;      // per pixel: one bit per kind but the literal
    std::vector<Kind> kinds_;                // per pixel: the cheapest operation that writes it
    std::vector<std::uint16_t> continuing_;  // per pixel: one bit per kind
};

}  // namespace framestow
