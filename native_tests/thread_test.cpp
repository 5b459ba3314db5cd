// One writer and several readers at once, under ThreadSanitizer: every frame read equals the appended one.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "fair_gate.hpp"
#include "frame_store.hpp"
#include "window_reader.hpp"
#include "worker_pool.hpp"

using namespace framestow;

namespace {

constexpr std::size_t kLength = 5;

// Writes a frame whose every byte encodes its environment and position, so a mixture of two frames equals neither.
void write_frame(std::int64_t env_id, std::int64_t position, std::size_t size, std::uint8_t* out) {
    for (std::size_t index = 0; index < size; ++index) {
        const auto place = static_cast<std::int64_t>(index / 16);
        out[index] = static_cast<std::uint8_t>(31 * env_id + position + (place % 7 == position % 7 ? place : 0));
    }
}

constexpr std::int64_t kLeadIns = kLength - 1;

bool begins_stretch(std::int64_t position) { return position % 3 == 0; }

// The number by which write_frame() draws the lead-in that stands `before` frames before a stretch's first one.
std::int64_t number_of_lead_in(std::int64_t position, std::int64_t before) { return position + 1000 - before; }

void append_next(FrameStore& packed, std::int32_t env_id) {
    const std::size_t frame_bytes = packed.geometry().frame_bytes();
    const std::int64_t position = packed.next_position(env_id);
    std::vector<std::uint8_t> stack(kLength * frame_bytes);
    for (std::int64_t before = kLeadIns; before > 0; --before) {
        write_frame(env_id, number_of_lead_in(position, before), frame_bytes,
                    stack.data() + static_cast<std::size_t>(kLeadIns - before) * frame_bytes);
    }
    std::uint8_t* const frame = stack.data() + kLeadIns * frame_bytes;
    write_frame(env_id, position, frame_bytes, frame);
    const StretchStart start{begins_stretch(position) ? StretchPadding::kLeadIns : StretchPadding::kContinues,
                             stack.data()};
    packed.append(&env_id, frame, 1, &start);
}

// Windows at random positions of the frames stored at construction.
struct Wanted {
    Wanted(const FrameStore& packed, std::size_t num_windows, std::mt19937& random) {
        std::vector<std::int64_t> firsts, stops;
        for (std::size_t env_id = 0; env_id < packed.num_envs(); ++env_id) {
            firsts.push_back(packed.first_position(static_cast<std::int64_t>(env_id)));
            stops.push_back(packed.next_position(static_cast<std::int64_t>(env_id)));
        }
        for (std::size_t window = 0; window < num_windows; ++window) {
            const std::size_t env_id = random() % packed.num_envs();
            const std::int64_t first = firsts[env_id];
            const std::int64_t num_held = stops[env_id] - first;
            env_ids.push_back(static_cast<std::int32_t>(env_id));
            // Mostly the oldest and newest positions: those being evicted and those being written.
            const auto few = static_cast<std::int64_t>(random() % 6);
            const std::int64_t places[] = {few, num_held - 1 - few, static_cast<std::int64_t>(random()) % num_held};
            const std::int64_t place = places[random() % 3];
            last_positions.push_back(first + place);
            counts.push_back(1 + static_cast<std::int32_t>(random() >> 8) %
                                     static_cast<std::int32_t>(std::min<std::int64_t>(kLength, place + 1)));
        }
    }

    WindowRequests requests() const {
        return WindowRequests{env_ids.data(), last_positions.data(), counts.data(), env_ids.size()};
    }

    void check(const std::vector<std::uint8_t>& out, std::size_t frame_bytes) const {
        std::vector<std::uint8_t> expected(frame_bytes);
        for (std::size_t window = 0; window < env_ids.size(); ++window) {
            const std::int64_t first = last_positions[window] - counts[window] + 1;
            for (std::size_t place = 0; place < kLength; ++place) {
                const auto back = static_cast<std::int64_t>(kLength - 1 - place);
                const std::int64_t before = back - counts[window] + 1;
                const std::int64_t number = before > 0 && begins_stretch(first)
                                                ? number_of_lead_in(first, before)
                                                : std::max(first, last_positions[window] - back);
                write_frame(env_ids[window], number, frame_bytes, expected.data());
                CHECK(std::memcmp(out.data() + (window * kLength + place) * frame_bytes, expected.data(),
                                  frame_bytes) == 0);
            }
        }
    }

