// Threads that help with the work of one call.
//
// The threads are the process's, started when first asked for, and kept: several callers at once share them. A caller
// works too and never waits for a helper to come, only for those that have begun, so work is done even where
// no thread can be started. A forked child begins without helpers and starts its own. Helpers take no signals.
#pragma once

#include <cstddef>
#include <functional>

namespace framestow {

inline constexpr std::size_t kMaxThreads = 64;

// Calls `work` on this thread and on up to num_threads - 1 others at the same time (kMaxThreads in all at most);
// returns when every call has returned. The first exception that one of them threw is thrown here.
void run_on_threads(std::size_t num_threads, const std::function<void()>& work);

}  // namespace framestow
