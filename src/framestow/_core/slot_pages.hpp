// The slots of a ring of steps: zeros at first, in pages that take no memory until a step is written to them.
//
// A ring stores indices `oldest` up to, excluding, `next_index`, index i in slot i % num_slots. With `releases_pages`,
// the pages of evicted slots go back to the system: a ring of 100,000,000 slots with a budget for a million steps then
// takes the memory of a million.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framestow {

class SlotPages {
public:
    // Throws std::bad_alloc if the system does not give that many bytes.
    SlotPages(std::size_t num_slots, std::size_t slot_bytes, bool releases_pages);
    ~SlotPages();
    SlotPages(const SlotPages&) = delete;
    SlotPages& operator=(const SlotPages&) = delete;

    std::uint8_t* slots() const { return slots_; }

    // Returns the bytes of all touched pages.
    std::size_t nbytes(std::int64_t oldest, std::int64_t next_index) const;

    // Returns to the system the pages whose slots all have indices below `oldest`.
    void release(std::int64_t oldest, std::int64_t next_index);

    // Starts an unwritten ring at index `oldest`.
    void restart(std::int64_t oldest) { released_ = page_bytes_ > 0 ? oldest : 0; }

private:
    std::int64_t num_slots_;
    std::int64_t slot_bytes_;
    std::int64_t size_;        // of all pages
    std::int64_t page_bytes_;  // 0: pages are not released
    std::uint8_t* slots_;
    std::int64_t released_ = 0;  // pages with only indices below this are released
};

}  // namespace framestow
