// What a forked child must find whole: objects whose locks other threads hold for microseconds.
//
// A child has none of its parent's other threads. A lock that one of them holds at the fork stays locked there for
// ever, and what it guards may be half changed. So a fork takes the locks first, and gives them back on both sides. It
// waits for at most a second: the memory's own lock (replay/forked_locks.py) is taken before, so no thread holds these
// for longer than a read or a write of a frame.
#pragma once

#include <cstddef>

namespace framestow {

// Base class of these objects. Construct and destroy them while no other thread uses them. No function takes a lock
// that the object's users hold while they create or destroy another one.
class HeldByForks {
public:
    // Takes the object's locks, or none if that would take longer than a few microseconds.
    virtual bool try_to_hold() = 0;

    // Gives them back if `is_held`; replaces them in the child.
    virtual void give_back(bool is_child, bool is_held) = 0;

protected:
    HeldByForks();
    ~HeldByForks();
    HeldByForks(const HeldByForks&) = delete;
    HeldByForks& operator=(const HeldByForks&) = delete;

private:
    friend class Forks;
    bool is_held_ = false;  // by a fork in progress
};

}  // namespace framestow
