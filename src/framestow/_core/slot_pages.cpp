#include "slot_pages.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>

#include "pages.hpp"

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace framestow {
namespace {

std::int64_t bytes_of(std::size_t num_slots, std::size_t slot_bytes) {
    constexpr std::size_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
    if (num_slots > kMost / slot_bytes) {
        throw std::bad_alloc();
    }
    return static_cast<std::int64_t>(round_to_pages(num_slots * slot_bytes));
}

#ifdef __linux__

std::int64_t system_page_bytes() { return sysconf(_SC_PAGESIZE); }

// MAP_NORESERVE, or Linux refuses a mapping that is larger than the RAM, also if hardly any of its pages are ever used.
// No huge pages, since a single slot would keep a whole one.
std::uint8_t* take_releasable(std::size_t size) {
    void* const pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) {
        throw std::bad_alloc();
    }
    madvise(pages, size, MADV_NOHUGEPAGE);  // fails on a kernel without them
    return static_cast<std::uint8_t*>(pages);
}

void release_pages(std::uint8_t* first, std::size_t size) { madvise(first, size, MADV_DONTNEED); }

#else  // no other system frees pages so

std::int64_t system_page_bytes() { return 0; }
std::uint8_t* take_releasable(std::size_t) { return nullptr; }
void release_pages(std::uint8_t*, std::size_t) {}

#endif

#if defined(__unix__) || defined(__APPLE__)

std::uint8_t* take_zeros(std::size_t size) { return take_pages(size); }  // new pages are zeros
void return_zeros(std::uint8_t* slots, std::size_t size) { return_pages(slots, size); }

#else

std::uint8_t* take_zeros(std::size_t size) {
    auto* const slots = static_cast<std::uint8_t*>(std::calloc(size, 1));
    if (slots == nullptr) {
        throw std::bad_alloc();
    }
    return slots;
}
void return_zeros(std::uint8_t* slots, std::size_t) { std::free(slots); }

#endif

}  // namespace

SlotPages::SlotPages(std::size_t num_slots, std::size_t slot_bytes, bool releases_pages)
    : num_slots_(static_cast<std::int64_t>(num_slots)),
      slot_bytes_(static_cast<std::int64_t>(slot_bytes)),
      size_(bytes_of(num_slots, slot_bytes)),
      page_bytes_(releases_pages ? system_page_bytes() : 0),
      slots_((page_bytes_ > 0 ? take_releasable : take_zeros)(static_cast<std::size_t>(size_))) {}

SlotPages::~SlotPages() { return_zeros(slots_, static_cast<std::size_t>(size_)); }

std::size_t SlotPages::nbytes(std::int64_t oldest, std::int64_t next_index) const {
    const std::int64_t first_touched = released_ > next_index - num_slots_ ? released_ : 0;
    const std::int64_t num_touched = std::min(next_index - std::min(first_touched, oldest), num_slots_);
    return static_cast<std::size_t>(std::min(num_touched * slot_bytes_ + (first_touched > 0 ? page_bytes_ : 0), size_));
}

void SlotPages::release(std::int64_t oldest, std::int64_t next_index) {
    if (page_bytes_ == 0) {
        return;
    }
    // The page of the first slot may have become free since the last call, so start before it.
    std::int64_t first =
        std::max({released_ - page_bytes_ / slot_bytes_ - 1, next_index - num_slots_, std::int64_t{0}});
    while (first < oldest) {  // at most one lap
        const std::int64_t slot = first % num_slots_;
        const std::int64_t stop_slot = std::min(slot + oldest - first, num_slots_);
        const std::int64_t start = (slot * slot_bytes_ + page_bytes_ - 1) / page_bytes_ * page_bytes_;
        const bool is_end = stop_slot == num_slots_;  // no slot follows on the last page
        const std::int64_t stop = is_end ? size_ : stop_slot * slot_bytes_ / page_bytes_ * page_bytes_;
        if (start < stop) {
            release_pages(slots_ + start, static_cast<std::size_t>(stop - start));
        }
        first += stop_slot - slot;
    }
    released_ = oldest;
}

}  // namespace framestow
