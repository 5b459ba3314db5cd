#include "shared_operations.hpp"

#include <algorithm>

#include "patch_decoder.hpp"

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kMinUses = 2;         // moving operations with one repeat saves nothing
constexpr std::size_t kMostBytesAMove = 5;  // that the body grows by: the longest repeat

}  // namespace

void SharedOperations::read(const Codes& codes, const RepeatFinder& finder, Bytes& body,
                            std::vector<std::uint8_t>& group_table) {
    codes_ = &codes;
    const std::size_t base_end = load_u32(group_table.data());
    find_stretches(finder, body, base_end);
    choose_stretches();
    if (moved_.empty()) {
        return;
    }
    rewritten_.clear();
    rewritten_.reserve(body.size() + kMostBytesAMove * moved_.size() + kReadPadding);
    copy(body, 0, base_end);
    copy_stretches(body);
    if (rewritten_.size() > kMaxRepeatPlace) {
        return;
    }
    rewrite_groups(finder, body, base_end, group_table);
    body.swap(rewritten_);
}

// Finds the operations outside the base frame that repeats outside it refer to; overlapping ones are merged.
void SharedOperations::find_stretches(const RepeatFinder& finder, const Bytes& body, std::size_t base_end) {
    uses_.clear();
    uses_of_.assign(finder.entries().size(), 0);
    for (const RepeatFinder::Written& repeat : finder.repeats()) {
        if (repeat.place >= base_end && finder.entries()[repeat.entry].place() >= base_end) {
            std::uint32_t& number = uses_of_[repeat.entry];
            if (number == 0) {
                uses_.emplace_back();
                number = static_cast<std::uint32_t>(uses_.size());
            }
            Uses& uses = uses_[number - 1];
            const std::uint8_t* const bytes = body.data() + repeat.place;
            uses.most_bytes = std::max(uses.most_bytes, read_repeat(bytes, *bytes & kCodeMask).size);
            ++uses.num_repeats;
        }
    }
    stretches_.clear();
    for (std::size_t entry = 0; entry < uses_of_.size(); ++entry) {
        if (uses_of_[entry] == 0) {
            continue;
        }
        Uses& uses = uses_[uses_of_[entry] - 1];
        const std::size_t begin = finder.entries()[entry].place();
        if (stretches_.empty() || begin >= stretches_.back().end) {
            stretches_.push_back(Stretch{begin, begin, 0, 0, false});
        }
        Stretch& stretch = stretches_.back();
        stretch.end = std::max(stretch.end, begin + uses.most_bytes);
        stretch.num_uses += uses.num_repeats;
        uses.stretch = stretches_.size() - 1;
    }
}

// Chooses the stretches that move: all but those used once, which stay unless stretches moved in front of them could
// push them out of a repeat's reach.
void SharedOperations::choose_stretches() {
    std::size_t most_moved = 0;
    for (const Stretch& stretch : stretches_) {
        most_moved += stretch.end - stretch.begin;
    }
    moved_.clear();
    for (std::size_t number = 0; number < stretches_.size(); ++number) {
        Stretch& stretch = stretches_[number];
        stretch.moves = stretch.num_uses >= kMinUses || stretch.begin + most_moved > kMaxRepeatPlace;
        if (stretch.moves) {
            moved_.push_back(number);
        }
    }
}

// Appends the stretches to the new body, those with most uses per byte first.
void SharedOperations::copy_stretches(const Bytes& body) {
    std::stable_sort(moved_.begin(), moved_.end(), [this](std::size_t left_number, std::size_t right_number) {
        const Stretch& left = stretches_[left_number];
        const Stretch& right = stretches_[right_number];
        return left.num_uses * (right.end - right.begin) > right.num_uses * (left.end - left.begin);
    });
    for (const std::size_t number : moved_) {
        Stretch& stretch = stretches_[number];
        stretch.new_begin = rewritten_.size();
        copy(body, stretch.begin, stretch.end);
    }
}

// Replaces each stretch that moves by a repeat, and updates the places of all other repeats. Copies what lies between.
void SharedOperations::rewrite_groups(const RepeatFinder& finder, const Bytes& body, std::size_t base_end,
                                      std::vector<std::uint8_t>& group_table) {
    std::size_t copied = base_end;  // of the old body
    std::size_t entry = 0;          // of the group table
    auto stretch = stretches_.begin();
    const auto copy_up_to = [&](std::size_t place) {
        for (; entry < group_table.size(); entry += kOffsetBytes) {
            const std::size_t group = load_u32(group_table.data() + entry);
            if (group > place) {
                break;
            }
            store_u32(group_table.data() + entry, static_cast<std::uint32_t>(rewritten_.size() + group - copied));
        }
        copy(body, copied, place);
        copied = place;
    };
    const auto rewrite_up_to = [&](std::size_t place) {
        for (; stretch != stretches_.end() && stretch->begin < place; ++stretch) {
            copy_up_to(stretch->begin);
            if (stretch->moves) {
                copied = rewrite_stretch(body, *stretch);
            } else {
                stretch->new_begin = rewritten_.size();
            }
        }
        copy_up_to(place);
    };
    for (const RepeatFinder::Written& written : finder.repeats()) {
        const std::uint32_t uses = uses_of_[written.entry];
        if (uses == 0 || written.place < base_end) {
            continue;
        }
        rewrite_up_to(written.place);
        const std::uint8_t* const bytes = body.data() + written.place;
        const RepeatBytes repeat = read_repeat(bytes, *bytes & kCodeMask);
        const Stretch& repeated = stretches_[uses_[uses - 1].stretch];
        const std::size_t place = repeated.new_begin + repeat.place - repeated.begin;
        append_repeat(rewritten_, place, repeat.size, (*bytes & kKeepFlag) != 0);
        copied = written.place + repeat.nbytes;  // before its number of kept bytes
    }
    rewrite_up_to(body.size());
}

// Returns where to continue in the old body. A repeat has a maximum length, so a long stretch takes several, and a few
// bytes at its end are copied.
std::size_t SharedOperations::rewrite_stretch(const Bytes& body, const Stretch& stretch) {
    std::size_t position = stretch.begin;
    while (position < stretch.end) {
        const std::size_t begin = position;
        OperationEnds last;
        while (position < stretch.end) {
            const OperationEnds operation = ends_of_operation(*codes_, body.data(), position);
            if (std::min(operation.end, stretch.end) - begin > kMaxRepeatBytes) {
                break;
            }
            last = operation;
            position = operation.end;
        }
        const std::size_t size = std::min(position, stretch.end) - begin;
        if (size < kMinRepeatBytes) {
            copy(body, begin, position);
            continue;
        }
        const bool keeps_by_itself = position > stretch.end;
        append_repeat(rewritten_, stretch.new_begin + begin - stretch.begin, size, keeps_by_itself);
        if (keeps_by_itself) {
            copy(body, last.keep_begin, last.end);
        }
    }
    return position;
}

void SharedOperations::copy(const Bytes& body, std::size_t begin, std::size_t end) {
    rewritten_.insert(rewritten_.end(), body.data() + begin, body.data() + end);
}

}  // namespace framestow
