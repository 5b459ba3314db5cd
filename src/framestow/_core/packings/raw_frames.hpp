// Raw frames, one behind the other: encoding 0.
#pragma once

#include "../segment_header.hpp"

namespace framestow {

// Writes the frames where the segment will stand; these bytes belong to the caller.
class RawWriter final : public PayloadWriter {
public:
    explicit RawWriter(const FrameGeometry& geometry) : geometry_(geometry) {}

    void begin_in_place(std::uint8_t* payload) override { frames_ = payload; }
    void append(const std::uint8_t* frame) override;
    void copy_last_frame(std::uint8_t* out) const override;
    void clear() override;
    SegmentHeader header() const override { return SegmentHeader{Encoding::kRaw, num_frames_, 1, geometry_}; }
    Payload payload() const override;
    std::size_t nbytes() const override { return 0; }

private:
    FrameGeometry geometry_;
    std::uint8_t* frames_ = nullptr;
    std::uint32_t num_frames_ = 0;
};

}  // namespace framestow
