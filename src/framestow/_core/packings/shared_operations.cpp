#include "shared_operations.hpp"

#include <algorithm>

#include "patch_decoder.hpp"

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::size_t kMinUses = 2;  // moving operations with one repeat saves nothing

}  // namespace

std::size_t SharedOperations::nbytes() const {
    return (stretches_.capacity() + by_use_.capacity()) * sizeof(Stretch) + moves_.capacity() * sizeof(Move) +
           rewritten_.capacity();
}

void SharedOperations::gather(const Codes& codes, Bytes& body, Bytes& group_table) {
    codes_ = &codes;
    const std::size_t base_end = load_u32(group_table.data());
    find_stretches(body, base_end);
    choose_stretches();
    if (stretches_.empty()) {
        return;
    }
    rewritten_.clear();
    copy(body, 0, base_end);
    copy_stretches(body);
    if (rewritten_.size() > kMaxRepeatPlace) {
        return;
    }
    rewrite_groups(body, base_end, group_table);
    body.assign(rewritten_.begin(), rewritten_.end());
}

// Finds the operations outside the base frame that repeats refer to; overlapping ones are merged.
void SharedOperations::find_stretches(const Bytes& body, std::size_t base_end) {
    by_use_.clear();
    for (std::size_t position = base_end; position < body.size();) {
        const PatchOperation operation = read_operation(*codes_, body.data(), position);
        if (operation.is_repeat() && operation.place >= base_end) {
            by_use_.push_back(Stretch{operation.place, operation.place + operation.size, 1, 0});
        }
        position = operation.end;
    }
    std::sort(by_use_.begin(), by_use_.end(),
              [](const Stretch& left, const Stretch& right) { return left.begin < right.begin; });
    stretches_.clear();
    for (const Stretch& use : by_use_) {
        if (stretches_.empty() || use.begin >= stretches_.back().end) {
            stretches_.push_back(use);
        } else {
            stretches_.back().end = std::max(stretches_.back().end, use.end);
            ++stretches_.back().num_uses;
        }
    }
}

// Drops the stretches that stay in place: those used once, unless stretches moved in front of them could push them out
// of a repeat's reach.
void SharedOperations::choose_stretches() {
    std::size_t most_moved = 0;
    for (const Stretch& stretch : stretches_) {
        most_moved += stretch.end - stretch.begin;
    }
    const auto stays = [&](const Stretch& stretch) {
        return stretch.num_uses < kMinUses && stretch.begin + most_moved <= kMaxRepeatPlace;
    };
    stretches_.erase(std::remove_if(stretches_.begin(), stretches_.end(), stays), stretches_.end());
}

// Appends the stretches to the new body, those with most uses per byte first.
void SharedOperations::copy_stretches(const Bytes& body) {
    for (std::size_t index = 0; index < stretches_.size(); ++index) {
        stretches_[index].new_begin = index;  // its number until its place is known
    }
    by_use_ = stretches_;
    std::stable_sort(by_use_.begin(), by_use_.end(), [](const Stretch& left, const Stretch& right) {
        return left.num_uses * (right.end - right.begin) > right.num_uses * (left.end - left.begin);
    });
    for (const Stretch& stretch : by_use_) {
        stretches_[stretch.new_begin].new_begin = rewritten_.size();
        copy(body, stretch.begin, stretch.end);
    }
}

// Replaces each stretch by a repeat, and updates the places of all other repeats.
void SharedOperations::rewrite_groups(const Bytes& body, std::size_t base_end, Bytes& group_table) {
    moves_.clear();
    auto stretch = stretches_.begin();
    std::size_t entry = 0;  // of the group table
    for (std::size_t position = base_end; position < body.size();) {
        if (entry < group_table.size() && load_u32(group_table.data() + entry) == position) {
            store_u32(group_table.data() + entry, static_cast<std::uint32_t>(rewritten_.size()));
            entry += sizeof(std::uint32_t);
        }
        const bool is_stretch = stretch != stretches_.end() && stretch->begin == position;
        position = is_stretch ? rewrite_stretch(body, *stretch++) : rewrite_operation(body, position);
    }
}

// Returns where to continue in the old body. A repeat has a maximum length, so a long stretch takes several, and a few
// bytes at its end are copied.
std::size_t SharedOperations::rewrite_stretch(const Bytes& body, const Stretch& stretch) {
    std::size_t position = stretch.begin;
    while (position < stretch.end) {
        const std::size_t begin = position;
        PatchOperation last;
        while (position < stretch.end) {
            const PatchOperation operation = read_operation(*codes_, body.data(), position);
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

std::size_t SharedOperations::rewrite_operation(const Bytes& body, std::size_t position) {
    const PatchOperation operation = read_operation(*codes_, body.data(), position);
    if (operation.is_repeat()) {
        const bool keeps = operation.end != operation.keep_begin;
        append_repeat(rewritten_, new_place_of(operation.place), operation.size, keeps);
        copy(body, operation.keep_begin, operation.end);
    } else {
        moves_.push_back(Move{position, rewritten_.size()});
        copy(body, position, operation.end);
    }
    return operation.end;
}

void SharedOperations::copy(const Bytes& body, std::size_t begin, std::size_t end) {
    rewritten_.insert(rewritten_.end(), body.begin() + static_cast<std::ptrdiff_t>(begin),
                      body.begin() + static_cast<std::ptrdiff_t>(end));
}

// Returns the new place of a repeated operation: in a stretch, in its group, or in the base frame.
std::size_t SharedOperations::new_place_of(std::size_t place) const {
    const auto behind = std::upper_bound(stretches_.begin(), stretches_.end(), place,
                                         [](std::size_t wanted, const Stretch& stretch) { return wanted < stretch.begin; });
    if (behind != stretches_.begin() && place < std::prev(behind)->end) {
        return std::prev(behind)->new_begin + place - std::prev(behind)->begin;
    }
    const auto move = std::lower_bound(moves_.begin(), moves_.end(), place,
                                       [](const Move& candidate, std::size_t wanted) { return candidate.from < wanted; });
    return move != moves_.end() && move->from == place ? move->to : place;
}

}  // namespace framestow
