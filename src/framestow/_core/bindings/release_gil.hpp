// A scope without the GIL, for calls of the core that run beside Python.
#pragma once

#include <Python.h>

namespace framestow {

// Gives the GIL away and takes it back at the end of the scope.
//
// While the interpreter ends, CPython up to 3.13 ends a daemon thread that asks for the GIL by pthread_exit. glibc
// unwinds the thread's stack for that, and the first noexcept function on it, here or in nanobind, aborts the process
// (python/cpython#87135). Such a thread stops here for ever instead, as CPython 3.14 stops it, and ends with the
// process.
class ReleaseGil {
public:
    ReleaseGil() : state_(PyEval_SaveThread()) {}
    ~ReleaseGil() noexcept(false);
    ReleaseGil(const ReleaseGil&) = delete;
    ReleaseGil& operator=(const ReleaseGil&) = delete;

private:
    PyThreadState* state_;
};

}  // namespace framestow
