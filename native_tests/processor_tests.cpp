// A processor without vector and checksum instructions packs, unpacks, shrinks and sums the same bytes. Exits with 0 on
// success, and prints a checksum of all results, which is the same on every processor.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "check.hpp"
#include "checksum.hpp"

namespace framestow {
std::vector<std::vector<std::uint8_t>> computed_bytes();
}
namespace framestow_portable {
std::vector<std::vector<std::uint8_t>> computed_bytes();
}

int main() {
    const std::vector<std::vector<std::uint8_t>> here = framestow::computed_bytes();
    const std::vector<std::vector<std::uint8_t>> portable = framestow_portable::computed_bytes();

    CHECK(here.size() == portable.size());
    for (std::size_t place = 0; place < here.size(); ++place) {
        if (here[place] != portable[place]) {
            std::fprintf(stderr, "result %zu differs on a processor without vector instructions\n", place);
        }
        CHECK(here[place] == portable[place]);
    }
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    std::printf("processor tests: all hold; compared with SSE2%s%s\n",
                __builtin_cpu_supports("sse4.2") ? ", SSE4.2" : "", __builtin_cpu_supports("avx2") ? ", AVX2" : "");
#else
    std::puts("processor tests: all hold");
#endif
    const std::vector<std::uint8_t>& checksums = here.back();
    std::printf("checksum of the results: %08x\n",
                static_cast<unsigned>(framestow::crc32c(framestow::ByteSpan{checksums.data(), checksums.size()})));
    return 0;
}
