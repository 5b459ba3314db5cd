// Writes the first inputs of both harnesses: write_seeds FOLDER. They are segments of synthetic films, named by their
// frames (8x24x3_30_frames: 8 rows of 24 bytes, 3 bytes per pixel), and random bytes.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "../moving_pictures.hpp"
#include "segment.hpp"

using namespace framestow;

namespace {

const FrameGeometry kGeometries[] = {{1, 1, 1},  {1, 7, 1}, {7, 1, 1},  {3, 15, 1},        {6, 16, 1},      {9, 33, 1},
                                     {8, 24, 3}, {4, 5, 5}, {12, 8, 4}, {5, 12, 2},        {20, 64, 1},     {30, 40, 1},
                                     {9, 60, 3}, {5, 3, 3}, {4, 48, 3}, {27, 20, 1, true}, {15, 1, 1, true}};

void write_file(const std::filesystem::path& path, const std::vector<std::uint8_t>& bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path.string());
    }
}

// A segment whose frames begin stretches with zeros, with lead-ins, and not at all, in turn.
std::vector<std::uint8_t> segment_with_stretches(const FrameGeometry& geometry, const std::vector<std::uint8_t>& frames,
                                                 std::size_t count) {
    const FrameFormat format(geometry, false, 0, 2);
    FrameEncoder encoder(format);
    SegmentWriter writer(format, encoder);
    for (std::size_t index = 0; index < count; ++index) {
        const std::size_t older = (count - 1 - index) / 2 * geometry.frame_bytes();  // two frames from here on exist
        writer.begin_stretch(StretchStart{static_cast<StretchPadding>(1 + index % 3), frames.data() + older});
        writer.append(frames.data() + index * geometry.frame_bytes());
    }
    writer.finish();
    DecodingScratch scratch;
    std::vector<std::uint8_t> segment(writer.packed_bytes());
    writer.write_to(segment.data(), scratch);
    return segment;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "wanted: FOLDER\n";
        return 2;
    }
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder / "any_segment");
    std::filesystem::create_directories(folder / "round_trip");
    std::mt19937 random(1);
    std::size_t number = 0;
    for (const FrameGeometry& geometry : kGeometries) {
        for (const std::uint32_t count : {1U, 2U, 6U, 12U, 30U}) {
            const std::vector<std::uint8_t> frames = moving_pictures(geometry, count, random);
            const std::string name = std::to_string(geometry.rows) + "x" + std::to_string(geometry.row_bytes) + "x" +
                                     std::to_string(geometry.pixel_bytes) +
                                     (geometry.channels_first ? "_planes_" : "_") + std::to_string(count) + "_frames";
            write_file(folder / "any_segment" / name, pack_segment(geometry, frames.data(), count));
            if (count >= 6) {
                write_file(folder / "any_segment" / (name + "_stretches"),
                           segment_with_stretches(geometry, frames, count));
            }
            std::vector<std::uint8_t> decisions(20 + 8 * count);
            for (std::uint8_t& decision : decisions) {
                decision = static_cast<std::uint8_t>(random());
            }
            if (count == 30) {
                decisions[0] = static_cast<std::uint8_t>(255 - random() % 12);  // the largest frames are rare
            }
            const std::string bytes = std::to_string(decisions.size()) + "_random_bytes_";
            write_file(folder / "round_trip" / (bytes + std::to_string(number)), decisions);
            ++number;
        }
    }
    return 0;
}
