// CHECK(claim): ends the program, with the place and the claim, unless it holds. Works in every build type.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(claim)                                                              \
    do {                                                                          \
        if (!(claim)) {                                                           \
            std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
            std::abort();                                                         \
        }                                                                         \
    } while (false)
