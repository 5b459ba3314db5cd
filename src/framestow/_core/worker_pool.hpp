// Helper threads that share the work of one call.
//
// The threads belong to the process, start on first use, and stay. Concurrent callers share them. A caller works too
// and waits only for helpers that have begun, so the work completes even if no thread can be started. A forked child
// starts its own helpers. Helper threads receive no signals.
#pragma once

#include <cstddef>
#include <functional>

namespace framestow {

inline constexpr std::size_t kMaxThreads = 64;

// Calls `work` on this thread and on up to num_threads - 1 helpers (kMaxThreads in all) at the same time. Returns when
// every call has returned, and rethrows the first exception.
void run_on_threads(std::size_t num_threads, const std::function<void()>& work);

}  // namespace framestow
