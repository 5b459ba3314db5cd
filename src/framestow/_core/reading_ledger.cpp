#include "reading_ledger.hpp"

#include <algorithm>

namespace framestow {

ReadingLedger::Ticket ReadingLedger::start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    out_.push_back(next_);
    return next_;
}

void ReadingLedger::stop(Ticket ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto place = std::find(out_.begin(), out_.end(), ticket);
    *place = out_.back();
    out_.pop_back();
    if (num_waiting_ > 0) {
        one_stopped_.notify_all();
    }
}

ReadingLedger::Ticket ReadingLedger::retire() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return next_++;
}

ReadingLedger::Ticket ReadingLedger::oldest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return oldest_locked();
}

ReadingLedger::Ticket ReadingLedger::oldest_locked() const {
    return out_.empty() ? next_ : *std::min_element(out_.begin(), out_.end());
}

void ReadingLedger::wait_until_unseen(Ticket number) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++num_waiting_;
    one_stopped_.wait(lock, [&] { return oldest_locked() > number; });
    --num_waiting_;
}

}  // namespace framestow
