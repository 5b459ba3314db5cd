#include "step_ring.hpp"

#include <algorithm>
#include <iterator>

namespace framestow {

StepRing::StepRing(std::size_t capacity, std::size_t num_envs, const StepRules& rules, bool releases_pages)
    : StepStore(num_envs, rules),
      capacity_(capacity),
      pages_(capacity, records_.bytes(), releases_pages),
      slots_(pages_.slots()),
      segments_reported_(num_envs, 0),
      first_steps_(num_envs, 0) {}

std::vector<std::int64_t> StepRing::lost_indices() const {
    const std::vector<std::int64_t> pending = pending_.indices();
    std::vector<std::int64_t> lost;
    std::set_difference(unsampleable_.begin(), unsampleable_.end(), pending.begin(), pending.end(),
                        std::back_inserter(lost));
    return lost;
}

void StepRing::evict_for(std::size_t count, std::vector<Eviction>& evictions) {
    evict_before(next_index_ + static_cast<std::int64_t>(count) - static_cast<std::int64_t>(capacity_), evictions);
}

void StepRing::evict_next(std::vector<Eviction>& evictions) {
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        std::size_t env_id = 0;
        if (needed_from(index, env_id) / rules_.segment_frames > segments_reported_[env_id]) {
            evict_before(index + 1, evictions);
            pages_.release(oldest_, next_index_);
            return;
        }
    }
}

std::size_t StepRing::lose(std::size_t env_id, std::int64_t first, std::int64_t before) {
    cursors_.lose(env_id, before);
    std::vector<std::int64_t> touched;
    const std::uint8_t* record = nullptr;
    std::int64_t index = first_from(env_id, first - rules_.n_step);
    for (; index < next_index_; index = next_of(env_id, index + 1)) {  // steps whose returns may reach `first`
        const std::uint8_t* next = slot(index);
        const std::int64_t position = records_.position_of(next, env_id);
        if (position >= first) {
            break;
        }
        if (record != nullptr &&
            (StepRecords::ends_episode(record) || position != records_.position_of(record, env_id) + 1)) {
            touched.clear();
        }
        record = next;
        touched.push_back(index);
    }
    if (record != nullptr && records_.position_of(record, env_id) != first - 1) {
        touched.clear();
    }
    for (; index < next_index_; index = next_of(env_id, index + 1)) {
        if (records_.first_position_of(slot(index), env_id) >= before) {
            break;  // an environment's windows begin in ascending order
        }
        touched.push_back(index);
    }
    return lose_indices(touched);
}

std::size_t StepRing::lose_indices(const std::vector<std::int64_t>& ascending) {
    std::size_t num_lost = 0;
    for (const std::int64_t index : ascending) {
        if (is_sampleable(index)) {
            make_unsampleable(index);
            ++num_lost;
        } else if (is_pending(index)) {
            const std::size_t env_id = records_.env_of(slot(index));
            pending_.remove(env_id, records_.position_of(slot(index), env_id), index);
        }
    }
    unsampleable_.add(ascending);
    return num_lost;
}

std::size_t StepRing::lose_records(const std::vector<std::int64_t>& ascending) {
    for (const std::int64_t index : ascending) {
        records_.write_lost(slot(index));
    }
    std::vector<std::int64_t> lost = ascending;
    for (std::size_t row = 0; row < ascending.size() && !pending_.is_unused();) {
        const std::int64_t first = ascending[row];
        std::int64_t behind = first;
        bool has_sampleable = false;
        for (; row < ascending.size() && ascending[row] == behind; ++row, ++behind) {
            has_sampleable = has_sampleable || is_sampleable(behind);
        }
        if (has_sampleable) {  // what leads into steps that were lost before was lost with them
            find_leading_into(first, behind, lost);
        }
    }
    std::sort(lost.begin(), lost.end());
    lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
    return lose_indices(lost);
}

