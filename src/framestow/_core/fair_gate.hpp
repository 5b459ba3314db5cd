// A reader-writer lock for critical sections of microseconds that starves neither side.
//
// Readers and writers take turns (phase-fair ticket lock: Brandenburg and Anderson, "Spin-based reader-writer
// synchronization for multiprocessor real-time systems", Real-Time Systems 46, 2010). A reader waits for at most one
// writer. A writer waits for earlier readers and writers. glibc's std::shared_mutex lets readers overtake a waiting
// writer for ever. A waiting thread spins for the usual duration of a critical section and then sleeps until it is
// woken. Never allocates; not recursive. Meets the requirements of std::shared_lock and std::unique_lock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#endif

namespace framestow {

class FairGate {
public:
    FairGate() = default;
    FairGate(const FairGate&) = delete;
    FairGate& operator=(const FairGate&) = delete;

    void lock_shared() {
        const std::uint32_t writer = readers_in_.fetch_add(kOneReader) & kWriterBits;
        if (writer != 0) {
            // The bits change when the writer leaves, or when the next writer waits for this reader.
            wait_until([&] { return (readers_in_.load() & kWriterBits) != writer; });
        }
    }

    void unlock_shared() {
        readers_out_.fetch_add(kOneReader);
        wake_sleepers();
    }

    void lock() {
        const std::uint32_t ticket = writers_in_.fetch_add(1);
        wait_until([&] { return writers_out_.load() == ticket; });
        const std::uint32_t readers = readers_in_.fetch_add(next_writer_bits());
        wait_until([&] { return readers_out_.load() == readers; });
    }

    // Spins for readers for about one critical section, then gives up; does not wait for another writer. New readers
    // may enter meanwhile: a writer that blocks readers must not give up before its turn, or the next writer could be
    // mistaken for it.
    bool try_lock() {
        std::uint32_t ticket = writers_out_.load();
        if (!writers_in_.compare_exchange_strong(ticket, ticket + 1)) {
            return false;
        }
        if (spin_until([&] { return enters_if_empty(); })) {
            return true;
        }
        let_next_writer_in();
        return false;
    }

    void unlock() {
        readers_in_.fetch_and(~kWriterBits);
        let_next_writer_in();
    }

    // Replaces the gate by an open one in a forked child. Its former state is not destroyed: glibc would wait for the
    // parent's threads that sleep here.
    void renew_in_child() { new (this) FairGate; }

private:
    static constexpr std::uint32_t kPhase = 1;    // alternates from one writer that blocks readers to the next
    static constexpr std::uint32_t kPresent = 2;  // a writer holds the lock or waits for earlier readers
    static constexpr std::uint32_t kWriterBits = kPhase | kPresent;
    static constexpr std::uint32_t kOneReader = 4;  // above the two bits of the writer
    static constexpr int kSpins = 128;              // 2 to 6 microseconds

    static void relax() {
#if defined(__SSE2__) || defined(_M_X64)
        _mm_pause();
#endif
    }

    // Only the writer whose turn it is calls the functions below.
    std::uint32_t next_writer_bits() {
        phase_ ^= kPhase;
        return kPresent | phase_;
    }

    bool enters_if_empty() {
        std::uint32_t readers = readers_in_.load();
        if (readers_out_.load() != readers) {
            return false;
        }
        // No reader has entered since, so none is inside or waiting.
        if (!readers_in_.compare_exchange_strong(readers, readers + (kPresent | (phase_ ^ kPhase)))) {
            return false;
        }
        phase_ ^= kPhase;
        return true;
    }

    void let_next_writer_in() {
        writers_out_.fetch_add(1);
        wake_sleepers();
    }

    template <typename Condition>
    static bool spin_until(const Condition& holds) {
        for (int spin = 0; spin < kSpins; ++spin) {
            if (holds()) {
                return true;
            }
            relax();
        }
        return false;
    }

    template <typename Condition>
    void wait_until(const Condition& holds) {
        if (spin_until(holds)) {
            return;
        }
        std::unique_lock<std::mutex> lock(sleep_);
        num_sleeping_.fetch_add(1);
        changed_.wait(lock, holds);
        num_sleeping_.fetch_sub(1);
    }

    // All operations are sequentially consistent. Either this thread sees the sleeper's count, or the sleeper's last
    // check sees the change.
    void wake_sleepers() {
        if (num_sleeping_.load() > 0) {
            const std::lock_guard<std::mutex> lock(sleep_);
            changed_.notify_all();
        }
    }

    std::atomic<std::uint32_t> readers_in_{0};  // counts in steps of kOneReader; the low bits are the writer's
    // In the same steps; equal to readers_in_ without its low bits if nobody is inside.
    std::atomic<std::uint32_t> readers_out_{0};
    std::uint32_t phase_ = 0;  // of the last writer that blocked readers; only the writer whose turn it is changes it
    std::atomic<std::uint32_t> writers_in_{0};    // ticket of the next writer
    std::atomic<std::uint32_t> writers_out_{0};   // ticket of the writer whose turn it is
    std::atomic<std::uint32_t> num_sleeping_{0};  // threads that wait for changed_
    std::mutex sleep_;
    std::condition_variable changed_;
};

}  // namespace framestow