    std::vector<std::int32_t> env_ids;
    std::vector<std::int64_t> last_positions;
    std::vector<std::int32_t> counts;
};

struct Load {
    FrameGeometry geometry;
    std::uint32_t frames_per_segment;
    std::int64_t num_kept;      // frames per environment
    std::int64_t num_appended;  // frames appended to each environment
    std::size_t num_windows;
    std::size_t threads_a_read;
    bool moves_to_files;
    bool is_raw = false;
};

void read_until(const std::atomic<bool>& has_ended, FrameStore& packed, const Load& load, unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t frame_bytes = load.geometry.frame_bytes();
    std::vector<std::uint8_t> out(load.num_windows * kLength * frame_bytes);
    do {
        const Snapshot snapshot(packed);
        const Wanted wanted(packed, load.num_windows, random);
        if (random() % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(300));  // some frames are evicted meanwhile
        }
        read_windows(snapshot, wanted.requests(), kLength, StackPadding::kFirstFrame, load.threads_a_read, out.data());
        wanted.check(out, frame_bytes);
    } while (!has_ended.load());
}

// Writes sealed segments into files and moves them there, as a flush does beside the appending thread. Every second one
// moves again, and files are removed while segments lie in them.
class Mover {
public:
    explicit Mover(FrameStore& packed) : packed_(packed) {}

    void run_until(const std::atomic<bool>& has_ended) {
        std::vector<std::int64_t> next(packed_.num_envs());
        std::mt19937 random(7);
        while (!has_ended.load()) {
            const auto env_id = static_cast<std::int64_t>(random() % packed_.num_envs());
            std::int64_t& number = next[static_cast<std::size_t>(env_id)];
            const std::int64_t frames = packed_.frames_per_segment();
            number = std::max(number, packed_.first_position(env_id) / frames);
            if (number >= packed_.next_position(env_id) / frames) {
                std::this_thread::yield();
                continue;
            }
            move(env_id, number);
            if (number % 2 == 0) {
                move(env_id, number);
            }
            ++number;
        }
        std::remove(path_.c_str());
    }

    std::size_t num_moved() const { return num_moved_; }

private:
    void move(std::int64_t env_id, std::int64_t number) {
        try {
            const std::vector<std::uint8_t> segment = packed_.segment(env_id, number);
            if (num_moved_ % 20 == 0) {
                std::remove(path_.c_str());
                path_ = "thread_test." + std::to_string(num_moved_) + ".log";
                offset_ = 0;
            }
            std::FILE* const file = std::fopen(path_.c_str(), "ab");
            CHECK(file != nullptr && std::fwrite(segment.data(), 1, segment.size(), file) == segment.size());
            std::fclose(file);
            packed_.move_to_file(env_id, number, path_, offset_, segment.size());
            offset_ += segment.size();
            ++num_moved_;
        } catch (const std::out_of_range&) {  // evicted meanwhile
            ++num_moved_;
            offset_ = 0;
            std::remove(path_.c_str());
            path_ = "thread_test." + std::to_string(num_moved_) + ".log";
        }
    }

    FrameStore& packed_;
    std::string path_ = "thread_test.log";
    std::uint64_t offset_ = 0;
    std::atomic<std::size_t> num_moved_{0};  // the writer goes on until the first
};

void readers_get_true_frames_while_a_writer_appends_and_evicts(const Load& load) {
    constexpr std::int32_t kEnvs = 3;
    FrameStore packed(kEnvs, FrameFormat(load.geometry, load.is_raw, 0, kLeadIns), load.frames_per_segment);
    Mover mover(packed);
    for (std::int32_t env_id = 0; env_id < kEnvs; ++env_id) {
        for (int position = 0; position < 10; ++position) {
            append_next(packed, env_id);
        }
    }
    std::atomic<bool> has_ended{false};
    std::vector<std::thread> readers;
    for (unsigned seed = 0; seed < 3; ++seed) {
        readers.emplace_back([&, seed] { read_until(has_ended, packed, load, seed); });
    }
    if (load.moves_to_files) {
        readers.emplace_back([&] { mover.run_until(has_ended); });
    }
    const auto waits_for_mover = [&] { return load.moves_to_files && mover.num_moved() == 0; };
    for (std::int64_t round = 0; round < load.num_appended || (waits_for_mover() && round < 10'000'000); ++round) {
        for (std::int32_t env_id = 0; env_id < kEnvs; ++env_id) {
            append_next(packed, env_id);
            packed.evict(env_id, packed.next_position(env_id) - load.num_kept);
        }
        packed.nbytes();
    }
    has_ended.store(true);
    for (std::thread& reader : readers) {
        reader.join();
    }
    CHECK(mover.num_moved() > 0 || !load.moves_to_files);
}