std::size_t StepRing::forget_lost() {
    const std::vector<std::int64_t> lost = lost_indices();
    std::vector<std::int64_t> leading;
    for (std::size_t row = 0; row < lost.size(); ++row) {
        const std::size_t begins = row;
        const auto is_placeholder = [&](std::size_t at) { return records_.is_placeholder(slot(lost[at])); };
        if (!is_placeholder(row)) {
            continue;  // `forget` knows its environment
        }
        while (row + 1 < lost.size() && lost[row + 1] == lost[row] + 1 && is_placeholder(row + 1)) {
            ++row;
        }
        find_leading_into(lost[begins], lost[row] + 1, leading);
    }
    std::sort(leading.begin(), leading.end());
    leading.erase(std::unique(leading.begin(), leading.end()), leading.end());
    return lose_indices(leading) + forget(lost.data(), lost.size());
}

void StepRing::clear(std::vector<Eviction>& evictions) {
    close_episodes();
    evict_before(next_index_, evictions);
    pages_.release(oldest_, next_index_);
}

void StepRing::restore_span(std::int64_t oldest, std::int64_t next_index) {
    oldest_ = oldest;
    next_index_ = next_index;
    unsampleable_ = UnsampleableIndices();
    pending_.clear();
    pages_.restart(oldest);
    num_sampleable_ = static_cast<std::size_t>(next_index - oldest);
}

void StepRing::restore_pending() {
    if (pending_.is_unused()) {
        return;
    }
    std::int64_t num_missing = 0;  // unseen steps that may be pending: those after `lowest` in open episodes
    const auto lowest = [&](std::size_t env_id) {
        return std::max(cursors_.newest_position(env_id) - rules_.n_step + 1, cursors_.episode_start(env_id));
    };
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        num_missing += cursors_.is_open(env_id) ? cursors_.newest_position(env_id) - lowest(env_id) : 0;
    }
    std::vector<std::int64_t> waiting;
    for (std::int64_t index = next_index_ - 1; index >= oldest_ && num_missing > 0; --index) {
        const std::size_t env_id = records_.env_of(slot(index));
        const std::int64_t position = records_.position_of(slot(index), env_id);
        if (cursors_.is_open(env_id) && position >= lowest(env_id)) {
            --num_missing;
            if (is_sampleable(index)) {
                make_unsampleable(index);
                pending_.exchange(env_id, position, index);
                waiting.push_back(index);
            }
        }
    }
    std::reverse(waiting.begin(), waiting.end());
    unsampleable_.add(waiting);
}

std::uint8_t* StepRing::slot(std::int64_t index) const {
    return slots_ + static_cast<std::size_t>(index) % capacity_ * records_.bytes();
}

// Every step becomes sampleable through the first of these functions, and stops being so through the third.
void StepRing::make_sampleable(std::int64_t index) {
    ++num_sampleable_;
    changed_.add(slot_number_of(index));
}

void StepRing::make_sampleable(std::vector<std::int64_t>& settled) {
    std::sort(settled.begin(), settled.end());
    unsampleable_.remove(settled);
    for (const std::int64_t index : settled) {
        make_sampleable(index);
    }
}

void StepRing::make_unsampleable(std::int64_t index) {
    --num_sampleable_;
    changed_.add(slot_number_of(index));
}

// Returns the position of the first frame of its environment that is still needed after the step's eviction.
std::int64_t StepRing::needed_from(std::int64_t index, std::size_t& env_id) const {
    const std::uint8_t* leaving = slot(index);
    env_id = records_.env_of(leaving);
    // The environment's next step starts at least one position later, and its observation reaches stack - 1 frames
    // back.
    return records_.position_of(leaving, env_id) + 2 - rules_.stack;
}

void StepRing::evict_before(std::int64_t until, std::vector<Eviction>& evictions) {
    for (; oldest_ < until; ++oldest_) {
        std::size_t env_id = 0;
        const std::int64_t before = needed_from(oldest_, env_id);
        if (before / rules_.segment_frames > segments_reported_[env_id]) {
            segments_reported_[env_id] = before / rules_.segment_frames;
            evictions.push_back(Eviction{static_cast<std::int32_t>(env_id), 0, before});
        }
        if (!unsampleable_.contains(oldest_)) {
            make_unsampleable(oldest_);
        } else {  // it starts at before - 2 + stack
            pending_.remove(env_id, before - 2 + rules_.stack, oldest_);
            has_evicted_lost_ = has_evicted_lost_ || records_.is_placeholder(slot(oldest_));
        }
        first_steps_[env_id] = std::max(first_steps_[env_id], before + rules_.stack - 1);
        starts_.remove_before(env_id, first_steps_[env_id]);
    }
    if (unsampleable_.size() != 0) {
        unsampleable_.remove_before(oldest_);
    }
}

