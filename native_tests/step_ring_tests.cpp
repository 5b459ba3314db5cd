// Tests of the ring of steps and of frame stacks without Python, against plain lists. Buffers have the exact size, so
// that a sanitizer finds every access beyond them. Exits with 0 on success.
#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>

#include "check.hpp"
#include "frame_stacks.hpp"
#include "step_ring.hpp"

using namespace framestow;

namespace {

struct ListedStep {
    std::int32_t env_id;
    std::int64_t position;
    std::int64_t stretch_start;
    float reward;
    std::uint8_t flags;
    std::vector<std::int64_t> action;
    std::uint8_t number;
};

// Returns a byte of step `number`'s value in an extra field.
std::uint8_t column_byte(std::uint8_t number, std::size_t column, std::size_t at) {
    return static_cast<std::uint8_t>(number * 5U + column * 31U + at);
}

struct Shape {
    std::size_t capacity;
    std::size_t num_envs;
    std::int64_t stack;
    std::int64_t segment_frames;
    std::size_t integer_bytes;  // per integer of an action
    bool is_signed;
    std::int64_t first_position;  // position of every environment's first frame
    std::size_t num_integers = 1;
    std::vector<std::size_t> column_bytes = {};

    std::size_t action_bytes() const { return integer_bytes * num_integers; }
    StepRules rules() const {
        return {stack, segment_frames, 0.5F, ActionLayout{action_bytes(), true, is_signed, num_integers}, column_bytes};
    }
};

// A ring with its own memory, and the steps that it should store.
class TwinRings {
public:
    explicit TwinRings(const Shape& shape)
        : shape_(shape),
          let_go_(shape.num_envs, 0),
          ring_(shape.capacity, shape.num_envs, shape.rules(), shape.num_envs % 2 == 0) {
        ring_.cursors().envs().newest_positions.assign(shape.num_envs, shape.first_position - 1);
        for (std::size_t env_id = 0; env_id < shape.num_envs; ++env_id) {
            begin(static_cast<std::int32_t>(env_id));
        }
    }

    void begin(std::int32_t env_id) {
        ring_.begin(&env_id, 1);
        CHECK(ring_.cursors().may_append(&env_id, 1));
    }

    // Steps a random choice of the environments with an open episode; ended episodes restart.
    void step(std::mt19937& random) {
        std::vector<std::int32_t> env_ids;
        for (std::size_t env_id = 0; env_id < shape_.num_envs; ++env_id) {
            if (env_ids.size() < shape_.capacity && random() % 4 != 0) {
                env_ids.push_back(static_cast<std::int32_t>(env_id));
            }
        }
        std::shuffle(env_ids.begin(), env_ids.end(), random);
        std::vector<std::uint8_t> actions(env_ids.size() * shape_.action_bytes());
        std::vector<std::uint8_t> columns;
        std::vector<float> rewards(env_ids.size());
        std::vector<std::uint8_t> flags(env_ids.size());
        for (std::size_t row = 0; row < env_ids.size(); ++row) {
            std::vector<std::int64_t> action;
            for (std::size_t at = 0; at < shape_.num_integers; ++at) {
                action.push_back(random_integer(random));
                std::memcpy(actions.data() + row * shape_.action_bytes() + at * shape_.integer_bytes, &action.back(),
                            shape_.integer_bytes);  // little-endian
            }
            const std::uint8_t number = next_number_++;
            for (std::size_t column = 0; column < shape_.column_bytes.size(); ++column) {
                for (std::size_t at = 0; at < shape_.column_bytes[column]; ++at) {
                    columns.push_back(column_byte(number, column, at));
                }
            }
            rewards[row] = static_cast<float>(random() % 100);
            flags[row] = random() % 5 == 0 ? static_cast<std::uint8_t>(random() % 4) : std::uint8_t{0};
            flags[row] = static_cast<std::uint8_t>(flags[row] | (random() % 6 == 0 ? kBorder : kNoFlags));
            const auto env_id = static_cast<std::size_t>(env_ids[row]);
            listed_.push_back(ListedStep{env_ids[row], ring_.cursors().newest_position(env_id),
                                         ring_.cursors().envs().stretch_starts[env_id], rewards[row], flags[row],
                                         action, number});
        }
        CHECK(ring_.cursors().may_append(env_ids.data(), env_ids.size()));
        evict_for(env_ids.size());
        std::vector<std::int64_t> indices(env_ids.size());
        const std::int64_t first = ring_.next_index();
        ring_.append(
            PlannedSteps{env_ids.data(), actions.data(), rewards.data(), flags.data(), env_ids.size(), columns.data()},
            indices.data());
        for (std::size_t row = 0; row < indices.size(); ++row) {
            CHECK(indices[row] == first + static_cast<std::int64_t>(row));
        }
        for (std::size_t row = 0; row < env_ids.size(); ++row) {
            CHECK(ring_.cursors().may_append(&env_ids[row], 1) == !ends_episode(flags[row]));
            if (ends_episode(flags[row])) {
                begin(env_ids[row]);
            }
        }
    }

