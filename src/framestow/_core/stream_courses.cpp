#include "stream_courses.hpp"

namespace framestow {

bool StreamCourses::may_append(const std::int32_t* streams, std::size_t count) {
    ++num_checks_;
    for (std::size_t row = 0; row < count; ++row) {
        const auto stream = static_cast<std::size_t>(streams[row]);
        if (streams[row] < 0 || stream >= memory_.num_streams || !memory_.is_open[stream] ||
            named_in_[stream] == num_checks_) {
            return false;
        }
        named_in_[stream] = num_checks_;
    }
    return true;
}

}  // namespace framestow
