// Tests of the blocks of steps, and of the ring with lost steps, without Python, against plain lists. Exits with 0 on
// success.
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
    std::size_t env_id;
    std::int64_t first;  // first frame of its observation
    std::int64_t start;
    std::int64_t stretch;  // first frame of its stretch
    bool is_border;
    std::size_t episode;
    bool is_readable;
};

constexpr std::size_t kEnvs = 3;
constexpr std::int64_t kStack = 4;
constexpr std::int64_t kSegment = 10;

StepRules rules_of(std::int64_t n_step) {
    StepRules rules{kStack, kSegment, 0.5, ActionLayout{1, true, false}};
    rules.n_step = n_step;
    return rules;
}

// A player that steps the environments, and a list of every step; a step's reward is its number in the list.
struct Play {
    explicit Play(std::int64_t most_steps) : n_step(most_steps) {}

    void begin(StepStore& core, std::int32_t env_id) {
        core.begin(&env_id, 1);
        ++newest[static_cast<std::size_t>(env_id)];
        episode[static_cast<std::size_t>(env_id)] = episodes.size();
        episodes.emplace_back();
        stretch_start[static_cast<std::size_t>(env_id)] = newest[static_cast<std::size_t>(env_id)];
    }

    // Sometimes an episode ends or is truncated before the step.
    template <typename MakeRoom>
    void step(StepStore& core, std::mt19937& random, MakeRoom make_room) {
        const auto env_id = static_cast<std::int32_t>(random() % kEnvs);
        const auto at = static_cast<std::size_t>(env_id);
        if (random() % 40 == 0) {
            begin(core, env_id);
        }
        const bool is_border = random() % 8 == 0;
        const auto flags =
            static_cast<std::uint8_t>((random() % 9 == 0 ? kTerminated : kNoFlags) | (is_border ? kBorder : kNoFlags));
        const std::uint8_t action = 1;
        const auto reward = static_cast<float>(steps.size());
        const std::int64_t first = std::max(stretch_start[at], newest[at] - kStack + 1);
        CHECK(core.cursors().may_append(&env_id, 1));
        make_room();
        const bool is_readable = first >= lost_before[at];
        const std::int64_t start = newest[at];
        std::int64_t index = kNoStep;
        core.append(PlannedSteps{&env_id, &action, &reward, &flags, 1}, &index);
        CHECK(core.is_readable(index) == is_readable);
        ++newest[at];
        episodes[episode[at]].push_back(steps.size());
        steps.push_back(ListedStep{at, first, start, stretch_start[at], is_border, episode[at], is_readable});
        if (is_border) {
            stretch_start[at] = start + 1;
        }
        if (ends_episode(flags)) {
            begin(core, env_id);
        }
    }

    // Returns the numbers of the steps in a transition's return.
    std::vector<std::size_t> return_of(std::size_t number) const {
        const std::vector<std::size_t>& all = episodes[steps[number].episode];
        const auto from = std::find(all.begin(), all.end(), number);
        return {from, from + std::min<std::ptrdiff_t>(n_step, all.end() - from)};
    }

    std::int64_t last_of(std::size_t number) const { return steps[return_of(number).back()].start + 1; }

    bool is_sampleable(std::size_t number) const {
        const ListedStep& step = steps[number];
        const bool goes_on = episode[step.env_id] == step.episode;
        return step.is_readable && (!goes_on || return_of(number).size() == static_cast<std::size_t>(n_step));
    }

    void leave(std::size_t env_id, std::int64_t from, std::int64_t before) {
        for (std::size_t number = 0; number < steps.size(); ++number) {
            ListedStep& step = steps[number];
            step.is_readable =
                step.is_readable && !(step.env_id == env_id && step.first < before && last_of(number) >= from);
        }
    }

