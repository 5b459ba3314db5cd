// CHECK(claim) prints its place and the claim and aborts unless the claim is true. Works in every build type.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(claim)                                                                 \
    do {                                                                             \
        if (!(claim)) {                                                              \
            std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #claim); \
            std::abort();                                                            \
        }                                                                            \
    } while (false)
