#include "patch_encoder.hpp"

#include <algorithm>

namespace framestow {
namespace {

using namespace patch_format;

// In halves of a byte. An operation costs its byte, and another for the time to read it: 2 % more bytes, a tenth less
// time. In the base frame, which is read for every window and stands once in a segment, it costs five more: half a
// per cent more bytes, a twelfth less time.
constexpr std::uint64_t kLiteralCost = 2;
constexpr std::uint64_t kPatchOperationCost = 4;
constexpr std::uint64_t kBaseOperationCost = 12;
constexpr std::uint64_t kNever = std::uint64_t{1} << 40;  // more than any frame costs

constexpr std::size_t kLongMatch = 32;  // matching bytes that are taken without weighing anything else
constexpr std::size_t kLookEvery = 16;  // bytes from one look for a long match to the next
constexpr std::size_t kLongKeep = 10;  // kept bytes that end a stretch: no operation does better than keeping them

void append_u16(std::vector<std::uint8_t>& bytes, std::size_t value) {
    bytes.push_back(static_cast<std::uint8_t>(value & 0xFF));
    bytes.push_back(static_cast<std::uint8_t>(value >> 8));
}

// What a byte may be written by, the preferred one of equal cost first.
constexpr std::size_t kKeepKind = 0;
constexpr std::size_t kBaseKind = 1;
constexpr std::size_t kUpKind = 2;
constexpr std::size_t kRunKind = 3;
constexpr std::size_t kLiteralKind = 4;
constexpr std::size_t kNumKinds = 8;  // a power of two, so that pricing divides by shifting
constexpr Source kSources[] = {Source::kLiteral, Source::kBase, Source::kUp, Source::kRun};

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
        const Match match = longest_match<kSelfCoded>(position);
        // Keeping costs no time to read, so a match must be much longer than what is kept anyhow.
        if (match.length >= kLongMatch + 2 * kept) {
            put(match.source, match.length, nullptr);
            position += match.length;
            continue;
        }
        if (kept > 0) {
            put_keep(kept);
            position += kept;
        }
        const std::size_t end = stretch_end<kSelfCoded>(position);
        plan_stretch<kSelfCoded>(position, end);
        write_stretch(frame, position, end);
        position = end;
    }
}

template <bool kSelfCoded>
PatchEncoder::Match PatchEncoder::longest_match(std::size_t position) const {
    Match longest{run_.match_length(position), Source::kRun};
    if (!kSelfCoded) {
        const std::size_t up = up_.match_length(position);
        if (up >= longest.length) {
            longest = Match{up, Source::kUp};
        }
        const std::size_t base = base_.match_length(position);
        if (base >= longest.length) {
            longest = Match{base, Source::kBase};
        }
    }
    return longest;
}

// The next place from which many bytes are kept, or match (looked for now and then), or the frame's end.
template <bool kSelfCoded>
std::size_t PatchEncoder::stretch_end(std::size_t begin) const {
    const std::size_t frame_bytes = geometry_.frame_bytes();
    std::size_t end = begin;
    std::size_t next_look = begin + kLookEvery;
    while (end < frame_bytes) {
        const std::size_t kept = kept_.match_length(end);
        if (kept >= kLongKeep || end + kept == frame_bytes) {
            return end;
        }
        if (end >= next_look) {
            if (longest_match<kSelfCoded>(end).length >= kLongMatch) {
                return end;
            }
            next_look = end + kLookEvery;
        }
        end = std::min(kept_.next_match(end + kept), next_look);
    }
    return end;
}

// From right to left: what each byte costs from here on, as the least over literals and the longest match of every
// source. Costs are compared together with their kind, so that no branch depends on which is less.
template <bool kSelfCoded>
void PatchEncoder::plan_stretch(std::size_t begin, std::size_t end) {
    const auto lengthen = [](std::size_t length, bool matches) {
        return (length + 1) & (std::size_t{0} - static_cast<std::size_t>(matches));
    };
    constexpr std::uint64_t operation_cost = kSelfCoded ? kBaseOperationCost : kPatchOperationCost;
    std::size_t kept = 0;
    std::size_t base = 0;
    std::size_t up = 0;
    std::size_t run = 0;
    steps_[end].cost = 0;
    std::uint64_t next_cost = 0;  // of the byte behind, at a new operation and within literals
    std::uint64_t next_literal_cost = kNever;
    Step* const steps = steps_.data();
    for (std::size_t position = end; position-- > begin;) {
        Step& step = steps[position];
        step.cost = kNever;  // what a match of no length finds
        kept = lengthen(kept, kept_.matches(position));
        run = lengthen(run, run_.matches(position));
        const auto priced = [&](std::size_t length, std::uint64_t kind) {
            return (steps[position + length].cost + operation_cost) * kNumKinds + kind;
        };
        const std::uint64_t literal_cost = kLiteralCost + std::min(next_literal_cost, next_cost);
        std::uint64_t best = (operation_cost + literal_cost) * kNumKinds + kLiteralKind;
        best = std::min(best, std::min(priced(kept, kKeepKind), priced(run, kRunKind)));
        if (!kSelfCoded) {
            up = lengthen(up, up_.matches(position));
            base = lengthen(base, base_.matches(position));
            best = std::min(best, std::min(priced(up, kUpKind), priced(base, kBaseKind)));
        }
        const std::size_t lengths[kNumKinds] = {kept, base, up, run};
        step.literals_go_on = next_literal_cost <= next_cost;
        step.kind = static_cast<std::uint16_t>(best % kNumKinds);
        step.length = static_cast<std::uint32_t>(lengths[best % kNumKinds]);
        step.cost = best / kNumKinds;
        next_cost = step.cost;
        next_literal_cost = literal_cost;
    }
}

void PatchEncoder::write_stretch(const std::uint8_t* frame, std::size_t begin, std::size_t end) {
    for (std::size_t position = begin; position < end;) {
        const Step& step = steps_[position];
        std::size_t length = step.length;
        if (step.kind == kKeepKind) {
            put_keep(length);
        } else if (step.kind == kLiteralKind) {
            length = 1;
            while (steps_[position + length - 1].literals_go_on && position + length < end) {
                ++length;
            }
            put(Source::kLiteral, length, frame + position);
        } else {
            put(kSources[step.kind], length, nullptr);
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