    void compare() const {
        std::vector<std::int64_t> indices;
        for (std::int64_t index = ring_.oldest(); index < ring_.next_index(); ++index) {
            indices.push_back(index);
        }
        const std::size_t count = indices.size();
        CHECK(count == listed_.size());
        CHECK(!ring_.is_sampleable(ring_.oldest() - 1) && !ring_.is_sampleable(ring_.next_index()));
        std::vector<std::int32_t> env_ids(count), counts(count);
        std::vector<std::int64_t> lasts(count), actions(count * shape_.num_integers);
        std::vector<float> rewards(count), discounts(count);
        const std::unique_ptr<bool[]> terminated(new bool[count]), truncated(new bool[count]);
        std::vector<std::vector<std::uint8_t>> columns;
        std::vector<std::uint8_t*> column_places;
        for (const std::size_t bytes : shape_.column_bytes) {
            columns.emplace_back(count * bytes);
            column_places.push_back(columns.back().data());
        }
        ring_.resolve_steps(
            indices.data(), count,
            ResolvedSteps{env_ids.data(), lasts.data(), counts.data(), reinterpret_cast<std::uint8_t*>(actions.data()),
                          rewards.data(), discounts.data(), terminated.get(), truncated.get(), column_places.data()});
        for (std::size_t row = 0; row < count; ++row) {
            const ListedStep& step = listed_[row];
            CHECK(env_ids[row] == step.env_id && lasts[row] == step.position + 1);
            CHECK(counts[row] == std::min(step.position - step.stretch_start, shape_.stack - 1) + 2);
            CHECK(rewards[row] == step.reward);
            CHECK(std::equal(step.action.begin(), step.action.end(),
                             actions.begin() + static_cast<std::ptrdiff_t>(row * shape_.num_integers)));
            for (std::size_t column = 0; column < columns.size(); ++column) {
                const std::size_t bytes = shape_.column_bytes[column];
                for (std::size_t at = 0; at < bytes; ++at) {
                    CHECK(columns[column][row * bytes + at] == column_byte(step.number, column, at));
                }
            }
            CHECK(terminated[row] == ((step.flags & kTerminated) != 0));
            CHECK(truncated[row] == ((step.flags & kTruncated) != 0));
            CHECK(discounts[row] == (terminated[row] ? 0.0F : 0.5F));
            CHECK(lasts[row] - counts[row] + 1 >= let_go_[static_cast<std::size_t>(step.env_id)]);
        }
    }

private:
    std::int64_t random_integer(std::mt19937& random) const {
        const auto bits = static_cast<unsigned>(8 * shape_.integer_bytes);
        const auto number = static_cast<std::int64_t>((std::uint64_t{random()} << 32) | random());
        if (bits == 64) {
            return number;
        }
        const auto within = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) & ((1ULL << bits) - 1));
        return shape_.is_signed ? within - (std::int64_t{1} << (bits - 1)) : within;
    }

    void evict_for(std::size_t count) {
        std::vector<Eviction> evictions;
        ring_.evict_for(count, evictions);
        while (listed_.size() > shape_.capacity) {
            listed_.pop_front();
        }
        for (const Eviction& eviction : evictions) {
            std::int64_t& before = let_go_[static_cast<std::size_t>(eviction.env_id)];
            CHECK(eviction.before / shape_.segment_frames >
                  before / shape_.segment_frames);  // each segment is reported once
            before = eviction.before;
        }
    }

    Shape shape_;
    std::vector<std::int64_t> let_go_;
    std::deque<ListedStep> listed_;
    std::uint8_t next_number_ = 0;
    StepRing ring_;
};

