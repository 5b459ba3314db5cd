// Any frames in any order of calls: FrameStore must return what a list of frames would return.
//
// The input is read as decisions (input_bytes.hpp): a geometry, then actions: append a frame that differs from an
// earlier one in some places, gather, evict, save and restore. Each segment is also unpacked alone and must not be
// larger than its frames and a header.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "../check.hpp"
#include "checksum.hpp"
#include "frame_store.hpp"
#include "input_bytes.hpp"
#include "window_reader.hpp"

using namespace framestow;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t max_size);

namespace {

using Bytes = std::vector<std::uint8_t>;

// Over all frames, so that an input takes a millisecond; more for large frames, so that offsets exceed 16 bits.
constexpr std::size_t kMostFrameBytes = 64 * 1024;
constexpr std::size_t kLargeFrame = 16 * 1024;
constexpr std::size_t kMostBytesOfLargeFrames = 512 * 1024;
constexpr std::size_t kMostSaves = 3;  // each packs all open frames again
constexpr std::size_t kLength = 6;     // frames per window
constexpr std::int32_t kNumStreams = 2;

FrameGeometry read_geometry(InputBytes& input) {
    FrameGeometry geometry;
    const std::uint8_t kind = input.byte();
    const std::size_t most = kind < 224 ? 48 : kind < 250 ? 128 : 360;  // some rows need lengths of 16 bits
    geometry.rows = static_cast<std::uint32_t>(1 + input.number_below(most));
    geometry.row_bytes = static_cast<std::uint32_t>(1 + input.number_below(most));
    geometry.pixel_bytes = std::min(geometry.row_bytes, kind % 8 < 4 ? 1U : kind % 8U - 2U);
    if (geometry.pixel_bytes == 3) {
        geometry.row_bytes = (geometry.row_bytes + 2) / 3 * 3;  // whole pixels, which are packed as such
    } else if (kind % 8 == 3) {
        geometry.rows = (geometry.rows + 2) / 3 * 3;
        geometry.channels_first = true;
    }
    return geometry;
}

// The stored frames in plain lists.
class Movie {
public:
    explicit Movie(InputBytes& input)
        : input_(input),
          geometry_(read_geometry(input)),
          number_(input.byte()),
          segment_frames_(1U + number_ % 40U),
          format_(geometry_, false, 0, number_ / 40U),
          packed_(new FrameStore(kNumStreams, format_, segment_frames_)) {}

    void play() {
        std::size_t num_saves = 0;
        const std::size_t most = geometry_.frame_bytes() < kLargeFrame ? kMostFrameBytes : kMostBytesOfLargeFrames;
        while (!input_.is_used_up() && num_bytes_ <= most) {
            const std::uint8_t action = input_.byte();
            stream_ = action / 32 % kNumStreams;
            if (action % 32 == 31 && num_saves < kMostSaves) {
                ++num_saves;
                save_and_restore();
            } else if (action % 32 == 30) {
                evict();
            } else if (action % 32 == 29) {
                gather();
            } else {
                append(action % 28, static_cast<StretchPadding>(action % 32 == 28 ? action / 64 : 0));
            }
        }
        save_and_restore();
        gather();
    }

private:
    std::vector<Bytes>& frames() { return frames_[static_cast<std::size_t>(stream_)]; }
    std::int64_t first_position() const { return packed_->first_position(stream_); }

    void append(std::size_t kind, StretchPadding padding) {
        Bytes lead_ins;
        for (std::size_t frame = 0; padding == StretchPadding::kLeadIns && frame < format_.lead_ins; ++frame) {
            const Bytes older = next_frame(input_.byte() % 28U);
            lead_ins.insert(lead_ins.end(), older.begin(), older.end());
        }
        frames().push_back(next_frame(kind));
        num_bytes_ += geometry_.frame_bytes() + lead_ins.size();
        const StretchStart start{padding, lead_ins.empty() ? frames().back().data() : lead_ins.data()};
        if (start.is_stored() && format_.lead_ins > 0) {
            paddings_[static_cast<std::size_t>(stream_)].emplace(frames().size() - 1, std::move(lead_ins));
        }
        const std::int32_t stream = stream_;
        packed_->append(&stream, frames().back().data(), 1, &start);
        CHECK(packed_->next_position(stream_) == static_cast<std::int64_t>(frames().size()));
    }

