#include "worker_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__unix__) || defined(__APPLE__)
#define FRAMESTOW_POSIX_THREADS 1
#include <pthread.h>
#include <signal.h>
#endif

namespace framestow {
namespace {

// While this object lives, new threads block all signals: signals belong to the threads that Python knows.
class SignalsBlocked {
public:
#ifdef FRAMESTOW_POSIX_THREADS
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
    sigset_t before_;
#else
    SignalsBlocked() {}
    ~SignalsBlocked() {}
#endif
};

struct Job {
    Job(const std::function<void()>& job_work, std::size_t helpers) : work(job_work), num_wanted(helpers) {}

    const std::function<void()>& work;
    std::size_t num_wanted;       // number of helpers that may still join
    std::size_t num_helping = 0;  // helpers that have begun and not returned
    std::exception_ptr failure;   // the first one of a helper
    std::condition_variable helper_left;
};

class WorkerPool {
public:
    void run(std::size_t num_helpers, const std::function<void()>& work) {
        Job job(work, num_helpers);
        post(job);
        std::exception_ptr failure = call(work);
        std::unique_lock<std::mutex> lock(mutex_);
        open_jobs_.erase(std::remove(open_jobs_.begin(), open_jobs_.end(), &job), open_jobs_.end());
        job.helper_left.wait(lock, [&] { return job.num_helping == 0; });
        if (!failure) {
            failure = job.failure;
        }
        lock.unlock();
        if (failure) {
            std::rethrow_exception(failure);
        }
    }

private:
    static std::exception_ptr call(const std::function<void()>& work) {
        try {
            work();
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }

    void post(Job& job) {
        const std::lock_guard<std::mutex> lock(mutex_);
        start_threads(job.num_wanted);
        open_jobs_.push_back(&job);
        if (job.num_wanted > 1) {
            has_job_.notify_all();
        } else {
            has_job_.notify_one();
        }
    }

    void start_threads(std::size_t wanted) {
        const SignalsBlocked blocked;
        try {
            for (; num_threads_ < wanted; ++num_threads_) {
                std::thread([this] { serve(); }).detach();
            }
        } catch (const std::system_error&) {
            // The system provides no more threads: existing helpers and the caller do the work.
        }
    }

    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            has_job_.wait(lock, [this] { return !open_jobs_.empty(); });
            Job& job = *open_jobs_.front();
            if (--job.num_wanted == 0) {
                open_jobs_.pop_front();
            }
            ++job.num_helping;
            lock.unlock();
            const std::exception_ptr failure = call(job.work);
            lock.lock();
            if (failure && !job.failure) {
                job.failure = failure;
            }
            if (--job.num_helping == 0) {
                job.helper_left.notify_one();
            }
        }
    }

    std::mutex mutex_;                 // guards the members below, and those of a job but its work
    std::condition_variable has_job_;  // what idle threads wait for
    std::deque<Job*> open_jobs_;       // those that want more helpers, oldest first; each on its caller's stack
    std::size_t num_threads_ = 0;      // started so far; none ends
};

// Never destroyed: its threads wait in it until the process ends.
std::atomic<WorkerPool*> shared_pool{nullptr};

#ifdef FRAMESTOW_POSIX_THREADS
// A forked child has none of its parent's threads, and another thread may have held the parent's mutex.
[[maybe_unused]] const int leave_pool_to_parent = pthread_atfork(nullptr, nullptr, [] { shared_pool.store(nullptr); });
#endif

WorkerPool& pool_of_this_process() {
    WorkerPool* pool = shared_pool.load(std::memory_order_acquire);
    if (pool == nullptr) {
        auto* const made = new WorkerPool;
        if (shared_pool.compare_exchange_strong(pool, made, std::memory_order_acq_rel)) {
            return *made;
        }
        delete made;  // another thread was first
    }
    return *pool;
}

}  // namespace

void run_on_threads(std::size_t num_threads, const std::function<void()>& work) {
    if (num_threads <= 1) {
        work();
        return;
    }
    pool_of_this_process().run(std::min(num_threads, kMaxThreads) - 1, work);
}

}  // namespace framestow
