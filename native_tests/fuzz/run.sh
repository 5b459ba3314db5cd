#!/bin/sh
# Fuzzes the packed format: arbitrary bytes into the decoder, arbitrary frames through the streams and back.
#
#   native_tests/fuzz/run.sh [SECONDS]          replay corpus and regressions, then mutate (default 20 s; `make test` uses 3)
#   native_tests/fuzz/run.sh --renew [SECONDS]  renew corpus.tar.xz from seeds, the old corpus and new inputs
#
# Both harnesses run at the same time, under AddressSanitizer and UndefinedBehaviourSanitizer. libFuzzer drives them if a
# clang has it. Otherwise, and with DRIVER=standalone, standalone_driver.cpp does, linked with the native tests' objects.
# CXX names the compiler, SANITIZE the sanitizers.
set -eu
cd "$(dirname "$0")/../.."
[ "${1:-}" = --renew ] && { renews=yes; shift; } || renews=
seconds=${1:-20}
sanitizers=${SANITIZE-address,undefined}
here=native_tests/fuzz
build=build/fuzz
max_bytes=4096
harnesses="any_segment round_trip"
export ASAN_OPTIONS=quarantine_size_mb=32

cmake=cmake
[ -x .venv/bin/cmake ] && cmake=$PWD/.venv/bin/cmake
mkdir -p $build

has_libfuzzer() {
    command -v "$1" > /dev/null || return 1
    echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' > $build/probe.cpp
    "$1" -fsanitize=fuzzer $build/probe.cpp -o $build/probe > /dev/null 2>&1
}

driver=${DRIVER:-libfuzzer}
if [ $driver = libfuzzer ]; then
    driver=standalone
    for candidate in ${CXX:-clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14}; do
        has_libfuzzer "$candidate" && driver=libfuzzer CXX=$candidate && break
    done
fi
if [ $driver = standalone ] && [ $renews ]; then
    echo "only libFuzzer can renew the corpus: install clang and its runtime library, or name a compiler with CXX=" >&2
    exit 1
fi

programs="any_segment round_trip write_seeds"
if [ $driver = standalone ]; then
    native_tests/build.sh native_tests "$sanitizers" $programs
    binaries=build/native_tests/native_tests/fuzz
else
    {
        "$cmake" -S . -B $build/libfuzzer -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRAMESTOW_NATIVE_TESTS=ON \
            -DFRAMESTOW_WERROR=ON -DFRAMESTOW_MODULE=OFF -DFRAMESTOW_SANITIZE="$sanitizers" \
            -DCMAKE_CXX_COMPILER="$CXX" -DFRAMESTOW_LIBFUZZER=ON &&
            "$cmake" --build $build/libfuzzer --parallel 2 --target $programs
    } > $build/log 2>&1 || { cat $build/log; exit 1; }
    binaries=$build/libfuzzer/native_tests/fuzz
fi

# fuzz HARNESS: inputs that reach new code go to $build/found, inputs that fail a check to $build/findings.
fuzz() {
    harness=$1
    mkdir -p $build/found/$harness $build/findings
    set --
    for folder in $build/corpus/$harness $here/regressions/$harness $build/seeds/$harness; do
        [ -d $folder ] && set -- "$@" $folder
    done
    if [ $driver = standalone ]; then
        $binaries/$harness "$seconds" $build/findings/$harness "$@"
    else
        $binaries/$harness -seed=1 -max_total_time="$seconds" -max_len=$max_bytes -timeout=20 -print_final_stats=1 \
            -artifact_prefix=$build/findings/$harness- $build/found/$harness "$@"
    fi > $build/$harness.log 2>&1 || {
        tail -n 60 $build/$harness.log
        echo "$harness: FOUND something; the input is in $build/findings. Fix it, and add the input to" \
            "$here/regressions/$harness, named by what went wrong."
        return 1
    }
    if [ $driver = standalone ]; then
        echo "$harness, without libFuzzer, $seconds s: $(tail -n 1 $build/$harness.log)"
    else
        coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' $build/$harness.log | tail -n 1)
        runs=$(sed -n 's/^stat::number_of_executed_units: //p' $build/$harness.log)
        echo "$harness, libFuzzer, $seconds s: $runs inputs, $coverage places of the code reached, nothing found"
    fi
}

rm -rf $build/corpus $build/seeds
mkdir -p $build/corpus
(cd $build/corpus && "$cmake" -E tar xJf ../../../$here/corpus.tar.xz)  # CMake reads .xz everywhere
$binaries/write_seeds $build/seeds
fuzz any_segment &
first=$!
fuzz round_trip && status=0 || status=1
wait $first || status=1
[ $status = 0 ] && [ $renews ] || exit $status

for harness in $harnesses; do
    merged=$build/merged/$harness
    rm -rf $merged
    mkdir -p $merged
    $binaries/$harness -merge=1 -max_len=$max_bytes $merged $build/corpus/$harness $build/found/$harness \
        $build/seeds/$harness > $build/merge.log 2>&1 || { tail -n 40 $build/merge.log; exit 1; }
    echo "$harness: $(ls $merged | wc -l) inputs"
done
# The same inputs give the same bytes: sorted names, no times, no owners. This needs GNU tar and xz.
tar --create --file=$build/corpus.tar --directory=$build/merged --format=ustar --sort=name --mtime=@0 \
    --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX $harnesses
xz -9e --threads=1 --force $build/corpus.tar
mv $build/corpus.tar.xz $here/corpus.tar.xz
echo "$here/corpus.tar.xz: $(wc -c < $here/corpus.tar.xz) bytes"