    // Returns an earlier frame, unchanged or shifted, with some changes.
    Bytes next_frame(std::size_t kind) {
        const std::size_t back = std::min(frames().size(), std::size_t{kind % 4 == 3 ? segment_frames_ : kind % 4 + 1});
        Bytes frame = back == 0 ? Bytes(geometry_.frame_bytes(), input_.byte()) : frames()[frames().size() - back];
        if (kind / 4 == 6) {
            std::rotate(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(place_in_frame()), frame.end());
            return frame;
        }
        for (std::size_t left = kind / 4; left > 0; --left) {
            change(frame);
        }
        return frame;
    }

    std::size_t place_in_frame() { return input_.number_below(geometry_.frame_bytes()); }

    void change(Bytes& frame) {
        const std::uint8_t kind = input_.byte();
        const std::size_t begin = place_in_frame();
        const std::size_t wanted = kind < 192 ? 1 + input_.byte() % 32U : 1 + input_.number();
        const std::size_t length = std::min(wanted, frame.size() - begin);
        std::uint8_t* const target = frame.data() + begin;
        std::minstd_rand random(kind % 4 == 2 ? 1 + input_.byte() : 1);
        const std::size_t source = kind % 4 == 1 ? place_in_frame() : 0;
        const std::uint8_t filling = kind % 4 == 0 ? input_.byte() : std::uint8_t{0};
        for (std::size_t place = 0; place < length; ++place) {
            const auto brighter = static_cast<std::uint8_t>(target[place] + filling + (random() >> 8) % 2);
            const std::uint8_t drawn[] = {kind % 8 == 4 ? brighter : filling, frame[(source + place) % frame.size()],
                                          static_cast<std::uint8_t>(random() >> 8),
                                          kind % 4 == 3 && length <= 32 ? input_.byte() : std::uint8_t{7}};
            target[place] = drawn[kind % 4];
        }
    }

    void evict() {
        const auto before = static_cast<std::int64_t>(input_.number_below(frames().size() + 2));
        const std::int64_t first = first_position();
        CHECK(packed_->evict(stream_, before) == first_position() - first);
        CHECK(first_position() <= std::max(first, before));
    }

    void save_and_restore() {
        auto restored = std::make_unique<FrameStore>(kNumStreams, format_, segment_frames_);
        for (stream_ = 0; stream_ < kNumStreams; ++stream_) {
            const std::int64_t num_held = packed_->next_position(stream_) - first_position();
            for (std::int64_t first = first_position(); first < packed_->next_position(stream_);
                 first += segment_frames_) {
                const std::int64_t number = first / segment_frames_;
                const Bytes segment = packed_->segment(stream_, number);
                check_segment(segment, static_cast<std::size_t>(number * segment_frames_));
                restored->restore(stream_, number, ByteSpan{segment.data(), segment.size()});
                // An open segment stored raw does not record the base of its frames.
                const bool is_raw =
                    view_segment(format_, ByteSpan{segment.data(), segment.size()}).header.encoding == Encoding::kRaw;
                CHECK(is_raw || restored->segment(stream_, number) == segment);
            }
            if (num_held == 0) {
                frames().clear();  // an empty stream does not record its position
                paddings_[static_cast<std::size_t>(stream_)].clear();
            }
        }
        stream_ = 0;
        packed_ = std::move(restored);
    }

