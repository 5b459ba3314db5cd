// Pages of the operating system, for segments and for large buffers.
//
// malloc keeps freed blocks of a few MB once it has seen some: up to three of 2 MB stayed resident. Pages go back at
// once. Ownership: the caller returns what it took, with the same size. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

namespace framestow {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kHugePageBytes = std::size_t{2} * 1024 * 1024;

constexpr std::size_t round_to_pages(std::size_t size) { return (size + kPageBytes - 1) / kPageBytes * kPageBytes; }

// The bytes of whole pages before an offset, which take no memory until they are written. Only POSIX systems map pages
// so; elsewhere the heap gives large blocks pages of their own, and all of a block counts.
constexpr std::size_t untouched_before(std::size_t offset) {
#if defined(__unix__) || defined(__APPLE__)
    return offset / kPageBytes * kPageBytes;
#else
    (void)offset;
    return 0;
#endif
}

// Returns a multiple of kPageBytes with arbitrary contents. Throws std::bad_alloc.
std::uint8_t* take_pages(std::size_t size);
void return_pages(std::uint8_t* pages, std::size_t size) noexcept;

// The first of that many bytes that huge pages cover: they are touched a whole page at a time.
std::size_t huge_bytes(std::size_t size);

// The allocator of vectors that become large: from kLeastBytes on they have pages of their own. Those of Atari games
// are smaller.
template <typename Value>
class PageAllocator {
public:
    using value_type = Value;
    static constexpr std::size_t kLeastBytes = std::size_t{1024} * 1024;

    PageAllocator() = default;
    template <typename Other>
    PageAllocator(const PageAllocator<Other>&) {}

    Value* allocate(std::size_t count) {
        static_assert(alignof(Value) <= alignof(std::max_align_t));
        const std::size_t size = count * sizeof(Value);
        return reinterpret_cast<Value*>(size < kLeastBytes ? ::operator new(size) : take_pages(round_to_pages(size)));
    }
    void deallocate(Value* values, std::size_t count) noexcept {
        const std::size_t size = count * sizeof(Value);
        if (size < kLeastBytes) {
            ::operator delete(values);
        } else {
            return_pages(reinterpret_cast<std::uint8_t*>(values), round_to_pages(size));
        }
    }

    friend bool operator==(const PageAllocator&, const PageAllocator&) { return true; }
    friend bool operator!=(const PageAllocator&, const PageAllocator&) { return false; }
};

template <typename Value>
using PagedVector = std::vector<Value, PageAllocator<Value>>;

}  // namespace framestow