void retired_bytes_are_bounded_and_freed_when_their_readers_have_stopped() {
    FrameStore packed(1, FrameGeometry{6, 16, 1}, 1);
    append_next(packed, 0);
    Snapshot snapshot(packed);
    std::size_t num_retired = 0;
    while (packed.evict_without_waiting(0, packed.next_position(0))) {
        append_next(packed, 0);
        ++num_retired;
        CHECK(num_retired <= RetiredSegments::kMaxSegments);
    }
    CHECK(num_retired == RetiredSegments::kMaxSegments);
    std::vector<std::uint8_t> out(96), expected(96);
    const std::int32_t env_id = 0, count = 1;
    const std::int64_t last = 0;
    read_windows(snapshot, WindowRequests{&env_id, &last, &count, 1}, 1, StackPadding::kFirstFrame, 1, out.data());
    write_frame(0, 0, 96, expected.data());
    CHECK(out == expected);

    std::atomic<bool> was_evicted{false};
    std::thread writer([&] {
        packed.evict(0, packed.next_position(0));
        was_evicted.store(true);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(!was_evicted.load());
    snapshot.stop();
    writer.join();
    CHECK(packed.first_position(0) == packed.next_position(0));
}

void a_later_reading_is_refused_frames_that_an_older_one_sees() {
    FrameStore packed(1, FrameGeometry{4, 4, 1}, 4);
    for (int position = 0; position < 9; ++position) {
        append_next(packed, 0);
    }
    const Snapshot older(packed);
    packed.evict(0, 4);
    const Snapshot later(packed);
    std::vector<std::uint8_t> out(16), expected(16);
    const std::int32_t env_id = 0, count = 1;
    const std::int64_t last = 3;
    const WindowRequests requests{&env_id, &last, &count, 1};
    read_windows(older, requests, 1, StackPadding::kFirstFrame, 1, out.data());
    write_frame(0, 3, 16, expected.data());
    CHECK(out == expected);
    bool was_refused = false;
    try {
        read_windows(later, requests, 1, StackPadding::kFirstFrame, 1, out.data());
    } catch (const std::out_of_range&) {
        was_refused = true;
    }
    CHECK(was_refused);
}

void overlapping_readers_let_a_writer_in() {
    FairGate gate;
    std::atomic<bool> has_ended{false};
    std::int64_t written = 0;  // guarded only by the gate
    std::vector<std::thread> readers;
    for (int index = 0; index < 4; ++index) {
        readers.emplace_back([&] {
            while (!has_ended.load()) {
                const std::shared_lock<FairGate> snapshot(gate);
                const std::int64_t before = written;
                std::this_thread::sleep_for(std::chrono::microseconds(200));
                CHECK(written == before);
            }
        });
    }
    for (int round = 0; round < 100; ++round) {
        gate.lock();
        ++written;
        gate.unlock();
        if (gate.try_lock()) {
            ++written;
            gate.unlock();
        }
    }
    has_ended.store(true);
    for (std::thread& reader : readers) {
        reader.join();
    }
    CHECK(written >= 100);
}

void several_callers_share_the_helpers() {
    std::vector<std::thread> callers;
    for (int index = 0; index < 3; ++index) {
        callers.emplace_back([] {
            for (int round = 0; round < 200; ++round) {
                std::atomic<int> next{0};
                std::array<int, 50> num_done{};
                run_on_threads(3, [&] {
                    for (int part = next.fetch_add(1); part < 50; part = next.fetch_add(1)) {
                        ++num_done[static_cast<std::size_t>(part)];
                    }
                });
                for (const int times : num_done) {
                    CHECK(times == 1);
                }
            }
        });
    }
    for (std::thread& caller : callers) {
        caller.join();
    }
}

void an_exception_of_a_helper_reaches_the_caller() {
    const std::thread::id caller = std::this_thread::get_id();
    for (int round = 0; round < 50; ++round) {
        std::atomic<bool> has_helper{false};
        bool was_thrown = false;
        try {
            run_on_threads(2, [&] {
                if (std::this_thread::get_id() != caller) {
                    has_helper.store(true);
                    throw std::runtime_error("of a helper");
                }
                while (!has_helper.load()) {
                    std::this_thread::yield();
                }
            });
        } catch (const std::runtime_error&) {
            was_thrown = true;
        }
        CHECK(was_thrown);
    }
}

// Writes noise, which packing cannot make smaller.
void write_noise(std::int64_t position, std::size_t size, std::uint8_t* out) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(position));
    for (std::size_t index = 0; index < size; ++index) {
        out[index] = static_cast<std::uint8_t>(random());
    }
}

