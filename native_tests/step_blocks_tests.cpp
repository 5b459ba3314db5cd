// Blocks of steps, and the ring with lost steps, without Python, against plain lists. Status 0 when all holds.
#include <algorithm>
#include <memory>
#include <random>
#include <set>

#include "check.hpp"
#include "step_blocks.hpp"
#include "step_ring.hpp"

using namespace framestow;

namespace {

struct ListedStep {
    std::size_t stream;
    std::int64_t first;  // frame of its window
    std::int64_t last;
    bool is_drawable;

    bool looks_at(std::size_t other, std::int64_t from, std::int64_t before) const {
        return stream == other && first < before && last >= from;
    }
};

constexpr std::size_t kStreams = 3;
constexpr std::int64_t kStack = 4;
constexpr std::int64_t kSegment = 10;

// The streams' memory, what plays on them, and every step in a list; its reward is its number there.
struct Play {
    Play() : is_open(new bool[kStreams]()) {}

    StreamMemory memory() { return {newest.data(), starts.data(), unreadable.data(), is_open.get(), kStreams}; }

    template <typename Core>
    void begin(Core& core, std::int32_t stream) {
        core.begin(&stream, 1);
        episode_start[static_cast<std::size_t>(stream)] = newest[static_cast<std::size_t>(stream)];
    }

    template <typename Core, typename MakeRoom>
    void step(Core& core, std::mt19937& random, MakeRoom make_room) {
        const auto stream = static_cast<std::int32_t>(random() % kStreams);
        const auto at = static_cast<std::size_t>(stream);
        const std::uint8_t flags = random() % 9 == 0 ? kTerminated : std::uint8_t{0};
        const std::uint8_t action = 1;
        const auto reward = static_cast<float>(steps.size());
        const std::int64_t first = std::max(episode_start[at], newest[at] - kStack + 1);
        CHECK(core.may_append(&stream, 1));
        make_room();
        const bool is_readable = first >= lost_before[at];
        core.append(Steps{&stream, &action, &reward, &flags, 1});
        steps.push_back(ListedStep{at, first, newest[at], is_readable});
        if (flags != 0) {
            begin(core, stream);
        }
    }

    void leave(std::size_t stream, std::int64_t from, std::int64_t before) {
        for (ListedStep& step : steps) {
            step.is_drawable = step.is_drawable && !step.looks_at(stream, from, before);
        }
    }

    template <typename Core>
    void lose(Core& core, std::mt19937& random) {
        const std::size_t stream = random() % kStreams;
        const auto back = [&](unsigned most) { return static_cast<std::int64_t>(random() % most); };
        const std::int64_t before = std::max<std::int64_t>(0, newest[stream] + 1 - back(20));
        const std::int64_t from = std::max<std::int64_t>(0, before - 1 - back(15));
        core.lose(stream, from, before);
        leave(stream, from, before);
        lost_before[stream] = std::max(lost_before[stream], before);
    }

    template <typename Core>
    void compare(const Core& core) const {
        std::vector<std::int64_t> indices;
        for (std::size_t rank = 0; rank < core.size(); ++rank) {
            indices.push_back(core.held_at(static_cast<std::int64_t>(rank)));
            CHECK(core.is_held(indices.back()) && (rank == 0 || indices[rank - 1] < indices[rank]));
        }
        const std::size_t count = indices.size();
        std::vector<std::int32_t> streams(count), counts(count);
        std::vector<std::int64_t> lasts(count), actions(count);
        std::vector<float> rewards(count), discounts(count);
        const std::unique_ptr<bool[]> terminated(new bool[count]), truncated(new bool[count]);
        core.resolve(indices.data(), count,
                     ResolvedSteps{streams.data(), lasts.data(), counts.data(),
                                   reinterpret_cast<std::uint8_t*>(actions.data()), rewards.data(), discounts.data(),
                                   terminated.get(), truncated.get()});
        std::set<std::size_t> numbers;
        for (std::size_t row = 0; row < count; ++row) {
            const auto number = static_cast<std::size_t>(rewards[row]);
            const ListedStep& step = steps[number];
            CHECK(step.is_drawable && numbers.insert(number).second);
            CHECK(static_cast<std::size_t>(streams[row]) == step.stream && lasts[row] == step.last);
            CHECK(lasts[row] - counts[row] + 1 == step.first);
        }
        const auto num_drawable =
            std::count_if(steps.begin(), steps.end(), [](const ListedStep& step) { return step.is_drawable; });
        CHECK(numbers.size() == static_cast<std::size_t>(num_drawable));
    }

