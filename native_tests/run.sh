#!/bin/sh
# Builds the native tests with sanitizers and runs them: native_tests/run.sh [seconds of fuzzing, default 10].
set -eu
cd "$(dirname "$0")/.."
cmake=cmake
[ -x .venv/bin/cmake ] && cmake=.venv/bin/cmake
"$cmake" -S . -B build/native_tests -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRAMESTOW_NATIVE_TESTS=ON -DFRAMESTOW_WERROR=ON \
    > build-native-tests.log 2>&1 || { cat build-native-tests.log; rm -f build-native-tests.log; exit 1; }
rm -f build-native-tests.log
"$cmake" --build build/native_tests --parallel 2 | grep -v '^\[' || true
build/native_tests/native_tests/core_tests
build/native_tests/native_tests/decoder_fuzzer "${1:-10}"
