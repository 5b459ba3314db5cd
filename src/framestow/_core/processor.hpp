// What depends on the processor: vector instructions, prefetching, and copies past the caches.
//
// FRAMESTOW_SSE2 is defined where SSE2 may be used: every x86-64 has it. FRAMESTOW_ASKS_PROCESSOR is defined where
// further instructions may be used, after the processor was asked whether it has them: one binary runs on every x86-64.
// All other code is portable. With -DFRAMESTOW_PORTABLE=ON every processor runs portable code alone, and returns the
// same bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

#if (defined(__SSE2__) || defined(_M_X64)) && !defined(FRAMESTOW_PORTABLE)
#define FRAMESTOW_SSE2 1
#include <emmintrin.h>
#endif

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(FRAMESTOW_PORTABLE)
#define FRAMESTOW_ASKS_PROCESSOR 1
#include <immintrin.h>
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace framestow {

#ifdef FRAMESTOW_SSE2
inline __m128i load_vector(const std::uint8_t* bytes) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
}
#endif

inline unsigned count_trailing_zeros(std::uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return static_cast<unsigned>(__builtin_ctzll(word));
#elif defined(_MSC_VER) && defined(_WIN64)
    unsigned long index = 0;
    _BitScanForward64(&index, word);
    return static_cast<unsigned>(index);
#else
    unsigned count = 0;
    for (; (word & 1U) == 0; word >>= 1) {
        ++count;
    }
    return count;
#endif
}

inline constexpr std::size_t kLineBytes = 64;  // of a cache

// Changes no result.
inline void prefetch(const void* bytes) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(bytes);
#elif defined(_M_X64)
    _mm_prefetch(static_cast<const char*>(bytes), _MM_HINT_T0);
#elif defined(_M_ARM64)
    __prefetch(bytes);
#else
    static_cast<void>(bytes);
#endif
}

// Two parts of a segment that are prefetched a few lines at a time. Requested all at once, they would delay the loads
// of the window that is being unpacked.
class PrefetchQueue {
public:
    void replace(ByteSpan first, ByteSpan second) { parts_ = {first, second}; }

    void request(std::size_t num_lines) {
        for (ByteSpan& part : parts_) {
            const std::size_t size = std::min(part.size, num_lines * kLineBytes);
            for (std::size_t at = 0; at < size; at += kLineBytes) {
                prefetch(part.bytes + at);
            }
            part = ByteSpan{part.bytes + size, part.size - size};
            num_lines -= (size + kLineBytes - 1) / kLineBytes;
        }
    }
    void request_all() { request(parts_[0].size + parts_[1].size); }

private:
    std::array<ByteSpan, 2> parts_{};
};

// Copies past the caches, where that is possible: the processor need not load what is overwritten. For output that is
// too large to stay in a cache until it is read. Other threads see the bytes after finish_streaming().
inline void stream_copy(std::uint8_t* target, const std::uint8_t* source, std::size_t size) {
#ifdef FRAMESTOW_SSE2
    if (reinterpret_cast<std::uintptr_t>(target) % sizeof(__m128i) == 0 && size % sizeof(__m128i) == 0) {
        const auto stream_chunk = [&](std::size_t at) {
            _mm_stream_si128(reinterpret_cast<__m128i*>(target + at),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at)));
        };
        std::size_t at = 0;
        for (; at + kLineBytes <= size; at += kLineBytes) {  // lines: the time of a shorter loop depends on its address
            for (std::size_t chunk = 0; chunk < kLineBytes; chunk += sizeof(__m128i)) {
                stream_chunk(at + chunk);
            }
        }
        for (; at < size; at += sizeof(__m128i)) {
            stream_chunk(at);
        }
        return;
    }
#endif
    std::memcpy(target, source, size);
}

inline void finish_streaming() {
#ifdef FRAMESTOW_SSE2
    _mm_sfence();
#endif
}

#ifdef FRAMESTOW_ASKS_PROCESSOR
// Whether the processor can rearrange the bytes of a vector (SSSE3).
inline bool has_byte_shuffles() {
    __builtin_cpu_init();  // constants ask before main
    return __builtin_cpu_supports("ssse3") != 0;
}
#endif

}  // namespace framestow
