// What depends on the processor: SSE2, which every x86-64 has, and prefetching.
//
// FRAMESTOW_SSE2 is defined where SSE2 may be used. Other processors run portable code, and so does every processor
// after a build with -DFRAMESTOW_PORTABLE=ON. Both return the same bytes. Instructions beyond SSE2 are chosen at run time
// (checksum.cpp), so one binary runs on every x86-64.
#pragma once

#if (defined(__SSE2__) || defined(_M_X64)) && !defined(FRAMESTOW_PORTABLE)
#define FRAMESTOW_SSE2 1
#include <emmintrin.h>
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif

namespace framestow {

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

}  // namespace framestow