    void lose(StepStore& core, std::mt19937& random) {
        const std::size_t env_id = random() % kEnvs;
        const auto back = [&](unsigned most) { return static_cast<std::int64_t>(random() % most); };
        const std::int64_t before = std::max<std::int64_t>(0, newest[env_id] + 1 - back(20));
        const std::int64_t from = std::max<std::int64_t>(0, before - 1 - back(15));
        core.lose(env_id, from, before);
        leave(env_id, from, before);
        lost_before[env_id] = std::max(lost_before[env_id], before);
    }

    void compare(const StepStore& core) const {
        std::vector<std::int64_t> indices;
        for (std::size_t rank = 0; rank < core.size(); ++rank) {
            indices.push_back(core.sampleable_at(static_cast<std::int64_t>(rank)));
            CHECK(core.is_sampleable(indices.back()) && (rank == 0 || indices[rank - 1] < indices[rank]));
        }
        const std::size_t count = indices.size();
        Columns alone(count), transitions(count);
        CHECK(core.resolve_steps(indices.data(), count, alone.out()) == count);
        CHECK(core.resolve(indices.data(), count, transitions.out()) == count);
        std::set<std::size_t> numbers;
        for (std::size_t row = 0; row < count; ++row) {
            const auto number = static_cast<std::size_t>(alone.rewards[row]);
            CHECK(is_sampleable(number) && numbers.insert(number).second);
            CHECK(static_cast<std::size_t>(alone.env_ids[row]) == steps[number].env_id);
            CHECK(alone.lasts[row] == steps[number].start + 1);
            CHECK(alone.lasts[row] - alone.counts[row] + 1 == steps[number].first);
            compare_transition(number, row, count, transitions);
        }
        std::size_t num_sampleable = 0;
        for (std::size_t number = 0; number < steps.size(); ++number) {
            num_sampleable += is_sampleable(number) ? 1 : 0;
        }
        CHECK(numbers.size() == num_sampleable);
        for (const std::int64_t index : core.pending_indices()) {
            CHECK(core.is_pending(index) && !core.is_sampleable(index) && n_step > 1);
        }
    }

    struct Columns {
        explicit Columns(std::size_t count)
            : env_ids(2 * count),
              counts(2 * count),
              lasts(2 * count),
              actions(count),
              rewards(count),
              discounts(count),
              terminated(new bool[count]),
              truncated(new bool[count]) {}

        ResolvedSteps out() {
            return {env_ids.data(), lasts.data(),     counts.data(),    reinterpret_cast<std::uint8_t*>(actions.data()),
                    rewards.data(), discounts.data(), terminated.get(), truncated.get()};
        }

        std::vector<std::int32_t> env_ids, counts;
        std::vector<std::int64_t> lasts, actions;
        std::vector<float> rewards, discounts;
        std::unique_ptr<bool[]> terminated, truncated;
    };

    void compare_transition(std::size_t number, std::size_t row, std::size_t count, const Columns& columns) const {
        const std::vector<std::size_t> numbers = return_of(number);
        double reward = 0.0, discount = 1.0;
        for (const std::size_t each : numbers) {
            reward += discount * static_cast<double>(each);
            discount /= 2;
        }
        CHECK(columns.rewards[row] == static_cast<float>(reward));
        CHECK(columns.discounts[row] == (columns.terminated[row] ? 0.0F : static_cast<float>(discount)));
        const ListedStep& last = steps[numbers.back()];
        const std::int64_t stretch = last.is_border ? last.start + 1 : last.stretch;
        const std::int64_t next_first = std::max(stretch, last_of(number) - kStack + 1);
        CHECK(columns.lasts[row] == steps[number].start && columns.lasts[row + count] == last_of(number));
        CHECK(columns.lasts[row] - columns.counts[row] + 1 == steps[number].first);
        CHECK(columns.lasts[row + count] - columns.counts[row + count] + 1 == next_first);
        CHECK(columns.env_ids[row + count] == columns.env_ids[row]);
    }

    std::int64_t n_step;
    std::vector<std::int64_t> newest = std::vector<std::int64_t>(kEnvs, -1);
    std::vector<std::int64_t> stretch_start = std::vector<std::int64_t>(kEnvs, 0);
    std::vector<std::int64_t> lost_before = std::vector<std::int64_t>(kEnvs, 0);
    std::vector<std::size_t> episode = std::vector<std::size_t>(kEnvs, 0);
    std::vector<std::vector<std::size_t>> episodes;  // per episode: numbers of its steps
    std::vector<ListedStep> steps;
};