    void check_segment(const Bytes& whole, std::size_t first) {
        const ByteSpan given{whole.data(), whole.size()};
        view_verified_segment(format_, given);
        const ByteSpan segment = has_stretches(given) ? stretch_table(given).frames : given;
        const SegmentHeader header = verify_segment(segment);
        const std::size_t raw_bytes = header.num_frames * geometry_.frame_bytes();
        CHECK(header.geometry == geometry_ && segment.size <= raw_bytes + kHeaderBytes);
        Bytes unpacked(raw_bytes);
        unpack_segment(segment, geometry_, header.num_frames, unpacked.data());
        for (std::size_t index = 0; index < header.num_frames; ++index) {
            CHECK(std::memcmp(unpacked.data() + index * geometry_.frame_bytes(), frames()[first + index].data(),
                              geometry_.frame_bytes()) == 0);
        }
    }

    void gather() {
        Bytes out(kLength * geometry_.frame_bytes());
        for (stream_ = 0; stream_ < kNumStreams; ++stream_) {
            const std::int64_t num_held = packed_->next_position(stream_) - first_position();
            for (int round = 0; round < 8 && num_held > 0; ++round) {
                const auto back = static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(num_held));
                const std::int64_t last = first_position() + num_held - 1 - back;
                const std::int64_t most = std::min<std::int64_t>(kLength, num_held - back);
                const auto count = static_cast<std::int32_t>(1 + random_() % static_cast<std::uint64_t>(most));
                const std::int32_t stream = stream_;
                const auto padding = random_() % 2 == 0 ? StackPadding::kFirstFrame : StackPadding::kZeros;
                read_windows(*packed_, WindowRequests{&stream, &last, &count, 1}, kLength, padding, out.data());
                check_window(out, last, count, padding);
            }
        }
        stream_ = 0;
    }

    // Returns the frame that stands `before` frames before a stretch's first one, or zeros.
    Bytes padding_frame(const Bytes& lead_ins, std::size_t before) const {
        if (lead_ins.empty()) {
            return Bytes(geometry_.frame_bytes());
        }
        const std::size_t oldest = std::min(before, std::size_t{format_.lead_ins});
        const auto begin = lead_ins.end() - static_cast<std::ptrdiff_t>(oldest * geometry_.frame_bytes());
        return Bytes(begin, begin + static_cast<std::ptrdiff_t>(geometry_.frame_bytes()));
    }

    void check_window(const Bytes& out, std::int64_t last, std::int64_t count, StackPadding padding) {
        const Bytes zeros(geometry_.frame_bytes());
        const auto& paddings = paddings_[static_cast<std::size_t>(stream_)];
        const auto own = paddings.find(static_cast<std::size_t>(last - count + 1));
        const auto num_padded = kLength - static_cast<std::size_t>(count);
        for (std::size_t place = 0; own != paddings.end() && place < num_padded; ++place) {
            const Bytes expected = padding_frame(own->second, num_padded - place);
            CHECK(std::memcmp(out.data() + place * expected.size(), expected.data(), expected.size()) == 0);
        }
        for (std::size_t place = own == paddings.end() ? 0 : num_padded; place < kLength; ++place) {
            const auto back = static_cast<std::int64_t>(kLength - 1 - place);
            const auto position = static_cast<std::size_t>(std::max(last - back, last - count + 1));
            const bool is_zeros = back >= count && padding == StackPadding::kZeros;
            const Bytes& expected = is_zeros ? zeros : frames()[position];
            CHECK(std::memcmp(out.data() + place * expected.size(), expected.data(), expected.size()) == 0);
        }
    }

    InputBytes& input_;
    FrameGeometry geometry_;
    std::uint8_t number_;
    std::uint32_t segment_frames_;
    FrameFormat format_;
    std::unique_ptr<FrameStore> packed_;
    std::vector<Bytes> frames_[kNumStreams];              // every appended frame, evicted ones too
    std::map<std::size_t, Bytes> paddings_[kNumStreams];  // lead-ins, or nothing for zeros, by a stretch's first frame
    std::int32_t stream_ = 0;
    std::size_t num_bytes_ = 0;
    std::minstd_rand random_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    InputBytes input(bytes, size);
    Movie(input).play();
    return 0;
}

// Mutates as libFuzzer would, since decisions need no order. Every harness defines this function for the standalone
// driver.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* input, std::size_t size, std::size_t max_size, unsigned) {
    return LLVMFuzzerMutate(input, size, max_size);
}