bool StepRing::step_on(StepWalk& walk) const {
    ++walk.position;
    if (walk.position >= cursors_.newest_position(walk.env_id)) {
        return false;
    }
    const auto num_newer = static_cast<std::size_t>(next_index_ - walk.index) - 1;
    std::size_t at = static_cast<std::size_t>(walk.index) % capacity_ + walk.stride;
    at -= at < capacity_ ? 0 : capacity_;
    if (walk.stride <= num_newer && records_.is_step_at(slots_ + at * records_.bytes(), walk.env_id, walk.position)) {
        walk.index += static_cast<std::int64_t>(walk.stride);
        walk.record = slots_ + at * records_.bytes();
        return true;
    }
    const std::int64_t next = next_of(walk.env_id, walk.index + 1);
    if (next == next_index_ || records_.position_of(slot(next), walk.env_id) != walk.position) {
        return false;
    }
    walk.stride = static_cast<std::size_t>(next - walk.index);
    walk.index = next;
    walk.record = slot(next);
    return true;
}

// Returns the environment's first step at or after `index` that is no placeholder.
std::int64_t StepRing::next_of(std::size_t env_id, std::int64_t index) const {
    for (; index < next_index_; ++index) {
        const std::uint8_t* record = slot(index);
        if (records_.env_of(record) == env_id && !records_.is_placeholder(record)) {
            break;
        }
    }
    return index;
}

// Returns the environment's first step that starts at `position` or later; its steps are in ascending order.
std::int64_t StepRing::first_from(std::size_t env_id, std::int64_t position) const {
    std::int64_t low = oldest_, high = next_index_;
    while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        const std::int64_t index = next_of(env_id, middle);
        if (index < next_index_ && records_.position_of(slot(index), env_id) < position) {
            low = index + 1;
        } else {
            high = middle;
        }
    }
    return next_of(env_id, low);
}

// Returns whether surely no step of the environment lay before index `behind` after the one that starts at `position`.
bool StepRing::surely_continues_after(std::size_t env_id, std::int64_t position, std::int64_t behind) const {
    if (cursors_.newest_position(env_id) == position + 1) {
        return true;
    }
    const std::int64_t next = next_of(env_id, behind);
    return next < next_index_ && records_.is_step_at(slot(next), env_id, position + 1);
}

// Adds the steps before `first` whose returns may reach a placeholder from `first` up to, excluding, `behind`.
void StepRing::find_leading_into(std::int64_t first, std::int64_t behind, std::vector<std::int64_t>& found) const {
    struct Search {
        std::int64_t num_left;            // number of steps that may still be found
        std::int64_t next_position = -1;  // position of the last one found
    };
    std::vector<Search> searches(num_envs(), Search{rules_.n_step - 1});
    std::size_t num_done = 0;
    for (std::int64_t index = first - 1; index >= oldest_ && num_done < searches.size(); --index) {
        const std::uint8_t* record = slot(index);
        const std::size_t env_id = records_.env_of(record);
        Search& search = searches[env_id];
        if (search.num_left == 0 || records_.is_placeholder(record)) {
            continue;
        }
        const std::int64_t position = records_.position_of(record, env_id);
        const bool is_newest = search.next_position < 0;
        const bool leads_on =
            !StepRecords::ends_episode(record) &&
            (is_newest ? !surely_continues_after(env_id, position, behind) : position + 1 == search.next_position);
        search.num_left = leads_on ? search.num_left - 1 : 0;
        search.next_position = position;
        if (leads_on) {
            found.push_back(index);
        }
        num_done += search.num_left == 0 ? 1 : 0;
    }
}

