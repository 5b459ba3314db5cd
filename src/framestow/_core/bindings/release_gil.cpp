#include "release_gil.hpp"

#include <chrono>
#include <thread>

namespace framestow {
namespace {

// Unwinding ends here: its destructor returns only after leave().
class EndOfUnwinding {
public:
    EndOfUnwinding() = default;
    ~EndOfUnwinding() {
        while (!has_left_) {
            std::this_thread::sleep_for(std::chrono::hours(1));
        }
    }
    EndOfUnwinding(const EndOfUnwinding&) = delete;
    EndOfUnwinding& operator=(const EndOfUnwinding&) = delete;

    void leave() { has_left_ = true; }

private:
    bool has_left_ = false;
};

}  // namespace

// Not noexcept, and in a file of its own: in a noexcept function, compilers leave out the destructors of unwinding.
ReleaseGil::~ReleaseGil() noexcept(false) {
    EndOfUnwinding end;
    PyEval_RestoreThread(state_);
    end.leave();
}

}  // namespace framestow
