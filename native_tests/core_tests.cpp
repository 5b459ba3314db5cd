// Tests of the core without Python: round trips, segment borders, released memory. Exits with 0 on success.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "check.hpp"
#include "checksum.hpp"
#include "frame_store.hpp"
#include "moving_pictures.hpp"
#include "packings/patch_encoder.hpp"
#include "pages.hpp"
#include "segment_header.hpp"
#include "window_reader.hpp"

using namespace framestow;

namespace {

const FrameGeometry kGeometries[] = {{1, 1, 1},   {1, 7, 1},   {7, 1, 1},         {5, 15, 1},
                                     {5, 16, 1},  {9, 17, 1},  {8, 24, 3},        {12, 63, 3},
                                     {84, 84, 1}, {3, 300, 1}, {15, 17, 1, true}, {3, 1, 1, true}};

void checksum_paths_agree() {
    std::mt19937 random(1);
    std::vector<std::uint8_t> bytes(10'000);
    for (std::uint8_t& byte : bytes) {
        byte = static_cast<std::uint8_t>(random());
    }
    // From 3072 bytes on, the instruction runs in three lanes.
    for (std::size_t size = 0; size < bytes.size(); size += size < 300 || (size > 3060 && size < 3090) ? 1 : 97) {
        CHECK(crc32c(ByteSpan{bytes.data(), size}) == crc32c_by_table(ByteSpan{bytes.data(), size}));
    }
}

// The catalogue's check value, and the examples of RFC 3720, appendix B.4.
void checksums_are_the_published_ones() {
    const std::vector<std::uint8_t> digits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
    std::vector<std::uint8_t> rising(32);
    std::iota(rising.begin(), rising.end(), std::uint8_t{0});
    const std::vector<std::uint8_t> falling(rising.rbegin(), rising.rend());
    const std::pair<std::vector<std::uint8_t>, std::uint32_t> published[] = {
        {digits, 0xE3069283U},
        {std::vector<std::uint8_t>(32, 0x00), 0x8A9136AAU},
        {std::vector<std::uint8_t>(32, 0xFF), 0x62A8AB43U},
        {rising, 0x46DD794EU},
        {falling, 0x113FDB5CU},
    };
    for (const auto& [bytes, expected] : published) {
        CHECK(crc32c(ByteSpan{bytes.data(), bytes.size()}) == expected);
        CHECK(crc32c_by_table(ByteSpan{bytes.data(), bytes.size()}) == expected);
    }
}

void segments_are_restored() {
    std::mt19937 random(2);
    for (const FrameGeometry& geometry : kGeometries) {
        for (const std::uint32_t count : {1U, 2U, 7U, 64U, 90U}) {
            const std::vector<std::uint8_t> frames = moving_pictures(geometry, count, random);
            const std::vector<std::uint8_t> segment = pack_segment(geometry, frames.data(), count);
            std::vector<std::uint8_t> unpacked(frames.size());
            unpack_segment(ByteSpan{segment.data(), segment.size()}, geometry, count, unpacked.data());
            CHECK(unpacked == frames);
            CHECK(segment.size() <= frames.size() + kHeaderBytes);
        }
    }
}

// An environment as a plain list of frames.
void windows_equal_the_appended_frames() {
    std::mt19937 random(3);
    for (const FrameGeometry& geometry : kGeometries) {
        const std::size_t frame_bytes = geometry.frame_bytes();
        const std::vector<std::uint8_t> frames = moving_pictures(geometry, 100, random);
        FrameStore packed(2, geometry, 7);
        for (std::size_t index = 0; index < 100; ++index) {
            const std::int32_t env_id = 1;
            packed.append(&env_id, frames.data() + index * frame_bytes, 1);
        }
        packed.evict(1, 20);
        CHECK(packed.first_position(1) == 14 && packed.next_position(1) == 100 && packed.next_position(0) == 0);
        constexpr std::size_t kLength = 6;
        std::vector<std::uint8_t> out(kLength * frame_bytes);
        for (int round = 0; round < 200; ++round) {
            const auto count = static_cast<std::int32_t>(1 + random() % kLength);
            const std::int64_t last =
                14 + count - 1 + static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(87 - count));
            const std::int32_t env_id = 1;
            const WindowRequests requests{&env_id, &last, &count, 1};
            read_windows(packed, requests, kLength, StackPadding::kFirstFrame, out.data());
            for (std::size_t place = 0; place < kLength; ++place) {
                const auto back = static_cast<std::int64_t>(kLength - 1 - place);
                const std::int64_t position = std::max(last - back, last - count + 1);
                CHECK(std::memcmp(out.data() + place * frame_bytes,
                                  frames.data() + static_cast<std::size_t>(position) * frame_bytes, frame_bytes) == 0);
            }
        }
    }
}

// Restores damaged copies of a segment: with a wrong checksum, and with a right one over any bytes. Both may be refused
// and must not read or write outside.
void refuse_every_damage(FrameStore& store, std::int64_t number, const std::vector<std::uint8_t>& segment,
                         std::mt19937& random) {
    for (int round = 0; round < 20; ++round) {
        std::vector<std::uint8_t> damaged = segment;
        damaged[4 + random() % (damaged.size() - 4)] ^= static_cast<std::uint8_t>(1 + random() % 255);
        bool was_refused = false;
        try {
            store.restore(0, number, ByteSpan{damaged.data(), damaged.size()});
        } catch (const DamagedSegment&) {
            was_refused = true;
        }
        CHECK(was_refused);
        store_u32(damaged.data(), crc32c(ByteSpan{damaged.data() + 4, damaged.size() - 4}));
        FrameStore other(1, store.format(), store.frames_per_segment());
        try {
            other.restore(0, number, ByteSpan{damaged.data(), damaged.size()});
            const std::int32_t env_id = 0, count = 1;
            for (std::int64_t last = other.first_position(0); last < other.next_position(0); ++last) {
                const std::size_t length = store.format().lead_ins + 1;
                std::vector<std::uint8_t> out(length * store.format().frame_bytes());
                read_windows(other, WindowRequests{&env_id, &last, &count, 1}, length, StackPadding::kZeros,
                             out.data());
            }
        } catch (const DamagedSegment&) {
            continue;
        }
    }
}

// Frames of that format; of scaled floats, every third has a value that is no pixel over 255.
std::vector<std::uint8_t> frames_of(const FrameFormat& format, std::uint32_t count, std::mt19937& random) {
    const std::vector<std::uint8_t> pixels = moving_pictures(format.pixels, count, random);
    if (!format.is_scaled()) {
        return pixels;
    }
    std::vector<std::uint8_t> floats(pixels.size() * format.scaled_bytes);
    from_pixels(pixels.data(), pixels.size(), format.scaled_bytes, floats.data());
    for (std::size_t frame = 0; frame < count; frame += 3) {
        floats[frame * format.frame_bytes() + random() % format.frame_bytes()] ^= 1;
    }
    return floats;
}

void frames_of_every_format_are_returned_and_restored() {
    std::mt19937 random(4);
    constexpr std::uint32_t kFrames = 60, kSegment = 7;
    for (const FrameGeometry& geometry : {FrameGeometry{5, 9, 1}, FrameGeometry{1, 6, 3}, FrameGeometry{20, 30, 1}}) {
        for (const bool is_raw : {false, true}) {
            for (const std::uint32_t scaled_bytes : {0U, 2U, 4U, 8U}) {
                const FrameFormat format(geometry, is_raw, scaled_bytes);
                const std::vector<std::uint8_t> frames = frames_of(format, kFrames, random);
                FrameStore store(1, format, kSegment),
                    restored(1, FrameFormat(geometry, !is_raw, scaled_bytes), kSegment);
                const std::int32_t env_id = 0;
                for (std::size_t index = 0; index < kFrames; ++index) {
                    store.append(&env_id, frames.data() + index * format.frame_bytes(), 1);
                }
                store.evict(0, 2 * kSegment);
                for (std::int64_t number = 2; number <= kFrames / kSegment; ++number) {
                    const std::vector<std::uint8_t> segment = store.segment(0, number);
                    refuse_every_damage(restored, number, segment, random);
                    restored.restore(0, number, ByteSpan{segment.data(), segment.size()});
                }
                CHECK(store.num_exact() == restored.num_exact() && store.num_frames() == restored.num_frames());
                for (FrameStore* const each : {&store, &restored}) {
                    for (std::int64_t last = 2 * kSegment + 4; last < kFrames; ++last) {
                        const std::int32_t count = 5;
                        std::vector<std::uint8_t> out(count * format.frame_bytes());
                        read_windows(*each, WindowRequests{&env_id, &last, &count, 1}, count, StackPadding::kZeros,
                                     out.data());
                        CHECK(std::equal(
                            out.begin(), out.end(),
                            frames.begin() + (last - 4) * static_cast<std::ptrdiff_t>(format.frame_bytes())));
                    }
                }
            }
        }
    }
}

// A stretch's first frame with its padding, written as a whole stack, in stores of every format, restored and moved.
void stretches_begin_with_the_padding_that_was_given() {
    std::mt19937 random(6);
    constexpr std::uint32_t kFrames = 45, kSegment = 7, kLeadIns = 3;
    constexpr std::size_t kStack = kLeadIns + 1;
    for (const FrameGeometry& geometry : {FrameGeometry{5, 9, 1}, FrameGeometry{4, 6, 3}, FrameGeometry{1, 8, 4}}) {
        for (const bool is_raw : {false, true}) {
            for (const std::uint32_t scaled_bytes : {0U, 2U, 4U}) {
                const FrameFormat format(geometry, is_raw, scaled_bytes, kLeadIns);
                const std::size_t frame_bytes = format.frame_bytes();
                const std::vector<std::uint8_t> frames = frames_of(format, kStack * kFrames, random);
                FrameStore store(1, format, kSegment),
                    restored(1, FrameFormat(geometry, !is_raw, scaled_bytes, kLeadIns), kSegment);
                const std::int32_t env_id = 0, count = 1;
                std::vector<std::uint8_t> stacks = frames;  // of each position: what its window of one frame shows
                std::int64_t num_whole = 0;
                for (std::size_t position = 0; position < kFrames; ++position) {
                    std::uint8_t* const stack = stacks.data() + position * kStack * frame_bytes;
                    const StretchStart start{static_cast<StretchPadding>(random() % 4), stack};
                    num_whole += start.padding == StretchPadding::kLeadIns ? 1 : 0;
                    store.append(&env_id, stack + kLeadIns * frame_bytes, 1, &start);
                    for (std::size_t place = 0; place < kLeadIns && start.padding != StretchPadding::kLeadIns;
                         ++place) {
                        if (start.padding == StretchPadding::kZeros) {
                            std::memset(stack + place * frame_bytes, 0, frame_bytes);
                        } else {
                            std::memcpy(stack + place * frame_bytes, stack + kLeadIns * frame_bytes, frame_bytes);
                        }
                    }
                }
                for (std::int64_t number = 0; number <= kFrames / kSegment; ++number) {
                    const std::vector<std::uint8_t> segment = store.segment(0, number);
                    refuse_every_damage(restored, number, segment, random);
                    restored.restore(0, number, ByteSpan{segment.data(), segment.size()});
                }
                CHECK(store.num_exact() == restored.num_exact() && store.num_frames() == restored.num_frames());
                CHECK(num_whole == store.num_whole() && num_whole == restored.num_whole());
                for (FrameStore* const each : {&store, &restored}) {
                    std::vector<std::uint8_t> out(kStack * frame_bytes);
                    for (std::int64_t last = 0; last < kFrames; ++last) {
                        read_windows(*each, WindowRequests{&env_id, &last, &count, 1}, kStack,
                                     StackPadding::kFirstFrame, out.data());
                        CHECK(std::memcmp(out.data(), stacks.data() + static_cast<std::size_t>(last) * out.size(),
                                          out.size()) == 0);
                    }
                }
            }
        }
    }
}

void a_vector_keeps_its_values_when_it_gets_pages_of_its_own() {
    constexpr std::uint32_t kCount = 3U << 20;  // 12 MiB: from the heap to pages, and to huge ones
    PagedVector<std::uint32_t> values;
    for (std::uint32_t value = 0; value < kCount; ++value) {
        values.push_back(value);
    }
    const PagedVector<std::uint32_t> copy = values;
    values.resize(9);
    values.shrink_to_fit();

    for (std::uint32_t value = 0; value < kCount; ++value) {
        CHECK(copy[value] == value && (value >= 9 || values[value] == value));
    }
    CHECK(huge_bytes(kHugePageBytes - 1) == 0 && round_to_pages(1) == kPageBytes &&
          round_to_pages(kPageBytes) == kPageBytes);
}

void the_arena_frees_released_segments() {
    SegmentArena arena(256 * 1024);
    std::vector<StoredSegment> stored;
    std::mt19937 random(4);
    for (std::int64_t round = 0; round < 20000; ++round) {
        stored.push_back(arena.allocate(1 + random() % 9000, SegmentOwner{0, round}));
        std::memset(stored.back().bytes, static_cast<int>(round % 256), stored.back().size);
        if (stored.size() > 300) {
            const auto evicted = static_cast<std::ptrdiff_t>(random() % 8);
            arena.release(stored[static_cast<std::size_t>(evicted)]);
            stored.erase(stored.begin() + evicted);
        }
        CHECK(arena.nbytes() <= 4U << 20);
    }
    const StoredSegment large = arena.allocate(5U << 20, SegmentOwner{});
    CHECK(arena.live_bytes() >= 5U << 20);
    std::memset(large.bytes, 1, large.size + kReadPadding);
    arena.release(large);
    for (const StoredSegment& segment : stored) {
        arena.release(segment);
    }
    CHECK(arena.live_bytes() == 0 && arena.nbytes() <= 1U << 20);
}

// Segments are evicted at random and moved when the arena names them: nearly all memory is live.
void the_arena_names_segments_to_move_out_of_sparse_blocks(std::size_t largest) {
    SegmentArena arena(256 * 1024);
    std::vector<StoredSegment> stored;  // by number; empty after eviction
    std::vector<std::size_t> numbers;
    std::mt19937 random(5);
    std::size_t moved = 0;
    for (std::size_t number = 0; number < 6000; ++number) {
        stored.push_back(arena.allocate(1 + random() % largest, SegmentOwner{0, static_cast<std::int64_t>(number)}));
        std::memset(stored.back().bytes, static_cast<int>(number % 256), stored.back().size);
        numbers.push_back(number);
        if (numbers.size() > 500) {
            std::swap(numbers[random() % numbers.size()], numbers.back());
            arena.release(std::exchange(stored[numbers.back()], StoredSegment{}));
            numbers.pop_back();
        }
        for (auto sparse = arena.sparsest(); sparse.block != nullptr; sparse = arena.sparsest()) {
            for (const SegmentOwner& owner : sparse.owners) {
                StoredSegment& segment = stored[static_cast<std::size_t>(owner.number)];
                if (segment.block == sparse.block) {
                    const StoredSegment place = arena.allocate(segment.size, owner);
                    std::memcpy(place.bytes, segment.bytes, segment.size);
                    arena.release(std::exchange(segment, place));
                    ++moved;
                }
            }
        }
        CHECK(arena.dead_bytes() <= arena.dead_allowance(arena.live_bytes()));
    }
    CHECK(moved > 0 && moved < 30 * stored.size());
    for (const std::size_t number : numbers) {
        CHECK(stored[number].bytes[0] == number % 256 && stored[number].bytes[stored[number].size - 1] == number % 256);
    }
}

void windows_that_are_not_stored_are_refused() {
    const FrameGeometry geometry{4, 4, 1};
    FrameStore packed(1, geometry, 8);
    std::uint8_t out[16] = {};
    const std::int32_t env_id = 0;
    const std::int32_t count = 1;
    const std::int64_t last = 0;
    bool was_refused = false;
    try {
        read_windows(packed, WindowRequests{&env_id, &last, &count, 1}, 1, StackPadding::kFirstFrame, out);
    } catch (const std::out_of_range&) {
        was_refused = true;
    }
    CHECK(was_refused);
}

// Returns the least cost by trying every length of every match and of literals at every byte.
int least_cost(const std::vector<std::uint8_t>& matches, int operation_cost) {
    std::vector<int> cost(matches.size() + 1, 0);
    for (std::size_t begin = matches.size(); begin-- > 0;) {
        cost[begin] = 1 << 20;
        unsigned going_on = 0b1111;
        for (std::size_t end = begin + 1; end <= matches.size(); ++end) {
            going_on &= matches[end - 1];
            const int literals = static_cast<int>(end - begin);
            cost[begin] = std::min(cost[begin], operation_cost + cost[end] + (going_on != 0 ? 0 : literals));
        }
    }
    return cost[0];
}

int cost_of_way(const CheapestWay& way, const std::vector<std::uint8_t>& matches, int operation_cost) {
    std::vector<CheapestWay::State> states(matches.size());
    way.walk_back(matches.data(), matches.size(), states.data());
    int cost = 0;
    for (std::size_t place = 0; place < matches.size();) {
        const CheapestWay::Kind kind = way.kind(states[place]);
        const bool is_literal = kind == CheapestWay::kLiteral;
        CHECK(is_literal || (matches[place] >> kind & 1U) != 0);
        std::size_t end = place + 1;
        while (end < matches.size() &&
               (is_literal ? way.literals_continue(states[end]) : (matches[end] >> kind & 1U) != 0)) {
            ++end;
        }
        cost += operation_cost + (is_literal ? static_cast<int>(end - place) : 0);
        place = end;
    }
    return cost;
}

void the_cheapest_way_costs_as_little_as_trying_everything() {
    constexpr std::size_t kWhole = 256;  // inputs of this size are walked in parts side by side
    std::mt19937 generator(4);
    const auto random = [&] { return static_cast<unsigned>(generator()); };
    for (const int operation_cost : {2, 6}) {
        const unsigned possible = operation_cost == 2 ? 0b1111U : 0b1001U;
        const CheapestWay way(1, operation_cost, possible);
        for (int round = 0; round < 400; ++round) {
            std::vector<std::uint8_t> matches(random() % (2 * kWhole));
            const unsigned stays = random() % 16;  // in sixteenths: the chance that a source continues
            unsigned now = 0;
            for (std::uint8_t& byte : matches) {
                now ^= random() & random() & (random() % 16 >= stays ? 0b1111U : 0U);
                byte = static_cast<std::uint8_t>(now & possible);
            }
            const int excess = cost_of_way(way, matches, operation_cost) - least_cost(matches, operation_cost);
            CHECK(excess >= 0);
            CHECK(excess <= (matches.size() < kWhole ? 0 : 3 * operation_cost));
        }
    }
}

// Whether an operation of that kind can write the pixel at `place`, as packings/patch_format.hpp says.
bool can_write(const Pictures& pictures, CheapestPixels::Kind kind, std::size_t place) {
    const auto at = [&](const std::uint8_t* picture, std::size_t back, std::size_t byte) {
        return 3 * place >= back ? picture[3 * place - back + byte] : std::uint8_t{0};
    };
    const bool is_up = kind == CheapestPixels::kUp || kind == CheapestPixels::kNearUp || kind == CheapestPixels::kFarUp;
    const std::uint8_t* const picture = is_up || kind == CheapestPixels::kRun ? pictures.frame
                                        : kind == CheapestPixels::kBase       ? pictures.base
                                                                              : pictures.previous;
    const std::size_t back = is_up ? pictures.row_bytes : kind == CheapestPixels::kRun ? 3 : 0;
    const auto grows = [&](std::size_t byte) { return pictures.frame[3 * place + byte] - at(picture, back, byte); };
    const auto green = static_cast<std::int8_t>(grows(1));
    const auto red = static_cast<std::int8_t>(grows(0) - green);
    const auto blue = static_cast<std::int8_t>(grows(2) - green);
    const auto within = [](int value, int limit) { return value >= -limit && value < limit; };
    switch (kind) {
        case CheapestPixels::kLiteral:
            return true;
        case CheapestPixels::kNearKept:
        case CheapestPixels::kNearUp:
            return within(green, 8) && within(red, 2) && within(blue, 2);
        case CheapestPixels::kFarKept:
        case CheapestPixels::kFarUp:
            return within(red, 8) && within(blue, 8);
        default:
            return green == 0 && red == 0 && blue == 0;
    }
}

void the_cheapest_pixels_cost_as_little_as_trying_everything() {
    constexpr std::size_t row = 7, size = 6 * row;
    std::mt19937 random(5);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::uint8_t> frames[3];
        for (std::vector<std::uint8_t>& frame : frames) {
            frame = frames[0];
            frame.resize(3 * size, 100);
            for (std::size_t byte = 0; byte < 3 * size; ++byte) {
                const unsigned reach = byte / 40 % 2 == 0 ? 5 : 40;
                frame[byte] = static_cast<std::uint8_t>(frame[byte] + (random() % 4 == 0 ? random() % reach : 0));
            }
        }
        const Pictures pictures{frames[2].data(), frames[1].data(), frames[0].data(), 3 * row, 3, 3 * size};
        CheapestPixels pixels(size);
        const std::size_t begin = random() % size;
        pixels.find(pictures, false, begin, size);
        std::vector<int> least(size + 1, 1 << 20);
        least[size] = 0;
        for (std::size_t from = size; from-- > begin;) {
            for (std::size_t number = 0; number < CheapestPixels::kNumKinds; ++number) {
                const auto kind = static_cast<CheapestPixels::Kind>(number);
                int cost = CheapestPixels::kInPatches[number];
                for (std::size_t to = from; to < size && can_write(pictures, kind, to); ++to) {
                    cost += CheapestPixels::kPerPixel[number];
                    least[from] = std::min(least[from], cost + least[to + 1]);
                }
            }
        }
        int cost = 0;
        for (std::size_t place = begin; place < size;) {
            const CheapestPixels::Kind kind = pixels.kind(place);
            cost += CheapestPixels::kInPatches[kind];
            do {
                CHECK(can_write(pictures, kind, place));
                cost += CheapestPixels::kPerPixel[kind];
                ++place;
            } while (place < size && pixels.continues(place, kind));
        }
        CHECK(cost == least[begin]);
    }
}

}  // namespace

int main() {
    the_cheapest_way_costs_as_little_as_trying_everything();
    the_cheapest_pixels_cost_as_little_as_trying_everything();
    checksum_paths_agree();
    checksums_are_the_published_ones();
    segments_are_restored();
    windows_equal_the_appended_frames();
    frames_of_every_format_are_returned_and_restored();
    stretches_begin_with_the_padding_that_was_given();
    a_vector_keeps_its_values_when_it_gets_pages_of_its_own();
    the_arena_frees_released_segments();
    the_arena_names_segments_to_move_out_of_sparse_blocks(20000);
    the_arena_names_segments_to_move_out_of_sparse_blocks(200000);
    windows_that_are_not_stored_are_refused();
    std::puts("core tests: all hold");
    return 0;
}
