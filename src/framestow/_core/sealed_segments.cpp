#include "sealed_segments.hpp"

#include <algorithm>
#include <iterator>
#include <new>

namespace framestow {

void SnapshotLedger::start(Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entry.ticket = next_;
    out_.push_back(&entry);
}

void SnapshotLedger::stop(Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (entry.has_stopped) {
        return;  // a writer of a forked child has stopped it
    }
    entry.has_stopped = true;
    const auto place = std::find(out_.begin(), out_.end(), &entry);
    *place = out_.back();
    out_.pop_back();
    if (num_waiting_ > 0) {
        one_stopped_.notify_all();
    }
}

bool SnapshotLedger::renew(Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    entry.is_inherited = false;
    return !entry.has_stopped;
}

void SnapshotLedger::renew_in_child() {
    new (&mutex_) std::mutex;
    new (&one_stopped_) std::condition_variable;  // the former is not destroyed: that would wait for its sleepers
    num_waiting_ = 0;
    for (Entry* const entry : out_) {
        entry->is_inherited = true;
    }
}

SnapshotLedger::Ticket SnapshotLedger::retire() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return next_++;
}

SnapshotLedger::Ticket SnapshotLedger::oldest() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return oldest_locked();
}

SnapshotLedger::Ticket SnapshotLedger::oldest_locked() const {
    Ticket oldest = next_;
    for (const Entry* const entry : out_) {
        oldest = std::min(oldest, entry->ticket);
    }
    return oldest;
}

void SnapshotLedger::wait_until_unreferenced(Ticket number) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto is_left = [&](Entry* entry) {
        if (entry->is_inherited && entry->ticket <= number) {
            entry->has_stopped = true;
        }
        return entry->has_stopped.load();
    };
    out_.erase(std::remove_if(out_.begin(), out_.end(), is_left), out_.end());
    ++num_waiting_;
    one_stopped_.wait(lock, [&] { return oldest_locked() > number; });
    --num_waiting_;
}

void RetiredSegments::add(Ticket retirement, std::size_t env_id, std::int64_t number, const SegmentPlace& place) {
    retired_.push_back(Retired{retirement, env_id, number, place});
    nbytes_ += bytes_in_ram(place).size;
}

void RetiredSegments::free_before(Ticket ticket) {
    auto first_kept = retired_.begin();
    for (; first_kept != retired_.end() && first_kept->retirement < ticket; ++first_kept) {
        if (const auto* const stored = std::get_if<StoredSegment>(&first_kept->place)) {
            nbytes_ -= stored->size;
            arena_.release(*stored);
        } else {
            files_.release(std::get<FilePlace>(first_kept->place));
        }
    }
    retired_.erase(retired_.begin(), first_kept);
}

const SegmentPlace* RetiredSegments::find(std::size_t env_id, std::int64_t number, Ticket ticket) const {
    for (const Retired& retired : retired_) {
        if (retired.env_id == env_id && retired.number == number && retired.retirement >= ticket) {
            return &retired.place;
        }
    }
    return nullptr;
}

namespace {

constexpr std::size_t kFirstRoom = 16;  // entries

std::size_t room_for(std::size_t num_entries) { return std::max(kFirstRoom, num_entries + num_entries / 2); }

}  // namespace

std::size_t SealedSegments::count(std::int64_t first, std::int64_t before) const {
    const std::size_t end = lower_bound(before);
    std::size_t num_found = 0;
    for (std::size_t at = next_stored(lower_bound(first)); at < end; at = next_stored(at + 1)) {
        ++num_found;
    }
    return num_found;
}

std::vector<std::int64_t> SealedSegments::numbers() const {
    std::vector<std::int64_t> held;
    held.reserve(num_stored_);
    for (std::size_t at = next_stored(0); at < entries_.size(); at = next_stored(at + 1)) {
        held.push_back(entries_[at].number);
    }
    return held;
}

void SealedSegments::reserve_one() {
    if (entries_.size() == entries_.capacity()) {
        entries_.reserve(room_for(entries_.size()));
    }
}

void SealedSegments::add(std::int64_t number, const SegmentPlace& place) {
    if (num_stored_ == 0) {
        entries_.clear();
        first_ = 0;
    }
    entries_.push_back(Entry{number, place});
    ++num_stored_;
}

std::size_t SealedSegments::binary_search(std::int64_t number) const {
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), number,
                                        [](const Entry& entry, std::int64_t wanted) { return entry.number < wanted; });
    return static_cast<std::size_t>(found - entries_.begin());
}

void SealedSegments::compact() {
    if (entries_.size() <= std::max(kFirstRoom, 2 * num_stored_)) {
        return;
    }
    std::vector<Entry> held;
    held.reserve(room_for(num_stored_));
    std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(held),
                 [](const Entry& entry) { return entry.is_stored(); });
    entries_.swap(held);
    first_ = 0;
}

}  // namespace framestow