    std::vector<std::int64_t> newest = std::vector<std::int64_t>(kStreams, -1);
    std::vector<std::int64_t> starts = std::vector<std::int64_t>(kStreams, 0);
    std::vector<std::int64_t> unreadable = std::vector<std::int64_t>(kStreams, 0);
    std::unique_ptr<bool[]> is_open;
    std::vector<std::int64_t> episode_start = std::vector<std::int64_t>(kStreams, 0);
    std::vector<std::int64_t> lost_before = std::vector<std::int64_t>(kStreams, 0);
    std::vector<ListedStep> steps;
};

const StepRules kRules{kStack, kSegment, 0.5F, ActionLayout{1, true, false}};

void blocks_hold_what_lists_hold() {
    std::mt19937 random(1);
    Play play;
    StepBlocks blocks(300, play.memory(), kRules);
    for (std::int32_t stream = 0; stream < static_cast<std::int32_t>(kStreams); ++stream) {
        play.begin(blocks, stream);
    }
    for (int turn = 0; turn < 4000; ++turn) {
        play.step(blocks, random, [&] {
            while (blocks.lacks_room(1)) {
                const Eviction gone = blocks.let_go(random() % blocks.num_sealed());
                CHECK(gone.before - gone.first == kSegment);
                play.leave(static_cast<std::size_t>(gone.stream), gone.first, gone.before);
            }
        });
        if (random() % 200 == 0) {
            play.lose(blocks, random);
        }
        if (turn % 7 == 0) {
            play.compare(blocks);
        }
    }
    CHECK(blocks.num_steps() <= 300 && blocks.next_number() > 400);
}

void blocks_come_back_as_they_were() {
    std::mt19937 random(2);
    Play play;
    StepBlocks blocks(300, play.memory(), kRules);
    for (std::int32_t stream = 0; stream < static_cast<std::int32_t>(kStreams); ++stream) {
        play.begin(blocks, stream);
    }
    for (int turn = 0; turn < 1000; ++turn) {
        play.step(blocks, random, [&] {
            while (blocks.lacks_room(1)) {
                blocks.let_go(random() % blocks.num_sealed());
            }
        });
    }
    StepBlocks other(300, play.memory(), kRules);
    for (const StepBlock* block : blocks.blocks()) {
        other.restore(block->number, block->stream, block->segment, block->records.data());
    }
    other.restore_next_number(blocks.next_number());
    other.lose_indices(blocks.lost_indices());
    CHECK(other.held_indices() == blocks.held_indices() && other.lost_indices() == blocks.lost_indices());
    CHECK(other.num_sealed() == blocks.num_sealed() && other.num_steps() == blocks.num_steps());
}

void rings_skip_what_is_lost() {
    std::mt19937 random(3);
    Play play;
    constexpr std::size_t kCapacity = 200;
    std::vector<std::uint8_t> slots(kCapacity * StepRecords::record_bytes(kStreams, kRules));
    StepRing ring(slots.data(), kCapacity, play.memory(), kRules);
    for (std::int32_t stream = 0; stream < static_cast<std::int32_t>(kStreams); ++stream) {
        play.begin(ring, stream);
    }
    std::vector<Eviction> evictions;
    for (int turn = 0; turn < 3000; ++turn) {
        play.step(ring, random, [&] { ring.make_room(1, evictions); });
        const std::int64_t oldest = ring.oldest();
        for (std::int64_t number = 0; number < oldest; ++number) {
            play.steps[static_cast<std::size_t>(number)].is_drawable = false;
        }
        if (random() % 60 == 0) {
            play.lose(ring, random);
        }
        if (turn % 7 == 0) {
            play.compare(ring);
        }
    }
}

}  // namespace

int main() {
    blocks_hold_what_lists_hold();
    blocks_come_back_as_they_were();
    rings_skip_what_is_lost();
    std::puts("step block tests: all hold");
    return 0;
}
