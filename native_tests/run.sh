#!/bin/sh
# Builds the native tests with sanitizers and runs them. SANITIZE= (empty) builds them without, for compilers without
# sanitizer libraries.
#
#   native_tests/run.sh          what `make test` runs
#   native_tests/run.sh --all    also the portable code beside this processor's, and threads under ThreadSanitizer: both
#                                compile the core a second time
set -eu
cd "$(dirname "$0")/.."
sanitizers=${SANITIZE-address,undefined}
programs="core_tests screen_tests step_blocks_tests step_ring_tests sum_tree_tests thread_test"
[ "${1:-}" = --all ] && all=yes programs="$programs processor_tests" || all=

native_tests/build.sh native_tests "$sanitizers" $programs
for program in $programs; do
    build/native_tests/native_tests/$program
done

# ThreadSanitizer excludes the others, so thread_test is built again. It needs the classic address layout,
# because newer kernels randomise addresses beyond its range.
if [ "$all" ] && [ "$sanitizers" ]; then
    native_tests/build.sh native_thread_tests thread thread_test
    fixed_layout=
    setarch "$(uname -m)" -R true 2> /dev/null && fixed_layout="setarch $(uname -m) -R"
    $fixed_layout build/native_thread_tests/native_tests/thread_test
fi
