#!/bin/sh
# native_tests/build.sh FOLDER SANITIZERS TARGET...: builds the targets in build/FOLDER and prints the log only on
# failure. The target _native is the Python module and needs .venv with nanobind; the others need no Python.
set -eu
cd "$(dirname "$0")/.."
build=build/$1 sanitizers=$2
shift 2
command -v g++ > /dev/null && export CXX="${CXX:-g++}"  # one compiler for module and tests, which share object files
cmake=cmake
[ -x .venv/bin/cmake ] && cmake=$PWD/.venv/bin/cmake

module=-DFRAMESTOW_MODULE=OFF
case " $* " in
    *" _native "*)
        # As scikit-build-core asks for it: the stable ABI from Python 3.12 on.
        module=$(.venv/bin/python -c 'import sys, nanobind; print(
            "-DFRAMESTOW_MODULE=ON", "-DPython_EXECUTABLE=" + sys.executable, "-Dnanobind_DIR=" + nanobind.cmake_dir(),
            "-DSKBUILD_SABI_COMPONENT=" + ("Development.SABIModule" if sys.version_info >= (3, 12) else ""),
            sep="\n")') ;;
esac
mkdir -p "$build"
(
    IFS='
'  # paths may hold spaces
    "$cmake" -S . -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFRAMESTOW_NATIVE_TESTS=ON -DFRAMESTOW_WERROR=ON \
        -DFRAMESTOW_SANITIZE="$sanitizers" $module > "$build/log" 2>&1 &&
        "$cmake" --build "$build" --parallel "${JOBS:-2}" --target "$@" >> "$build/log" 2>&1
) || { cat "$build/log"; exit 1; }
