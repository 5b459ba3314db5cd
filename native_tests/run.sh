#!/bin/sh
# Builds the native tests with sanitizers and runs them: native_tests/run.sh [seconds of fuzzing, default 10].
set -eu
cd "$(dirname "$0")/.."
cmake=cmake
[ -x .venv/bin/cmake ] && cmake=.venv/bin/cmake
build=build/native_tests
mkdir -p "$build"
quietly() { "$@" > "$build/log" 2>&1 || { cat "$build/log"; exit 1; }; }
quietly "$cmake" -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRAMESTOW_NATIVE_TESTS=ON -DFRAMESTOW_WERROR=ON
quietly "$cmake" --build "$build" --parallel 2
"$build/native_tests/core_tests"
"$build/native_tests/decoder_fuzzer" "${1:-10}"
