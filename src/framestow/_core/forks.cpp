#include "forks.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace framestow {

// All objects of this process, held one after the other.
class Forks {
public:
    void add(HeldByForks* object) {
        const std::lock_guard<std::mutex> changing(mutex_);
        objects_.push_back(object);
    }

    void remove(HeldByForks* object) {
        const std::lock_guard<std::mutex> changing(mutex_);
        objects_.erase(std::find(objects_.begin(), objects_.end(), object));
    }

    void before() {
        mutex_.lock();
        const auto deadline = std::chrono::steady_clock::now() + kMostWait;
        for (HeldByForks* const object : objects_) {
            while (!(object->is_held_ = object->try_to_hold()) && std::chrono::steady_clock::now() < deadline) {
                std::this_thread::sleep_for(kPause);  // the thread that has the lock may wait for this core
            }
        }
    }

    void after(bool is_child) {
        for (HeldByForks* const object : objects_) {
            object->give_back(is_child, object->is_held_);
            object->is_held_ = false;
        }
        mutex_.unlock();
    }

private:
    static constexpr std::chrono::seconds kMostWait{1};
    static constexpr std::chrono::microseconds kPause{20};

    std::mutex mutex_;
    std::vector<HeldByForks*> objects_;
};

namespace {

// Never destroyed: objects may be destroyed after static ones.
Forks& all_objects() {
    static Forks& forks = *new Forks;
    return forks;
}

#if defined(__unix__) || defined(__APPLE__)
[[maybe_unused]] const int hold_during_forks = pthread_atfork(
    [] { all_objects().before(); }, [] { all_objects().after(false); }, [] { all_objects().after(true); });
#endif

}  // namespace

HeldByForks::HeldByForks() { all_objects().add(this); }

HeldByForks::~HeldByForks() { all_objects().remove(this); }

}  // namespace framestow
