#!/bin/sh
# Builds the native tests with sanitizers and runs them. SANITIZE= (empty) builds them without, for compilers without
# sanitizer libraries.
set -eu
cd "$(dirname "$0")/.."
sanitizers=${SANITIZE-address,undefined}
programs="core_tests processor_tests screen_tests step_blocks_tests step_ring_tests sum_tree_tests thread_test"

native_tests/build.sh native_tests "$sanitizers" $programs
for program in $programs; do
    build/native_tests/native_tests/$program
done

# ThreadSanitizer excludes the others, so thread_test is built again. It needs the classic address layout,
# because newer kernels randomise addresses beyond its range.
if [ "$sanitizers" ]; then
    native_tests/build.sh native_thread_tests thread thread_test
    fixed_layout=
    setarch "$(uname -m)" -R true 2> /dev/null && fixed_layout="setarch $(uname -m) -R"
    $fixed_layout build/native_thread_tests/native_tests/thread_test
fi
