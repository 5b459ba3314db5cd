#include "repeat_finder.hpp"

#include <algorithm>

#include "operation_reader.hpp"

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::uint16_t kNone = 0xFFFF;
constexpr std::size_t kHashBits = 12;
constexpr std::size_t kHashedBytes = kMinRepeatBytes;
constexpr int kMaxTries = 8;                   // candidates looked at for one operation
constexpr std::size_t kWorthwhileSaving = 8;    // bytes that pay for the time of a jump

std::size_t hash_of(const std::uint8_t* bytes) {
    return static_cast<std::size_t>((load_u32(bytes) * 2654435761U) >> (32 - kHashBits));
}

}  // namespace

RepeatFinder::RepeatFinder() : newest_(std::size_t{1} << kHashBits, kNone) {}

void RepeatFinder::clear() {
    std::fill(newest_.begin(), newest_.end(), kNone);
    entries_.clear();
}

std::size_t RepeatFinder::nbytes() const {
    return newest_.capacity() * sizeof(std::uint16_t) + entries_.capacity() * sizeof(Entry);
}

RepeatFinder::Repeat RepeatFinder::longest_repeat(const OperationBytes& operations, std::size_t first,
                                                  const std::vector<std::uint8_t>& body) const {
    Repeat longest;
    const std::size_t begin = operations.places[first].begin;
    const std::size_t available = std::min(operations.bytes.size() - begin, kMaxRepeatBytes);
    if (available < kHashedBytes) {
        return longest;
    }
    const std::uint8_t* const wanted = operations.bytes.data() + begin;
    std::uint16_t number = newest_[hash_of(wanted)];
    for (int tries = 0; tries < kMaxTries && number != kNone; ++tries) {
        const Entry& entry = entries_[number];
        number = entry.earlier;
        const std::size_t most = std::min(available, body.size() - entry.place);
        const std::uint8_t* const found = body.data() + entry.place;
        if (most <= longest.size || found[longest.size] != wanted[longest.size]) {
            continue;
        }
        const auto agreeing = static_cast<std::size_t>(std::mismatch(wanted, wanted + most, found).first - wanted);
        if (agreeing > longest.size) {
            lengthen(operations, first, agreeing, entry.place, longest);
        }
    }
    return longest;
}

// Takes the operations that lie whole within the first `agreeing` bytes, if they are more than the longest so far.
void RepeatFinder::lengthen(const OperationBytes& operations, std::size_t first, std::size_t agreeing,
                            std::size_t place, Repeat& longest) {
    const std::size_t begin = operations.places[first].begin;
    std::size_t count = 0;
    while (first + count < operations.places.size() && operations.end_of(first + count) - begin <= agreeing) {
        ++count;
    }
    std::size_t size = count == 0 ? 0 : operations.end_of(first + count - 1) - begin;
    bool is_keep_its_own = false;
    if (first + count < operations.places.size()) {
        const std::size_t keep_begin = operations.places[first + count].keep_begin;
        if (keep_begin < operations.end_of(first + count) && keep_begin - begin <= agreeing) {
            size = keep_begin - begin;
            is_keep_its_own = true;
            ++count;
        }
    }
    if (size >= kMinRepeatBytes && size > longest.size) {
        longest = Repeat{place, size, count, is_keep_its_own};
    }
}

void RepeatFinder::write_repeat(const OperationBytes& operations, std::size_t first, const Repeat& repeat,
                                std::vector<std::uint8_t>& body) {
    append_repeat(body, repeat.place, repeat.size, repeat.is_keep_its_own);
    if (repeat.is_keep_its_own) {
        const std::size_t last = first + repeat.num_operations - 1;
        body.insert(body.end(), operations.bytes.begin() + operations.places[last].keep_begin,
                    operations.bytes.begin() + static_cast<std::ptrdiff_t>(operations.end_of(last)));
    }
}

void RepeatFinder::remember(std::size_t place, const std::vector<std::uint8_t>& body) {
    if (place > kMaxRepeatPlace || entries_.size() >= kNone || body.size() - place < kHashedBytes) {
        return;
    }
    std::uint16_t& newest = newest_[hash_of(body.data() + place)];
    entries_.push_back(Entry{static_cast<std::uint16_t>(place), newest});
    newest = static_cast<std::uint16_t>(entries_.size() - 1);
}

void RepeatFinder::write_patch(const OperationBytes& operations, std::vector<std::uint8_t>& body) {
    written_.clear();
    for (std::size_t index = 0; index < operations.places.size();) {
        const Repeat repeat = longest_repeat(operations, index, body);
        const std::size_t cost = repeat.size < kMinRepeatBytes + kDirectRepeats ? 3 : 4;
        if (repeat.size > cost + kWorthwhileSaving) {
            write_repeat(operations, index, repeat, body);
            index += repeat.num_operations;
            continue;
        }
        written_.push_back(body.size());
        body.insert(body.end(), operations.bytes.begin() + operations.places[index].begin,
                    operations.bytes.begin() + static_cast<std::ptrdiff_t>(operations.end_of(index)));
        ++index;
    }
    body.push_back(static_cast<std::uint8_t>(kEnd));
    for (const std::size_t place : written_) {
        remember(place, body);
    }
}

}  // namespace framestow