void blocks_store_what_lists_store(std::int64_t n_step) {
    std::mt19937 random(1);
    Play play(n_step);
    StepBlocks blocks(300, kEnvs, rules_of(n_step), [&](std::size_t num_sealed) { return random() % num_sealed; });
    for (std::int32_t env_id = 0; env_id < static_cast<std::int32_t>(kEnvs); ++env_id) {
        play.begin(blocks, env_id);
    }
    for (int turn = 0; turn < 4000; ++turn) {
        play.step(blocks, random, [&] {
            std::vector<Eviction> evictions;
            blocks.evict_for(1, evictions);
            for (const Eviction& gone : evictions) {
                CHECK(gone.before - gone.first == kSegment);
                play.leave(static_cast<std::size_t>(gone.env_id), gone.first, gone.before);
            }
        });
        if (random() % 200 == 0) {
            play.lose(blocks, random);
        }
        if (turn % 37 == 0) {
            play.compare(blocks);
        }
    }
    CHECK(blocks.num_steps() <= 300 && blocks.next_number() > 400);
}

void blocks_are_restored_unchanged(std::int64_t n_step) {
    std::mt19937 random(2);
    Play play(n_step);
    const auto choose = [&](std::size_t num_sealed) { return random() % num_sealed; };
    StepBlocks blocks(300, kEnvs, rules_of(n_step), choose);
    for (std::int32_t env_id = 0; env_id < static_cast<std::int32_t>(kEnvs); ++env_id) {
        play.begin(blocks, env_id);
    }
    std::vector<Eviction> evictions;
    for (int turn = 0; turn < 1000; ++turn) {
        play.step(blocks, random, [&] { blocks.evict_for(1, evictions); });
    }
    StepBlocks other(300, kEnvs, rules_of(n_step), choose);
    other.cursors().envs() = blocks.cursors().envs();
    for (const StepBlock* block : blocks.blocks()) {
        other.restore(block->number, block->env_id, block->segment, block->records.data());
    }
    other.restore_next_number(blocks.next_number());
    other.lose_indices(blocks.lost_indices());
    other.restore_pending();
    CHECK(other.pending_indices() == blocks.pending_indices());
    CHECK(other.sampleable_after(-1, 300) == blocks.sampleable_after(-1, 300));
    CHECK(other.lost_indices() == blocks.lost_indices());
    CHECK(other.num_sealed() == blocks.num_sealed() && other.num_steps() == blocks.num_steps());
}

void rings_skip_lost_steps(std::int64_t n_step) {
    std::mt19937 random(3);
    Play play(n_step);
    const std::size_t capacity = n_step == 25 ? 40 : 200;  // 40: steps are evicted while they are pending
    StepRing ring(capacity, kEnvs, rules_of(n_step));
    for (std::int32_t env_id = 0; env_id < static_cast<std::int32_t>(kEnvs); ++env_id) {
        play.begin(ring, env_id);
    }
    std::vector<Eviction> evictions;
    for (int turn = 0; turn < 3000; ++turn) {
        play.step(ring, random, [&] { ring.evict_for(1, evictions); });
        const std::int64_t oldest = ring.oldest();
        for (std::int64_t number = 0; number < oldest; ++number) {
            play.steps[static_cast<std::size_t>(number)].is_readable = false;
        }
        if (random() % 60 == 0) {
            play.lose(ring, random);
        }
        if (turn % 37 == 0) {
            play.compare(ring);
        }
    }
}

}  // namespace

int main() {
    for (const std::int64_t n_step : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{25}}) {
        blocks_store_what_lists_store(n_step);
        blocks_are_restored_unchanged(n_step);
        rings_skip_lost_steps(n_step);
    }
    std::puts("step block tests: all hold");
    return 0;
}
