// Damages packed segments, mends their checksum, and unpacks them: frames or DamagedSegment, never anything else.
//
//   decoder_fuzzer [seconds]     its own mutations, from a fixed seed; built with sanitizers by run.sh
//
// With -DFRAMESTOW_LIBFUZZER (clang -fsanitize=fuzzer) the same unpacking is driven by libFuzzer instead: the first
// byte chooses a geometry, the rest is the segment.
#include <chrono>
#include <cstring>
#include <memory>

#include "check.hpp"
#include "checksum.hpp"
#include "damaged_segment.hpp"
#include "moving_pictures.hpp"
#include "segment.hpp"

using namespace framestow;

namespace {

const FrameGeometry kGeometries[] = {{1, 1, 1},   {3, 15, 1}, {6, 16, 1}, {9, 33, 1},
                                     {84, 84, 1}, {8, 24, 3}, {4, 5, 5},  {20, 100, 1}};
constexpr std::size_t kNumGeometries = sizeof kGeometries / sizeof kGeometries[0];
constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kMostFrames = 4096;

// Exact allocations, so that the sanitizer sees every byte too far. Returns whether frames came out.
bool unpack_damaged(std::vector<std::uint8_t>& segment, const FrameGeometry& geometry) {
    if (segment.size() > kChecksumBytes) {
        store_u32(segment.data(),
                  crc32c(ByteSpan{segment.data() + kChecksumBytes, segment.size() - kChecksumBytes}));
    }
    const auto exact = std::make_unique<std::uint8_t[]>(segment.size() + 1);
    std::memcpy(exact.get(), segment.data(), segment.size());
    const ByteSpan span{exact.get(), segment.size()};
    try {
        const SegmentHeader header = verify_segment(span);
        if (header.num_frames > kMostFrames) {
            return false;
        }
        const auto out = std::make_unique<std::uint8_t[]>(header.num_frames * geometry.frame_bytes());
        unpack_segment(span, geometry, header.num_frames, out.get());
        return true;
    } catch (const DamagedSegment&) {
        return false;
    }
}

}  // namespace

#ifdef FRAMESTOW_LIBFUZZER

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
    if (size > 0) {
        std::vector<std::uint8_t> segment(input + 1, input + size);
        unpack_damaged(segment, kGeometries[input[0] % kNumGeometries]);
    }
    return 0;
}

#else

namespace {

// A repeat of what lies at the end of the body, and perhaps behind it.
void write_repeat_of_the_end(std::vector<std::uint8_t>& segment, std::size_t place, std::mt19937& random) {
    if (segment.size() - place < 4) {
        return;
    }
    const bool is_wide = random() % 2 == 0;
    segment[place] = static_cast<std::uint8_t>((is_wide ? 123 : 101 + random() % 14) + (random() % 2) * 128);
    segment[place + 1] = static_cast<std::uint8_t>(random());
    const auto lead = static_cast<std::uint32_t>(segment.size() - kHeaderBytes - random() % 80);
    store_u16(segment.data() + place + (is_wide ? 2 : 1), lead & 0xFFFF);
}

void damage(std::vector<std::uint8_t>& segment, std::mt19937& random) {
    const std::size_t begin = random() % 10 == 0 ? kChecksumBytes : kHeaderBytes;
    for (std::size_t left = 1 + random() % 6; left > 0 && segment.size() > begin; --left) {
        const std::size_t place = begin + random() % (segment.size() - begin);
        switch (random() % 7) {
            case 0:
                segment[place] = static_cast<std::uint8_t>(segment[place] ^ (1U << random() % 8));
                break;
            case 1:
                segment[place] = static_cast<std::uint8_t>(100 + random() % 28 + (random() % 2) * 128);  // special codes
                break;
            case 2:
                segment.resize(place);
                break;
            case 3:
                segment.insert(segment.begin() + static_cast<std::ptrdiff_t>(place), static_cast<std::uint8_t>(random()));
                break;
            case 4:
                segment.erase(segment.begin() + static_cast<std::ptrdiff_t>(place));
                break;
            case 5:
                write_repeat_of_the_end(segment, place, random);
                break;
            default:
                segment[place] = static_cast<std::uint8_t>(random());
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const double seconds = argc > 1 ? std::atof(argv[1]) : 10.0;
    std::mt19937 random(20240229);
    std::size_t num_unpacked = 0;
    std::size_t num_refused = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
        const FrameGeometry& geometry = kGeometries[random() % kNumGeometries];
        const auto count = static_cast<std::uint32_t>(1 + random() % 30);
        const std::vector<std::uint8_t> frames = moving_pictures(geometry, count, random);
        const std::vector<std::uint8_t> segment = pack_segment(geometry, frames.data(), count);
        for (int round = 0; round < 50; ++round) {
            std::vector<std::uint8_t> damaged = segment;
            damage(damaged, random);
            ++(unpack_damaged(damaged, geometry) ? num_unpacked : num_refused);
        }
    }
    CHECK(num_unpacked > 100 && num_refused > 100);
    std::printf("decoder fuzzer: %zu damaged segments gave frames, %zu were refused\n", num_unpacked, num_refused);
    return 0;
}

#endif
