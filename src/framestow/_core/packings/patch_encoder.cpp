#include "patch_encoder.hpp"

#include <algorithm>

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kLongKeep = 24;  // kept bytes that end a stretch: no operation does better than keeping them

void append_u16(std::vector<std::uint8_t>& bytes, std::size_t value) {
    bytes.push_back(static_cast<std::uint8_t>(value & 0xFF));
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
}

constexpr std::size_t number_of(Source source) { return static_cast<std::size_t>(source); }

}  // namespace

PatchEncoder::PatchEncoder(const FrameGeometry& geometry)
    : geometry_(geometry),
      kept_(geometry.frame_bytes()),
      up_(geometry.frame_bytes()),
      base_(geometry.frame_bytes()),
      run_(geometry.frame_bytes()),
      steps_(geometry.frame_bytes() + 1) {}

std::size_t PatchEncoder::nbytes() const {
    return kept_.nbytes() + up_.nbytes() + base_.nbytes() + run_.nbytes() + steps_.capacity() * sizeof(Step) +
           operations_.bytes.capacity() + operations_.places.capacity() * sizeof(OperationBytes::Place);
}

const OperationBytes& PatchEncoder::encode_self_coded(const std::uint8_t* frame) {
    kept_.compare_behind(frame, geometry_.row_bytes);
    run_.compare_behind(frame, geometry_.pixel_bytes);
    return encode<true>(frame);
}

const OperationBytes& PatchEncoder::encode_patch(const std::uint8_t* frame, const std::uint8_t* previous,
                                                 const std::uint8_t* base) {
    kept_.compare(frame, previous);
    up_.compare_behind(frame, geometry_.row_bytes);
    base_.compare(frame, base);
    run_.compare_behind(frame, geometry_.pixel_bytes);
    return encode<false>(frame);
}

template <bool kSelfCoded>
const OperationBytes& PatchEncoder::encode(const std::uint8_t* frame) {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    operations_.bytes.clear();
    operations_.places.clear();
    std::size_t position = 0;
    for (;;) {
        const std::size_t kept = kept_.match_length(position);
        if (position + kept == frame_bytes) {
            return operations_;
        }
        if (kept > 0) {
            put_keep(kept);
            position += kept;
        }
        const std::size_t end = stretch_end(position);
        plan_stretch<kSelfCoded>(position, end);
        write_stretch(frame, position, end);
        position = end;
    }
}

// The next place from which many bytes are kept, or the frame's end.
std::size_t PatchEncoder::stretch_end(std::size_t begin) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    std::size_t end = begin;
    while (end < frame_bytes) {
        const std::size_t kept = kept_.match_length(end);
        if (kept >= kLongKeep || end + kept == frame_bytes) {
            return end;
        }
        end += kept;
        while (end < frame_bytes && !kept_.matches(end)) {
            ++end;
        }
    }
    return end;
}

template <bool kSelfCoded>
void PatchEncoder::plan_stretch(std::size_t begin, std::size_t end) {
    std::uint32_t kept = 0;
    std::uint32_t up = 0;
    std::uint32_t base = 0;
    std::uint32_t run = 0;
    steps_[end].cost = 0;
    steps_[end].literal_cost = 0xFFFFFF;
    for (std::size_t position = end; position-- > begin;) {
        const Step& next = steps_[position + 1];
        Step step;
        step.literals_go_on = next.literal_cost <= next.cost;
        step.literal_cost = 1 + std::min(next.literal_cost, next.cost);
        step.cost = 1 + step.literal_cost;
        step.length = 0;
        step.source = Source::kLiteral;
        step.is_kept = false;
        const auto consider = [&](bool matches, std::uint32_t& length, Source source, bool is_kept) {
            length = matches ? length + 1 : 0;
            if (matches && 1 + steps_[position + length].cost <= step.cost) {
                step.cost = 1 + steps_[position + length].cost;
                step.length = length;
                step.source = source;
                step.is_kept = is_kept;
            }
        };
        consider(run_.matches(position), run, Source::kRun, false);
        if (!kSelfCoded) {
            consider(up_.matches(position), up, Source::kUp, false);
            consider(base_.matches(position), base, Source::kBase, false);
        }
        consider(kept_.matches(position), kept, Source::kLiteral, true);
        steps_[position] = step;
    }
}

void PatchEncoder::write_stretch(const std::uint8_t* frame, std::size_t begin, std::size_t end) {
    for (std::size_t position = begin; position < end;) {
        const Step& step = steps_[position];
        std::size_t length = step.length;
        if (step.is_kept) {
            put_keep(length);
        } else {
            if (step.source == Source::kLiteral) {
                length = 1;
                while (steps_[position + length - 1].literals_go_on && position + length < end) {
                    ++length;
                }
            }
            put(step.source, length, frame + position);
        }
        position += length;
    }
}

void PatchEncoder::put(Source source, std::size_t length, const std::uint8_t* literals) {
    std::vector<std::uint8_t>& bytes = operations_.bytes;
    while (length > 0) {
        const std::size_t taken = std::min(length, kMaxLength);
        const std::size_t direct = kDirectLengths[number_of(source)];
        const auto begin = static_cast<std::uint32_t>(bytes.size());
        if (taken <= direct) {
            bytes.push_back(static_cast<std::uint8_t>(kFirstCode[number_of(source)] + taken - 1));
        } else if (taken - direct - 1 <= 0xFF) {
            bytes.push_back(static_cast<std::uint8_t>(kFirstWide8 + number_of(source)));
            bytes.push_back(static_cast<std::uint8_t>(taken - direct - 1));
        } else {
            bytes.push_back(static_cast<std::uint8_t>(kFirstWide16 + number_of(source)));
            append_u16(bytes, taken);
        }
        if (source == Source::kLiteral) {
            bytes.insert(bytes.end(), literals, literals + taken);
            literals += taken;
        }
        operations_.places.push_back(OperationBytes::Place{begin, static_cast<std::uint32_t>(bytes.size())});
        length -= taken;
    }
}

// Lets the last operation keep the next bytes, or one that does nothing else.
void PatchEncoder::put_keep(std::size_t length) {
    std::vector<std::uint8_t>& bytes = operations_.bytes;
    while (length > 0) {
        const std::size_t taken = std::min(length, kMaxLength);
        const bool can_join = !operations_.places.empty() && operations_.places.back().keep_begin == bytes.size();
        if (!can_join) {
            const auto begin = static_cast<std::uint32_t>(bytes.size());
            bytes.push_back(static_cast<std::uint8_t>(kNothing));
            operations_.places.push_back(OperationBytes::Place{begin, begin + 1});
        }
        bytes[operations_.places.back().begin] |= static_cast<std::uint8_t>(kKeepFlag);
        if (taken <= kDirectKeeps) {
            bytes.push_back(static_cast<std::uint8_t>(taken - 1));
        } else if (taken - kDirectKeeps - 1 <= 0xFF) {
            bytes.push_back(static_cast<std::uint8_t>(kKeepWide8));
            bytes.push_back(static_cast<std::uint8_t>(taken - kDirectKeeps - 1));
        } else {
            bytes.push_back(static_cast<std::uint8_t>(kKeepWide16));
            append_u16(bytes, taken);
        }
        length -= taken;
    }
}

}  // namespace framestow