std::vector<std::int64_t> StepRing::sampleable_after(std::int64_t after, std::size_t count) const {
    std::vector<std::int64_t> indices;
    for (std::int64_t index = std::max(after + 1, oldest_); index < next_index_ && indices.size() < count; ++index) {
        if (is_sampleable(index)) {
            indices.push_back(index);
        }
    }
    return indices;
}

bool StepRing::move(StepPlace& place, std::int64_t position) const {
    const std::int64_t distance = position - place.position;
    const std::int64_t step = distance < 0 ? -1 : 1;
    // If all environments step together, consecutive steps of one are as far apart as its last two.
    std::int64_t index = place.index + distance * place.gap;
    if (!is_at(index, place.env_id, position)) {
        if (position >= cursors_.newest_position(place.env_id) || position < first_steps_[place.env_id]) {
            return false;
        }
        // The environment's next readable step; an unreadable record may be a placeholder.
        index = place.index + step;
        while (index >= oldest_ && index < next_index_ &&
               (records_.env_of(slot(index)) != place.env_id || !is_readable(index) ||
                (position - records_.position_of(slot(index), place.env_id)) * step > 0)) {
            index += step;
        }
        if (!is_at(index, place.env_id, position)) {
            return false;
        }
    }
    if (distance == step) {
        place.gap = (index - place.index) * step;
    }
    place.position = position;
    place.index = index;
    return true;
}

bool StepRing::find(std::size_t env_id, std::int64_t position, StepPlace& place) const {
    return locate(first_from(env_id, position), place) && place.position == position;
}

std::vector<StepSpan> StepRing::readable_spans() {
    if (unsampleable_.size() != pending_.indices().size()) {
        return spans_between_lost_steps();
    }
    if (has_evicted_lost_) {
        find_first_steps();
        has_evicted_lost_ = false;
    }
    std::vector<StepSpan> spans;
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        add_spans_of(env_id, spans);
    }
    return spans;
}

void StepRing::restore_starts(std::vector<std::vector<std::int64_t>> starts) {
    StepStore::restore_starts(std::move(starts));
    find_first_steps();
}

void StepRing::visit_stored(const Visit& visit) const {
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        visit(index, slot(index));
    }
}

// Finds the first stored step of each environment, lost or not.
void StepRing::find_first_steps() {
    std::vector<bool> is_found(num_envs(), false);
    std::size_t num_missing = num_envs();
    for (std::int64_t index = oldest_; index < next_index_ && num_missing != 0; ++index) {
        const std::size_t env_id = records_.env_of(slot(index));
        if (!records_.is_placeholder(slot(index)) && !is_found[env_id]) {
            is_found[env_id] = true;
            first_steps_[env_id] = records_.position_of(slot(index), env_id);
            --num_missing;
        }
    }
    for (std::size_t env_id = 0; env_id < num_envs(); ++env_id) {
        if (!is_found[env_id]) {
            first_steps_[env_id] = std::max<std::int64_t>(cursors_.newest_position(env_id), 0);
        }
    }
}

bool StepRing::is_at(std::int64_t index, std::size_t env_id, std::int64_t position) const {
    return is_readable(index) && records_.env_of(slot(index)) == env_id &&
           records_.position_of(slot(index), env_id) == position;
}

// Adds the spans of an environment that lost no step.
void StepRing::add_spans_of(std::size_t env_id, std::vector<StepSpan>& spans) const {
    std::int64_t first = first_steps_[env_id];
    const auto add_until = [&](std::int64_t last_frame) {
        if (first < last_frame) {
            spans.push_back(step_span(env_id, first, last_frame - first));
        }
    };
    for (const std::int64_t* start = starts_.begin(env_id); start != starts_.end(env_id); ++start) {
        if (*start > first) {
            add_until(*start - 1);
            first = *start;
        }
    }
    add_until(cursors_.newest_position(env_id));
}

std::vector<StepSpan> StepRing::spans_between_lost_steps() const {
    GrowingSpans spans(*this);
    for (std::int64_t index = oldest_; index < next_index_; ++index) {
        if (is_readable(index)) {
            const std::size_t env_id = records_.env_of(slot(index));
            spans.add(env_id, records_.position_of(slot(index), env_id), 1);
        }
    }
    return spans.finish();
}

}  // namespace framestow
