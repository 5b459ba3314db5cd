# CMAKE_TOOLCHAIN_FILE of native_tests/build.sh for Windows on x86-64. Debian: g++-mingw-w64-x86-64, in its posix variant.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)  # so that Wine needs no libraries of MinGW
