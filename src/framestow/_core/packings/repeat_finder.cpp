#include "repeat_finder.hpp"

#include <algorithm>

#include "patch_decoder.hpp"

namespace framestow {
namespace {

using namespace patch_format;

constexpr std::uint32_t kNone = 0xFFFFFFFF;   // no entry
constexpr unsigned kFirstHashBits = 10;       // of a place in the table: for the first operations
constexpr unsigned kMostHashBits = 17;        // the table has at most 2**17 places
constexpr int kMaxTries = 4;                  // candidates per operation
constexpr std::size_t kWorthwhileBytes = 12;  // 8 more than a repeat takes, which pays for the time of a jump

// Hashes the fewest bytes that a repeat has, so that few candidates fail.
std::uint64_t hash_of(const std::uint8_t* bytes) {
    const std::uint64_t first = load_u64(bytes);
    const std::uint64_t last = load_u64(bytes + kWorthwhileBytes - sizeof(std::uint64_t));
    return (first + (last << 29 | last >> 35)) * 0x9E3779B97F4A7C15U;
}

// A byte of a hash, above a place. Most entries that differ from what is wanted have another.
std::uint32_t tag_of(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash) & ~static_cast<std::uint32_t>(kMaxRepeatPlace);
}

}  // namespace

RepeatFinder::RepeatFinder() { clear(); }

void RepeatFinder::clear() {
    hash_bits_ = kFirstHashBits;
    newest_ = PagedVector<std::uint32_t>(std::size_t{1} << hash_bits_, kNone);
    PagedVector<Entry>().swap(entries_);
    PagedVector<Written>().swap(repeats_);
    std::vector<std::size_t>().swap(written_);
}

std::size_t RepeatFinder::nbytes() const {
    return newest_.capacity() * sizeof(std::uint32_t) + entries_.capacity() * sizeof(Entry) +
           repeats_.capacity() * sizeof(Written) + written_.capacity() * sizeof(std::size_t);
}

RepeatFinder::Repeat RepeatFinder::longest_repeat(const OperationBytes& operations, std::size_t first,
                                                  const PagedVector<std::uint8_t>& body) const {
    Repeat longest;
    const std::size_t begin = operations.places[first].begin;
    const std::size_t available = std::min(operations.num_bytes - begin, kMaxRepeatBytes);
    if (available < kWorthwhileBytes) {
        return longest;
    }
    const std::uint8_t* const wanted = operations.bytes.data() + begin;
    const std::uint64_t hash = hash_of(wanted);
    std::uint32_t number = newest_[hash >> (64 - hash_bits_)];
    for (int tries = 0; tries < kMaxTries && number != kNone; ++tries) {
        const Entry& entry = entries_[number];
        const std::uint32_t found_number = number;
        number = entry.earlier;
        if (tag_of(entry.tagged_place) != tag_of(hash)) {
            continue;
        }
        const std::size_t most = std::min(available, body.size() - entry.place());
        const std::uint8_t* const found = body.data() + entry.place();
        if (most <= longest.size || found[longest.size] != wanted[longest.size]) {
            continue;
        }
        const std::size_t agreeing = agreeing_bytes(wanted, found, most);
        if (agreeing > longest.size) {
            lengthen(operations, first, agreeing, found_number, longest);
        }
    }
    return longest;
}

// Takes the operations that lie wholly within the first `agreeing` bytes, if they are more than the longest so far.
void RepeatFinder::lengthen(const OperationBytes& operations, std::size_t first, std::size_t agreeing,
                            std::uint32_t entry, Repeat& longest) const {
    const std::size_t begin = operations.places[first].begin;
    std::size_t count = 0;
    while (first + count < operations.places.size() && operations.end_of(first + count) - begin <= agreeing) {
        ++count;
    }
    std::size_t size = count == 0 ? 0 : operations.end_of(first + count - 1) - begin;
    bool has_own_keep = false;
    if (first + count < operations.places.size()) {
        const std::size_t keep_begin = operations.places[first + count].keep_begin;
        if (keep_begin < operations.end_of(first + count) && keep_begin - begin <= agreeing) {
            size = keep_begin - begin;
            has_own_keep = true;
            ++count;
        }
    }
    if (size >= kWorthwhileBytes + (entries_[entry].place() > kMaxNearPlace ? 2 : 0) && size > longest.size) {
        longest = Repeat{entry, size, count, has_own_keep};
    }
}

void RepeatFinder::write_repeat(const OperationBytes& operations, std::size_t first, const Repeat& repeat,
                                PagedVector<std::uint8_t>& body) {
    repeats_.push_back(Written{static_cast<std::uint32_t>(body.size()), repeat.entry});
    append_repeat(body, entries_[repeat.entry].place(), repeat.size, repeat.has_own_keep);
    if (repeat.has_own_keep) {
        const std::size_t last = first + repeat.num_operations - 1;
        body.insert(body.end(), operations.bytes.begin() + operations.places[last].keep_begin,
                    operations.bytes.begin() + static_cast<std::ptrdiff_t>(operations.end_of(last)));
    }
}

void RepeatFinder::remember(std::size_t place, const PagedVector<std::uint8_t>& body) {
    if (place > kMaxRepeatPlace || entries_.size() >= kNone || body.size() - place < kWorthwhileBytes) {
        return;
    }
    const std::uint64_t hash = hash_of(body.data() + place);
    entries_.push_back(Entry{static_cast<std::uint32_t>(place) | tag_of(hash), kNone});
    if (entries_.size() > newest_.size() && hash_bits_ < kMostHashBits) {
        ++hash_bits_;
        newest_.assign(std::size_t{1} << hash_bits_, kNone);
        for (std::size_t number = 0; number < entries_.size(); ++number) {
            link(number, hash_of(body.data() + entries_[number].place()));
        }
    } else {
        link(entries_.size() - 1, hash);
    }
}

void RepeatFinder::link(std::size_t number, std::uint64_t hash) {
    std::uint32_t& newest = newest_[hash >> (64 - hash_bits_)];
    entries_[number].earlier = newest;
    newest = static_cast<std::uint32_t>(number);
}

void RepeatFinder::write_patch(const OperationBytes& operations, PagedVector<std::uint8_t>& body) {
    written_.clear();
    std::size_t copied = 0;  // bytes of the operations already written or repeated
    const auto copy_up_to = [&](std::size_t end) {
        body.insert(body.end(), operations.bytes.data() + copied, operations.bytes.data() + end);
    };
    for (std::size_t index = 0; index < operations.places.size();) {
        const std::size_t begin = operations.places[index].begin;
        const Repeat repeat = longest_repeat(operations, index, body);
        if (repeat.size > 0) {
            copy_up_to(begin);
            write_repeat(operations, index, repeat, body);
            index += repeat.num_operations;
            copied = index < operations.places.size() ? operations.places[index].begin : operations.num_bytes;
        } else {
            written_.push_back(body.size() + begin - copied);
            ++index;
        }
    }
    copy_up_to(operations.num_bytes);
    body.push_back(static_cast<std::uint8_t>(kEnd));
    for (const std::size_t place : written_) {
        remember(place, body);
    }
}

}  // namespace framestow
