#!/bin/sh
# Builds the Python module with AddressSanitizer and UndefinedBehaviourSanitizer and runs the tests of the packages that
# use it, or those that are named. Needs .venv with the test packages (make check).
#
#   native_tests/sanitized_module.sh [FILE OR FOLDER OF TESTS...]
#
# The sanitized framestow is installed in build/sanitized, an environment that takes every other package from .venv.
# The editable framestow in .venv is not changed. SANITIZE= (empty) skips everything.
set -eu
cd "$(dirname "$0")/.."
[ "${SANITIZE-address,undefined}" ] || exit 0
[ $# -gt 0 ] || set -- tests/core tests/frames tests/storage tests/replay
root=$PWD
environment=build/sanitized
library() { "${CXX:-g++}" -print-file-name="$1"; }

# Python itself is not sanitized, so the sanitizer libraries are loaded before it. So is libstdc++, whose throw they wrap.
preloaded="$(library libasan.so) $(library libubsan.so) $(library libstdc++.so)"
case "$preloaded" in
    */libasan.so*/libubsan.so*/libstdc++.so*) ;;
    *) echo "${CXX:-g++} has no shared libasan and libubsan: install them, name another GNU compiler with CXX=, or" \
           "go without with SANITIZE=" >&2
       exit 1 ;;
esac

.venv/bin/python -m venv --without-pip $environment
packages=$($environment/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Python searches the folders of a path file but ignores path files in them, so no editable install is imported.
.venv/bin/python -c 'import sys; print(*[path for path in sys.path if path.endswith("-packages")], sep="\n")' \
    > "$packages/shared_packages.pth"
native_tests/build.sh native_tests address,undefined _native
rm -rf "$packages/framestow"
cp -R src/framestow "$packages"
cp build/native_tests/_native.* "$packages/framestow/_core"

grep -q __asan_init "$packages"/framestow/_core/_native*  # verifies that it is the sanitized module

# Skipped: pure Python code over native calls that other tests make (loaders, samplers), tests of stored
# bytes only, and memory counted by the system, which includes the sanitizer's memory. The native tests check for leaks:
# CPython and NumPy release some memory only
# at exit.
LD_PRELOAD="$preloaded" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    "$environment/bin/python" -m pytest -q -m 'not slow' -p no:cacheprovider -p no:faulthandler -n 2 --dist worksteal \
    --hypothesis-profile=sanitized \
    --deselect tests/replay/test_memory_report.py::test_nbytes_is_within_two_percent_of_the_resident_memory \
    --deselect tests/replay/steps/test_slot_pages.py::test_a_large_ring_takes_only_the_memory_of_its_stored_steps \
    --ignore tests/storage/files --ignore tests/replay/store --ignore tests/replay/test_interrupted_calls.py \
    --ignore tests/replay/eviction/test_budget.py --ignore tests/storage/test_incompressible_frames.py \
    --ignore tests/replay/test_label_inspection.py --ignore tests/replay/episodes/test_stored_episodes.py \
    --ignore tests/replay/sampling \
    --ignore tests/replay/samplers/test_samplers.py --ignore tests/replay/samplers/test_samplers_of_the_docs.py \
    --ignore tests/replay/samplers/test_mixture.py --ignore tests/replay/samplers/test_by_age.py \
    --ignore tests/replay/test_hindsight.py \
    --deselect tests/replay/samplers/test_prioritized.py::test_tensors_of_the_cpu_are_taken_and_one_with_a_gradient_says_what_to_do \
    --deselect 'tests/replay/test_memory_against_the_oracle.py::test_every_sampleable_transition_is_what_was_acted_on_after_any_operations[raw]' \
    "$@"