void rings_store_what_lists_store() {
    std::mt19937 random(1);
    const std::int64_t near_wrap = (std::int64_t{1} << 32) - 20;
    const Shape shapes[] = {{1, 1, 1, 1, 1, false, 0},
                            {2, 2, 3, 1, 1, true, 0},
                            {7, 3, 4, 16, 2, false, 0},
                            {50, 4, 2, 5, 2, true, 0},
                            {33, 5, 256, 8, 4, true, 0},
                            {40, 2, 4, 4, 4, false, near_wrap},
                            {300, 257, 4, 3, 8, true, 0},
                            {20, 2, 2, 4, 1, true, 0, 3, {4}},
                            {30, 300, 3, 4, 2, false, 0, 2, {1, 16, 3}},
                            {9, 1, 1, 2, 8, true, 0, 5, {40}}};
    for (const Shape& shape : shapes) {
        TwinRings rings(shape);
        for (int turn = 0; turn < 120; ++turn) {
            rings.step(random);
            rings.compare();
        }
    }
}

void steps_that_may_not_be_appended_are_refused() {
    const StepRules rules{1, 1, 0.9F, ActionLayout{1, true, false}};
    CHECK(StepRecords::record_bytes(3, rules) == 12);
    StepRing ring(4, 3, rules);
    const std::int32_t begun[] = {0, 2};
    ring.begin(begun, 2);
    const auto may = [&](std::vector<std::int32_t> env_ids) {
        return ring.cursors().may_append(env_ids.data(), env_ids.size());
    };
    CHECK(may({}) && may({0}) && may({2, 0}));
    CHECK(!may({1}) && !may({0, 1}));        // no episode has begun
    CHECK(!may({0, 0}) && !may({2, 0, 2}));  // a repeated environment
    CHECK(!may({-1}) && !may({3}) && may({0}));
}

void stream_numbers_take_the_fewest_bytes() {
    CHECK(StepRecords::env_id_bytes(1) == 1 && StepRecords::env_id_bytes(256) == 1 &&
          StepRecords::env_id_bytes(257) == 2);
    CHECK(StepRecords::env_id_bytes(65536) == 2 && StepRecords::env_id_bytes(65537) == 4);
}

void stacks_show_the_last_frames_padded(StackPadding padding) {
    constexpr std::size_t kFrameBytes = 3;
    for (const std::size_t depth : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
        std::vector<std::uint8_t> out(2 * depth * kFrameBytes);
        FrameStacks stacks(2, depth, kFrameBytes, padding);
        const std::int32_t env_id = 1;
        for (int episode = 0; episode < 3; ++episode) {
            for (int age = 0; age < 12; ++age) {
                const auto shade = static_cast<std::uint8_t>(20 * episode + age + 1);
                const std::vector<std::uint8_t> frame(kFrameBytes, shade);
                const StretchStart start{age == 0 ? StretchPadding::kUsual : StretchPadding::kContinues, nullptr};
                stacks.advance(&env_id, frame.data(), 1, &start);
                stacks.write(out.data());
                for (std::size_t place = 0; place < depth; ++place) {
                    const int wanted = age - static_cast<int>(depth - 1 - place);
                    const bool is_zeros = wanted < 0 && padding == StackPadding::kZeros;
                    CHECK(out[place * kFrameBytes] == 0);
                    CHECK(out[(depth + place) * kFrameBytes + 2] ==
                          (is_zeros ? 0 : 20 * episode + std::max(wanted, 0) + 1));
                }
            }
        }
    }
}

}  // namespace

int main() {
    rings_store_what_lists_store();
    steps_that_may_not_be_appended_are_refused();
    stream_numbers_take_the_fewest_bytes();
    stacks_show_the_last_frames_padded(StackPadding::kFirstFrame);
    stacks_show_the_last_frames_padded(StackPadding::kZeros);
    std::puts("step ring tests: all hold");
    return 0;
}
