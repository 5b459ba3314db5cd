// Who reads since when: what was let go before may be freed once everybody who could see it has left.
//
// Time is counted in retirements. A reading that starts gets the number of the next one; what is retired with a number
// below every ticket that is out is seen by nobody. Thread-safe; calls take a mutex for some nanoseconds, and only
// wait_until_unseen() waits for others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace framestow {

class ReadingLedger {
public:
    using Ticket = std::uint64_t;

    Ticket start();
    void stop(Ticket ticket);

    // The number of what is retired now: readings that started before hold this ticket or a lower one.
    Ticket retire();

    // Whatever was retired with a number below this is seen by nobody.
    Ticket oldest() const;

    // Returns when every reading that holds `number` or a lower ticket has stopped.
    void wait_until_unseen(Ticket number);

private:
    Ticket oldest_locked() const;

    mutable std::mutex mutex_;
    std::condition_variable one_stopped_;
    std::vector<Ticket> out_;  // as many as there are readers at once: a handful
    Ticket next_ = 0;
    std::size_t num_waiting_ = 0;
};

}  // namespace framestow