void read_segments_until(const std::atomic<bool>& has_ended, FrameStore& packed, unsigned seed) {
    std::mt19937 random(seed);
    const std::size_t frame_bytes = packed.geometry().frame_bytes();
    const std::int64_t segment_frames = packed.frames_per_segment();
    std::vector<std::uint8_t> out(8 * kLength * frame_bytes), expected(frame_bytes);
    do {
        const Snapshot snapshot(packed);
        const std::vector<std::int64_t> numbers = packed.sealed_numbers(0);
        const std::vector<std::int32_t> env_ids(8, 0), counts(8, static_cast<std::int32_t>(kLength));
        std::vector<std::int64_t> lasts;
        for (int window = 0; window < 8; ++window) {
            lasts.push_back((numbers[random() % numbers.size()] + 1) * segment_frames - 1);
        }
        read_windows(snapshot, WindowRequests{env_ids.data(), lasts.data(), counts.data(), 8}, kLength,
                     StackPadding::kFirstFrame, 1, out.data());
        for (std::size_t window = 0; window < 8; ++window) {
            write_noise(lasts[window], frame_bytes, expected.data());
            CHECK(std::memcmp(out.data() + (window * kLength + kLength - 1) * frame_bytes, expected.data(),
                              frame_bytes) == 0);
        }
    } while (!has_ended.load());
}

// Each new segment evicts a random one, so segments in sparse blocks are moved while they are read.
void readers_get_true_frames_of_segments_that_move() {
    constexpr std::int64_t kHeld = 300, kRounds = 900;
    FrameStore packed(1, FrameGeometry{32, 32, 1}, 8);
    const std::size_t frame_bytes = packed.geometry().frame_bytes();
    std::vector<std::uint8_t> frame(frame_bytes);
    const std::int32_t env_id = 0;
    const auto append_segment = [&] {
        for (int count = 0; count < 8; ++count) {
            write_noise(packed.next_position(0), frame_bytes, frame.data());
            packed.append(&env_id, frame.data(), 1);
        }
    };
    for (std::int64_t number = 0; number < kHeld; ++number) {
        append_segment();
    }
    std::atomic<bool> has_ended{false};
    std::vector<std::thread> readers;
    for (unsigned seed = 0; seed < 2; ++seed) {
        readers.emplace_back([&, seed] { read_segments_until(has_ended, packed, seed); });
    }
    std::mt19937 random(9);
    for (std::int64_t round = 0; round < kRounds; ++round) {
        const std::vector<std::int64_t> numbers = packed.sealed_numbers(0);
        const std::int64_t number = numbers[random() % numbers.size()];
        packed.evict(0, (number + 1) * 8, number * 8);
        append_segment();
    }
    has_ended.store(true);
    for (std::thread& reader : readers) {
        reader.join();
    }
    const std::size_t live_bytes = static_cast<std::size_t>(kHeld) * 8 * frame_bytes;
    CHECK(packed.nbytes().sealed <
          live_bytes + std::size_t{5} * 1024 * 1024);  // without moves it would be 7 MiB and more
}

}  // namespace

int main() {
    readers_get_true_frames_while_a_writer_appends_and_evicts({{6, 16, 1}, 8, 40, 1500, 40, 1, false});
    readers_get_true_frames_while_a_writer_appends_and_evicts({{84, 84, 1}, 8, 24, 80, 64, 2, false});
    readers_get_true_frames_while_a_writer_appends_and_evicts({{6, 16, 1}, 8, 40, 1500, 40, 1, false, true});
    readers_get_true_frames_of_segments_that_move();
    readers_get_true_frames_while_a_writer_appends_and_evicts({{6, 16, 1}, 8, 80, 1000, 40, 1, true});
    readers_get_true_frames_while_a_writer_appends_and_evicts({{84, 84, 1}, 8, 48, 80, 64, 2, true});
    readers_get_true_frames_while_a_writer_appends_and_evicts({{6, 16, 1}, 8, 80, 1000, 40, 1, true, true});
    retired_bytes_are_bounded_and_freed_when_their_readers_have_stopped();
    a_later_reading_is_refused_frames_that_an_older_one_sees();
    overlapping_readers_let_a_writer_in();
    several_callers_share_the_helpers();
    an_exception_of_a_helper_reaches_the_caller();
    std::puts("thread test: all hold");
    return 0;
}
