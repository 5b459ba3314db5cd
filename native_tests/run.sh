#!/bin/sh
# Builds the native tests with sanitizers and runs them. SANITIZE= (empty) builds them without, for compilers that
# come without their sanitizers' libraries.
set -eu
cd "$(dirname "$0")/.."
sanitizers=${SANITIZE-address,undefined}
cmake=cmake
[ -x .venv/bin/cmake ] && cmake=.venv/bin/cmake

# built FOLDER SANITIZERS TARGET...: builds the targets in build/FOLDER and shows the log only of what failed.
built() {
    build=build/$1 wanted=$2
    shift 2
    mkdir -p "$build"
    "$cmake" -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRAMESTOW_NATIVE_TESTS=ON -DFRAMESTOW_WERROR=ON \
        -DFRAMESTOW_SANITIZE="$wanted" > "$build/log" 2>&1 &&
        "$cmake" --build "$build" --parallel 2 --target "$@" >> "$build/log" 2>&1 || { cat "$build/log"; exit 1; }
}

has_thread_test=
[ -f native_tests/thread_test.cpp ] && has_thread_test=thread_test

built native_tests "$sanitizers" core_tests screen_tests step_blocks_tests step_ring_tests sum_tree_tests $has_thread_test
build/native_tests/native_tests/core_tests
build/native_tests/native_tests/screen_tests
build/native_tests/native_tests/step_blocks_tests
build/native_tests/native_tests/step_ring_tests
build/native_tests/native_tests/sum_tree_tests
[ ! "$has_thread_test" ] || build/native_tests/native_tests/thread_test

# ThreadSanitizer excludes the others, so what it watches is built once more. It wants the classic address layout,
# which newer kernels randomise further than it can follow.
if [ "$has_thread_test" ] && [ "$sanitizers" ]; then
    built native_thread_tests thread thread_test
    fixed_layout=
    setarch "$(uname -m)" -R true 2> /dev/null && fixed_layout="setarch $(uname -m) -R"
    $fixed_layout build/native_thread_tests/native_tests/thread_test
fi
