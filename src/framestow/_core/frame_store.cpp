#include "frame_store.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "segment_header.hpp"

namespace framestow {
namespace {

constexpr std::size_t kBackgroundEvery = 2;  // every second anchor: as good a background in half the time
constexpr std::size_t kMaxEmptied = 8;       // sparse blocks at once: a writer must not block readers for long

// Fixed charges besides the packed bytes: per segment its index entries (with spare capacity) and its block in a file;
// per environment its first index entries; and one packer, in frames.
constexpr std::size_t kSegmentCharge = 256;
constexpr std::size_t kEnvCharge = 1024;
constexpr std::size_t kPackerFrames = 40;
constexpr std::size_t kPackerCharge = 16384;

// Smallest blocks of the arena. Raw segments have one size, so small blocks waste little.
constexpr std::size_t kPackedBlockBytes = std::size_t{256} * 1024;
constexpr std::size_t kRawBlockBytes = std::size_t{64} * 1024;

}  // namespace

FrameStore::FrameStore(std::size_t num_envs, const FrameFormat& format, std::uint32_t frames_per_segment,
                       std::size_t step_bytes)
    : format_(format),
      frames_per_segment_(frames_per_segment),
      step_bytes_(step_bytes),
      arena_(format.is_raw ? kRawBlockBytes : kPackedBlockBytes),
      retired_(arena_, files_, format.is_raw ? raw_segment_bytes(format, frames_per_segment) : 0),
      encoder_(format) {
    check_segment_frames(format, frames_per_segment);
    envs_.reserve(num_envs);
    for (std::size_t index = 0; index < num_envs; ++index) {
        envs_.emplace_back(format, encoder_);
    }
    if (!format.is_raw) {
        background_.emplace(format.pixels.frame_bytes());
        previous_frame_.resize(format.pixels.frame_bytes());
    }
    for (const EnvFrames& env : envs_) {
        open_bytes_ += env.open.nbytes();
    }
}

FrameStore::Bytes FrameStore::nbytes() const {
    const std::shared_lock<FairGate> looking(gate_);
    Bytes bytes{arena_.nbytes(),
                encoder_.nbytes() + (background_ ? background_->nbytes() : 0) + previous_frame_.capacity() +
                    scratch_.nbytes() + read_from_file_.capacity(),
                arena_.index_bytes() + files_.index_bytes() + retired_.index_bytes() +
                    envs_.capacity() * (sizeof(EnvFrames) + SegmentWriter::kPixelWriterBytes),
                files_.nbytes()};
    for (const EnvFrames& env : envs_) {
        bytes.open += env.open.nbytes();
        bytes.index += env.sealed.nbytes();
        if (env.raw.size > 0) {
            const std::size_t num_written = raw_segment_bytes(format_, env.open.num_frames());
            bytes.sealed -= env.raw.size;
            bytes.open += env.raw.size - SegmentArena::untouched_bytes(env.raw, num_written);
        }
    }
    return bytes;
}

std::size_t FrameStore::charged_bytes() const {
    const std::size_t num_frames = num_sealed_ * frames_per_segment_ + num_open_;
    const std::size_t raw_bytes = raw_segment_bytes(format_, frames_per_segment_);
    const std::size_t segment_bytes = format_.is_raw
                                          ? arena_.most_bytes_of(num_sealed_ + num_raw_, raw_bytes, sealed_bytes_)
                                          : arena_.most_bytes(sealed_bytes_);
    return segment_bytes + num_sealed_ * kSegmentCharge + open_bytes_ + num_frames * step_bytes_ + fixed_charge() +
           (commits_.count > 0 ? commits_.count * commit_charge(num_frames) : 0);
}

// A commit has at most a segment of each environment: of twice the usual size, but no larger than uncompressed.
std::size_t FrameStore::commit_charge(std::size_t num_frames) const {
    const std::size_t of_steps = commits_.step_bytes * std::min(num_frames, commits_.most_steps);
    const std::size_t raw_bytes = raw_segment_bytes(format_, frames_per_segment_);
    if (num_sealed_ == 0) {
        return open_bytes_ + num_raw_ * raw_bytes + of_steps;
    }
    const std::size_t usual = format_.is_raw ? raw_bytes : sealed_bytes_ / num_sealed_;
    return envs_.size() * std::min(raw_bytes, 2 * usual) + of_steps;
}

std::size_t FrameStore::fixed_charge() const {
    const bool packs = !format_.is_raw || format_.lead_ins > 0;
    const std::size_t packed_bytes = packs ? format_.pixels.frame_bytes() : 0;
    const std::size_t exact_bytes = format_.is_scaled() ? format_.frame_bytes() : 0;
    return envs_.size() * kEnvCharge + kPackerFrames * (packed_bytes + exact_bytes) + kPackerCharge;
}

// Raw segments are charged by their number, wherever they are; this is what exact frames and stretches add.
std::size_t FrameStore::charged_size(const SegmentPlace& place) const {
    if (const auto* const in_file = std::get_if<FilePlace>(&place)) {
        return in_file->charged_size;
    }
    const ByteSpan in_ram = bytes_in_ram(place);
    if (!format_.is_raw) {
        return in_ram.size;
    }
    const std::size_t raw_bytes = raw_segment_bytes(format_, frames_per_segment_);
    return in_ram.size > raw_bytes ? in_ram.size - raw_bytes : 0;
}

// The charged size of a segment that was never in RAM. The stretches of a raw segment are as large in a file as in RAM.
// Only a header is read to know their size; reading the frames reports damage.
std::size_t FrameStore::charged_size_in_file(const FilePlace& place) const {
    if (!format_.is_raw || format_.lead_ins == 0) {
        return format_.is_raw ? 0 : place.size;
    }
    std::uint8_t header[kStretchesHeaderBytes];
    try {
        place.file->read(place.offset, header, sizeof header);
    } catch (const DamagedSegment&) {
        return 0;
    }
    const std::size_t frame_bytes = frame_segment_bytes_of(header);
    return has_stretches(ByteSpan{header, sizeof header}) && frame_bytes < place.size ? place.size - frame_bytes : 0;
}

const FrameStore::EnvFrames& FrameStore::env_at(std::int64_t env_id) const {
    if (env_id < 0 || static_cast<std::uint64_t>(env_id) >= envs_.size()) {
        throw std::out_of_range("environment is " + std::to_string(env_id) + ": it must be 0 to " +
                                std::to_string(envs_.size() - 1));
    }
    return envs_[static_cast<std::size_t>(env_id)];
}

FrameStore::EnvFrames& FrameStore::env_at(std::int64_t env_id) {
    return const_cast<EnvFrames&>(static_cast<const FrameStore*>(this)->env_at(env_id));
}

void FrameStore::check_rows(const std::int32_t* env_ids, std::size_t count, const StretchStart* stretch_starts) const {
    for (std::size_t index = 0; index < count; ++index) {
        env_at(env_ids[index]);
    }
    for (std::size_t index = 0; stretch_starts != nullptr && index < count; ++index) {
        if (stretch_starts[index].padding > StretchPadding::kUsual) {
            throw std::invalid_argument("padding of frame " + std::to_string(index) + " is " +
                                        std::to_string(static_cast<int>(stretch_starts[index].padding)) +
                                        ": it must be 0 to 3");
        }
        if (stretch_starts[index].padding == StretchPadding::kLeadIns && stretch_starts[index].lead_ins == nullptr &&
            format_.lead_ins > 0) {
            throw std::invalid_argument("frame " + std::to_string(index) +
                                        " begins a stretch with lead-ins: it must have " +
                                        std::to_string(format_.lead_ins));
        }
    }
}

void FrameStore::append(const std::int32_t* env_ids, const std::uint8_t* frames, std::size_t count,
                        const StretchStart* stretch_starts) {
    check_rows(env_ids, count, stretch_starts);
    for (std::size_t index = 0; index < count; ++index) {
        const std::lock_guard<FairGate> writing(gate_);
        append_one(envs_[static_cast<std::size_t>(env_ids[index])], frames + index * format_.frame_bytes(),
                   stretch_starts == nullptr ? StretchStart{} : stretch_starts[index]);
    }
}

std::size_t FrameStore::append_without_waiting(const std::int32_t* env_ids, const std::uint8_t* frames,
                                               std::size_t count, const StretchStart* stretch_starts) {
    check_rows(env_ids, count, stretch_starts);
    for (std::size_t index = 0; index < count; ++index) {
        const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
        if (!writing) {
            return index;
        }
        append_one(envs_[static_cast<std::size_t>(env_ids[index])], frames + index * format_.frame_bytes(),
                   stretch_starts == nullptr ? StretchStart{} : stretch_starts[index]);
    }
    return count;
}

void FrameStore::append_one(EnvFrames& env, const std::uint8_t* frame, const StretchStart& start) {
    if (env.open.num_frames() == 0) {
        begin_segment(env);
    }
    const std::size_t bytes_before = env.open.nbytes();
    if (start.is_stored()) {
        env.open.begin_stretch(start);
    }
    env.open.append(frame);
    ++num_open_;
    if (env.open.num_frames() == frames_per_segment_) {
        seal(env);
        free_unreferenced();
    }
    open_bytes_ += env.open.nbytes() - bytes_before;  // modulo 2**64, since it may shrink
}

// Allocates a raw segment. A packed one takes the background of the previous segment as its base, if that serves better
// than a first frame; this reads only the segment's anchors, which are quick to unpack.
void FrameStore::begin_segment(EnvFrames& env) {
    if (format_.is_raw) {
        env.raw = arena_.allocate(raw_segment_bytes(format_, frames_per_segment_), owner_of_open(env));
        env.open.begin_raw(env.raw.bytes);
        ++num_raw_;
        return;
    }
    const ByteSpan segment = segment_before(env);
    if (segment.size == 0) {
        return;
    }
    const SegmentView view = view_segment(format_, segment);
    const SegmentHeader header = as_pixels(view.header);  // as bases are
    if (!row_of(header.encoding).has_base) {
        return;
    }
    background_->clear();
    for (std::size_t frame = 0; frame < header.num_frames; frame += kBackgroundEvery * header.group_frames) {
        unpack_frames(header, view.payload, frame, 1, scratch_, previous_frame_.data());
        background_->add_frame(previous_frame_.data());
    }
    if (background_->serves_better_than_first()) {
        env.open.begin(background_->frame());
    }
}

SegmentOwner FrameStore::owner_of_open(const EnvFrames& env) const {
    return SegmentOwner{static_cast<std::size_t>(&env - envs_.data()), env.open_number};
}

// Returns no bytes if there is no such segment or if it is damaged in its file; reading its frames reports the damage.
ByteSpan FrameStore::segment_before(const EnvFrames& env) {
    const SegmentPlace* const place = env.sealed.find(env.open_number - 1);
    if (place == nullptr) {
        return ByteSpan{};
    }
    const auto* const in_file = std::get_if<FilePlace>(place);
    if (in_file == nullptr) {
        return bytes_in_ram(*place);
    }
    try {
        const ByteSpan segment = read_segment(*in_file, read_from_file_);
        view_segment(format_, segment);
        return segment;
    } catch (const DamagedSegment&) {
        return ByteSpan{};
    }
}

void FrameStore::seal(EnvFrames& env) {
    env.open.finish();
    env.sealed.reserve_one();
    const bool stays = env.raw.size > 0 && !env.open.has_exact() && !env.open.has_stretches();
    const StoredSegment stored = stays ? env.raw : arena_.allocate(env.open.packed_bytes(), owner_of_open(env));
    env.open.write_to(stored.bytes, scratch_);
    env.sealed.add(env.open_number, stored);
    ++num_sealed_;
    sealed_bytes_ += charged_size(stored);
    num_open_ -= frames_per_segment_;
    ++env.open_number;
    if (stays) {
        env.raw = StoredSegment{};
        --num_raw_;
    }
    empty_open(env);
    if (format_.is_raw && !stays) {
        empty_sparse_blocks();  // the raw segment left a hole that the next ones may not fill
    }
}

// Empties the open segment. Only readers that hold the gate use its bytes.
void FrameStore::empty_open(EnvFrames& env) {
    env.open.clear();
    if (env.raw.size > 0) {
        arena_.release(env.raw);
        env.raw = StoredSegment{};
        --num_raw_;
    }
}

std::int64_t FrameStore::evict(std::int64_t env_id, std::int64_t before, std::int64_t first) {
    const Numbers numbers = wholly_within(first, before);
    if (!has_any(env_id, numbers)) {
        return 0;
    }
    const std::unique_lock<FairGate> writing = lock_when_retirable();
    return retire(static_cast<std::size_t>(env_id), numbers);
}

std::unique_lock<FairGate> FrameStore::lock_when_retirable() {
    for (;;) {
        std::unique_lock<FairGate> writing(gate_);
        free_unreferenced();
        if (retired_.can_retire()) {
            return writing;
        }
        const SnapshotLedger::Ticket oldest = retired_.oldest();
        writing.unlock();
        snapshots_.wait_until_unreferenced(oldest);
    }
}

std::optional<std::int64_t> FrameStore::evict_without_waiting(std::int64_t env_id, std::int64_t before,
                                                              std::int64_t first) {
    const Numbers numbers = wholly_within(first, before);
    if (!has_any(env_id, numbers)) {
        return 0;
    }
    const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
    if (!writing) {
        return std::nullopt;
    }
    free_unreferenced();
    if (!retired_.can_retire()) {
        return std::nullopt;
    }
    return retire(static_cast<std::size_t>(env_id), numbers);
}

// Returns the numbers of the segments wholly in positions `first` up to, excluding, `before`.
FrameStore::Numbers FrameStore::wholly_within(std::int64_t first, std::int64_t before) const {
    const std::int64_t begun = std::max<std::int64_t>(first, 0);
    return Numbers{begun / frames_per_segment_ + (begun % frames_per_segment_ > 0 ? 1 : 0),
                   std::max<std::int64_t>(before, 0) / frames_per_segment_};
}

// Most calls evict nothing; this check finds them without blocking a reader.
bool FrameStore::has_any(std::int64_t env_id, const Numbers& numbers) const {
    const EnvFrames& env = env_at(env_id);
    const std::shared_lock<FairGate> looking(gate_);
    return env.sealed.has_any(numbers.first, numbers.before);
}

std::int64_t FrameStore::retire(std::size_t env_id, const Numbers& numbers) {
    SealedSegments& sealed = envs_[env_id].sealed;
    const std::size_t num_retired = sealed.count(numbers.first, numbers.before);
    retired_.reserve(num_retired);
    const SnapshotLedger::Ticket retirement = snapshots_.retire();
    sealed.remove(numbers.first, numbers.before, [&](std::int64_t number, const SegmentPlace& place) {
        retired_.add(retirement, env_id, number, place);
        --num_sealed_;
        sealed_bytes_ -= charged_size(place);
    });
    free_unreferenced();
    empty_sparse_blocks();
    return static_cast<std::int64_t>(num_retired) * frames_per_segment_;
}

// Moves segments out of sparse blocks, which eviction out of order leaves, beside snapshots too: these continue
// to read the old bytes, and the block empties later. Otherwise overlapping snapshots would always prevent it.
void FrameStore::empty_sparse_blocks() {
    for (std::size_t round = 0; round < kMaxEmptied && retired_.can_retire_moved(); ++round) {
        const SegmentArena::Sparse sparse = arena_.sparsest();
        if (sparse.block == nullptr) {
            return;
        }
        retired_.reserve(sparse.owners.size());
        const SnapshotLedger::Ticket retirement = snapshots_.retire();
        bool has_moved = false;
        for (const SegmentOwner& owner : sparse.owners) {
            SegmentPlace* const place = envs_[owner.env_id].sealed.find(owner.number);
            const auto* const stored = place == nullptr ? nullptr : std::get_if<StoredSegment>(place);
            if (stored != nullptr && stored->block == sparse.block) {
                const StoredSegment moved = arena_.allocate(stored->size, owner);
                std::memcpy(moved.bytes, stored->bytes, stored->size);
                retired_.add(retirement, owner.env_id, owner.number, *place);
                *place = moved;
                has_moved = true;
            }
        }
        free_unreferenced();
        if (!has_moved) {
            return;
        }
    }
}

void FrameStore::free_unreferenced() {
    if (!retired_.is_empty()) {
        retired_.free_before(snapshots_.oldest());
        has_retired_.store(!retired_.is_empty());
    }
}

std::int64_t FrameStore::first_position(std::int64_t env_id) const {
    const std::shared_lock<FairGate> looking(gate_);
    return env_at(env_id).first_number() * frames_per_segment_;
}

std::int64_t FrameStore::next_position(std::int64_t env_id) const {
    const std::shared_lock<FairGate> looking(gate_);
    return next_position_of(env_at(env_id));
}

std::int64_t FrameStore::next_position_of(const EnvFrames& env) const {
    return env.open_number * frames_per_segment_ + env.open.num_frames();
}

std::int64_t FrameStore::num_frames() const {
    const std::shared_lock<FairGate> looking(gate_);
    std::int64_t num_frames = 0;
    for (const EnvFrames& env : envs_) {
        num_frames += static_cast<std::int64_t>(env.sealed.size()) * frames_per_segment_ + env.open.num_frames();
    }
    return num_frames;
}

std::int64_t FrameStore::sum_of(std::uint32_t SegmentCounts::* count) const {
    const std::shared_lock<FairGate> looking(gate_);
    std::int64_t sum = 0;
    for (const EnvFrames& env : envs_) {
        sum += env.open.counts().*count;
        env.sealed.for_each([&](const SegmentPlace& place) {
            const auto* const in_file = std::get_if<FilePlace>(&place);
            sum += (in_file != nullptr ? in_file->counts : counts_of(format_, bytes_in_ram(place))).*count;
        });
    }
    return sum;
}

std::vector<std::int64_t> FrameStore::sealed_numbers(std::int64_t env_id) const {
    const std::shared_lock<FairGate> looking(gate_);
    return env_at(env_id).sealed.numbers();
}

std::vector<std::uint8_t> FrameStore::segment(std::int64_t env_id, std::int64_t number) {
    const EnvFrames& env = env_at(env_id);
    const Snapshot snapshot(*this);
    SegmentPlace place;
    std::vector<std::uint8_t> copy;  // of an open segment
    {
        const std::shared_lock<FairGate> looking(gate_);
        if (const SegmentPlace* const sealed = env.sealed.find(number)) {
            place = *sealed;
        } else if (number == env.open_number && env.open.num_frames() > 0) {
            DecodingScratch scratch;
            copy.resize(env.open.packed_bytes());
            env.open.write_to(copy.data(), scratch);
        } else {
            refuse_segment(env, env_id, number);
        }
    }
    const bool is_in_file = std::holds_alternative<FilePlace>(place);
    if (!copy.empty() && !format_.is_raw) {
        return copy;
    }
    SegmentBuffer buffer;
    const ByteSpan bytes = copy.empty() ? bytes_of(place, static_cast<std::size_t>(env_id), number, buffer)
                                        : ByteSpan{copy.data(), copy.size()};
    return format_.is_raw && !is_in_file ? packed_segment(format_, bytes)
                                         : std::vector<std::uint8_t>(bytes.bytes, bytes.bytes + bytes.size);
}

void FrameStore::refuse_segment(const EnvFrames& env, std::int64_t env_id, std::int64_t number) const {
    throw std::out_of_range(segment_name(env_id, number) + " is not stored: segments " +
                            std::to_string(env.first_number()) + " to " + std::to_string(env.open_number) +
                            " are, except for evicted ones and an open one without a frame");
}

void FrameStore::restore(std::int64_t env_id, std::int64_t number, ByteSpan segment) {
    EnvFrames& env = env_at(env_id);
    const std::lock_guard<FairGate> writing(gate_);
    check_follows(env, env_id, number);
    std::vector<std::uint8_t> padded(segment.size + kReadPadding);
    std::memcpy(padded.data(), segment.bytes, segment.size);
    const SegmentView view = view_verified_segment(format_, ByteSpan{padded.data(), segment.size});
    if (view.header.num_frames > frames_per_segment_) {
        throw DamagedSegment(segment_name(env_id, number) + " has " + std::to_string(view.header.num_frames) +
                             " frames: expected at most " + std::to_string(frames_per_segment_));
    }
    const bool is_full = view.header.num_frames == frames_per_segment_;
    if (!is_full || format_.is_raw) {
        const std::size_t bytes_before = env.open.nbytes();
        const std::int64_t next = std::exchange(env.open_number, number);
        try {
            reopen(env, view);
        } catch (...) {
            env.open_number = next;
            empty_open(env);
            throw;
        }
        num_open_ += view.header.num_frames;
        if (is_full) {
            seal(env);
        }
        open_bytes_ += env.open.nbytes() - bytes_before;
    } else {
        env.sealed.reserve_one();
        const SegmentOwner owner{static_cast<std::size_t>(env_id), number};
        const StoredSegment stored = arena_.allocate(segment.size, owner);
        std::memcpy(stored.bytes, segment.bytes, segment.size);
        env.sealed.add(number, stored);
        ++num_sealed_;
        sealed_bytes_ += stored.size;
        env.open_number = number + 1;
    }
}

void FrameStore::begin_at(std::int64_t env_id, std::int64_t number) {
    EnvFrames& env = env_at(env_id);
    const std::lock_guard<FairGate> writing(gate_);
    if (!env.is_empty() || number < 0) {
        throw std::invalid_argument("environment " + std::to_string(env_id) + " cannot begin at segment " +
                                    std::to_string(number) + ": it must be empty, and the number 0 or more");
    }
    env.open_number = number;
}

void FrameStore::move_to_file(std::int64_t env_id, std::int64_t number, const std::string& path, std::uint64_t offset,
                              std::size_t size) {
    EnvFrames& env = env_at(env_id);
    // A raw segment was packed for the file: pack it again to know what was written.
    const std::vector<std::uint8_t> packed = format_.is_raw ? segment(env_id, number) : std::vector<std::uint8_t>{};
    const std::unique_lock<FairGate> writing = lock_when_retirable();
    SegmentPlace* const place = env.sealed.find(number);
    if (place == nullptr) {
        refuse_segment(env, env_id, number);
    }
    const auto* const in_file = std::get_if<FilePlace>(place);
    const ByteSpan in_ram = format_.is_raw ? ByteSpan{packed.data(), packed.size()} : bytes_in_ram(*place);
    const std::size_t expected = in_file == nullptr ? in_ram.size : in_file->size;
    if (size != expected) {
        throw std::invalid_argument(segment_name(env_id, number) + " has " + std::to_string(expected) +
                                    " bytes: it must have as many in " + path + ", not " + std::to_string(size));
    }
    retired_.reserve(1);
    FilePlace moved = files_.add(path, offset, size, in_file == nullptr ? checksum_of(in_ram) : in_file->checksum);
    moved.counts = in_file != nullptr ? in_file->counts : counts_of(format_, in_ram);
    moved.charged_size = charged_size(*place);
    retired_.add(snapshots_.retire(), static_cast<std::size_t>(env_id), number, *place);
    *place = moved;
    free_unreferenced();
}

void FrameStore::restore_in_file(std::int64_t env_id, std::int64_t number, const std::string& path,
                                 std::uint64_t offset, std::size_t size, std::optional<std::uint32_t> of_all_bytes) {
    EnvFrames& env = env_at(env_id);
    const std::lock_guard<FairGate> writing(gate_);
    check_follows(env, env_id, number);
    if (size < kHeaderBytes) {
        throw std::invalid_argument(segment_name(env_id, number) + " has " + std::to_string(size) +
                                    " bytes: it must have more than 24, those of a header");
    }
    env.sealed.reserve_one();
    FilePlace place = files_.add(path, offset, size, std::nullopt);
    place.of_all_bytes = of_all_bytes;
    place.charged_size = charged_size_in_file(place);
    env.sealed.add(number, place);
    ++num_sealed_;
    sealed_bytes_ += charged_size(place);
    env.open_number = number + 1;
}

void FrameStore::check_follows(const EnvFrames& env, std::int64_t env_id, std::int64_t number) const {
    const std::int64_t earliest = env.is_empty() ? 0 : env.open_number;
    if (number < earliest || env.open.num_frames() > 0) {
        throw std::invalid_argument(segment_name(env_id, number) +
                                    " does not follow the stored segments: segments must be restored in ascending "
                                    "order, and nothing after one that is not full");
    }
}

// Packs the frames again on the segment's base. A segment of another packing has none and takes a new segment's.
void FrameStore::reopen(EnvFrames& env, const SegmentView& view) {
    const SegmentHeader& header = view.header;
    std::vector<std::uint8_t> frames(header.num_frames * format_.frame_bytes());
    unpack_frames(format_, view, 0, header.num_frames, scratch_, frames.data());
    if (!format_.is_raw && row_of(header.encoding).has_base) {
        unpack_frames(header, view.payload, 0, 1, scratch_, previous_frame_.data());
        env.open.begin(scratch_.base.frame());
    } else {
        begin_segment(env);
    }
    std::vector<std::uint8_t> lead_ins(view.stretches.num_stretches > 0 ? format_.lead_ins * format_.frame_bytes() : 0);
    std::size_t stretch = 0;
    for (std::size_t index = 0; index < header.num_frames; ++index) {
        if (stretch < view.stretches.num_stretches && view.stretches.place(stretch) == index) {
            unpack_padding(format_, view, index, format_.lead_ins, scratch_, lead_ins.data());
            const bool has_lead_ins = view.stretches.lead_ins_of(stretch) != 0;
            env.open.begin_stretch(
                StretchStart{has_lead_ins ? StretchPadding::kLeadIns : StretchPadding::kZeros, lead_ins.data()});
            ++stretch;
        }
        env.open.append(frames.data() + index * format_.frame_bytes());
    }
}

bool FrameStore::try_to_hold() {
    if (!gate_.try_lock()) {
        return false;
    }
    snapshots_.mutex().lock();
    return true;
}

void FrameStore::give_back(bool is_child, bool is_held) {
    if (is_child) {
        gate_.renew_in_child();
        snapshots_.renew_in_child();
    } else if (is_held) {
        snapshots_.mutex().unlock();
        gate_.unlock();
    }
}

// The reading side of FrameStore: look segments up under the gate, unpack them without it.
namespace {

[[noreturn]] void refuse_damaged(const SegmentPlace& place, std::size_t env, std::int64_t number,
                                 const DamagedSegment& damage) {
    const auto env_id = static_cast<std::int64_t>(env);
    const std::string fault = segment_name(env_id, number) + ": " + damage.what();
    const auto* const in_file = std::get_if<FilePlace>(&place);
    if (in_file == nullptr) {
        throw DamagedStoredSegment(fault + "; it was changed in memory", env_id, number);
    }
    const std::string path = in_file->file->path();
    const std::string folder = path.substr(0, path.find_last_of("/\\"));
    throw DamagedStoredSegment(path + ", offset " + std::to_string(in_file->offset) + ": " + fault +
                                   "; keep the intact data with `framestow repair " + folder +
                                   "`, or skip what is damaged",
                               env_id, number);
}

}  // namespace

FrameStore::View::View(const Snapshot& snapshot)
    : store_(snapshot.store()), ticket_(snapshot.ticket()), gate_lock_(store_.gate_) {}

std::int64_t FrameStore::View::first_position(std::size_t env_id) const {
    return store_.envs_[env_id].first_number() * store_.frames_per_segment_;
}

std::int64_t FrameStore::View::next_position(std::size_t env_id) const {
    return store_.next_position_of(store_.envs_[env_id]);
}

const SegmentPlace* FrameStore::View::find_window(std::size_t env_id, std::int64_t last, std::int64_t count) const {
    if (last < count - 1 || last >= next_position(env_id)) {
        return nullptr;
    }
    const std::int64_t first = last - count + 1;
    const std::int64_t first_number = first / store_.frames_per_segment_;
    const SegmentPlace* const first_place = find(env_id, first_number);
    // Few windows cross a segment border; one multiplication detects it.
    std::int64_t next_number = first_number + 1;
    for (; first_place != nullptr && next_number * store_.frames_per_segment_ <= last; ++next_number) {
        if (find(env_id, next_number) == nullptr) {
            return nullptr;
        }
    }
    return first_place;
}

const SegmentPlace* FrameStore::View::find(std::size_t env_id, std::int64_t number) const {
    const EnvFrames& env = store_.envs_[env_id];
    if (const SegmentPlace* const sealed = env.sealed.find(number)) {
        return sealed;
    }
    return number == env.open_number ? &kNowhere : store_.retired_.find(env_id, number, ticket_);
}

void FrameStore::View::unpack_open(std::size_t env_id, std::size_t first, std::size_t count, DecodingScratch& scratch,
                                   std::uint8_t* out) const {
    unpack_frames(store_.format_, store_.envs_[env_id].open.view(), first, count, scratch, out);
}

bool FrameStore::View::unpack_open_padding(std::size_t env_id, std::size_t first, std::size_t count,
                                           DecodingScratch& scratch, std::uint8_t* out) const {
    return unpack_padding(store_.format_, store_.envs_[env_id].open.view(), first, count, scratch, out);
}

// Unpacks by unpack(view), and names the segment if it is damaged.
template <typename Unpack>
auto FrameStore::unpack_checked(ByteSpan segment, const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                                const Unpack& unpack) const {
    try {
        const SegmentView view = view_segment(format_, segment);
        if (view.header.num_frames != frames_per_segment_) {
            throw DamagedSegment("its header belongs to other frames");
        }
        return unpack(view);
    } catch (const DamagedSegment& damage) {
        refuse_damaged(place, env_id, number, damage);
    }
}

void FrameStore::unpack_sealed(const SegmentPlace& place, std::size_t env_id, std::int64_t number, std::size_t first,
                               std::size_t count, DecodingScratch& scratch, std::uint8_t* out) {
    const auto* const stored = std::get_if<StoredSegment>(&place);
    if (stored != nullptr && format_.is_raw && !format_.is_scaled()) {
        const std::size_t frame_bytes = format_.frame_bytes();
        const std::uint8_t* const frames = without_stretches(stored->span()).bytes + kHeaderBytes;
        scratch.copy_out(out, frames + first * frame_bytes, count * frame_bytes);
        return;
    }
    unpack_checked(bytes_to_unpack(place, env_id, number, scratch), place, env_id, number,
                   [&](const SegmentView& view) { unpack_frames(format_, view, first, count, scratch, out); });
}

bool FrameStore::unpack_sealed_padding(const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                                       std::size_t first, std::size_t count, DecodingScratch& scratch,
                                       std::uint8_t* out) {
    const ByteSpan segment = bytes_to_unpack(place, env_id, number, scratch);
    return has_stretches(segment) && unpack_checked(segment, place, env_id, number, [&](const SegmentView& view) {
               return unpack_padding(format_, view, first, count, scratch, out);
           });
}

// Returns the padded bytes of a sealed segment; those of a file are valid until this thread reads another one.
ByteSpan FrameStore::bytes_to_unpack(const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                                     DecodingScratch& scratch) {
    if (const auto* const stored = std::get_if<StoredSegment>(&place)) {
        return stored->span();
    }
    thread_local SegmentBuffer buffer;
    thread_local ByteSpan segment;
    const FilePlace& in_file = std::get<FilePlace>(place);
    if (!scratch.up_to || scratch.up_to->file != in_file.file || scratch.up_to->offset != in_file.offset) {
        scratch.up_to.reset();
        segment = bytes_of(place, env_id, number, buffer);
        scratch.up_to = UnpackedUpTo{nullptr, 0, 0, in_file.file, in_file.offset};
    }
    return segment;
}

// Records the checksum of a segment in a file when it is verified for the first time.
ByteSpan FrameStore::bytes_of(const SegmentPlace& place, std::size_t env_id, std::int64_t number,
                              SegmentBuffer& buffer) {
    const auto* const in_file = std::get_if<FilePlace>(&place);
    if (in_file == nullptr) {
        return bytes_in_ram(place);
    }
    try {
        const ByteSpan segment = read_segment(*in_file, buffer);
        if (!in_file->checksum) {
            remember_checksum(env_id, number, *in_file, segment);
        }
        return segment;
    } catch (const DamagedSegment& damage) {
        refuse_damaged(place, env_id, number, damage);
    }
}

void FrameStore::remember_checksum(std::size_t env_id, std::int64_t number, const FilePlace& place, ByteSpan segment) {
    const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
    if (writing) {  // otherwise the next read records it
        SegmentPlace* const held = envs_[env_id].sealed.find(number);
        auto* const in_file = held == nullptr ? nullptr : std::get_if<FilePlace>(held);
        if (in_file != nullptr && in_file->file == place.file && in_file->offset == place.offset) {
            in_file->checksum = checksum_of(segment);
            in_file->counts = counts_of(format_, segment);
        }
    }
}

void FrameStore::stop_snapshot(SnapshotLedger::Entry& entry) {
    snapshots_.stop(entry);
    if (has_retired_.load()) {
        // Another thread holds the gate: the writer, who frees at its next segment, or a reader that stops as well.
        const std::unique_lock<FairGate> writing(gate_, std::try_to_lock);
        if (writing) {
            free_unreferenced();
        }
    }
}

Snapshot::Snapshot(FrameStore& store) : store_(store) { store.snapshots_.start(entry_); }

bool Snapshot::may_read() const { return store_.snapshots_.may_read(entry_); }

void Snapshot::stop() {
    if (!entry_.has_stopped) {
        store_.stop_snapshot(entry_);
    }
}

}  // namespace framestow
