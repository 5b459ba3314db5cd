# CMAKE_TOOLCHAIN_FILE of native_tests/build.sh for Linux on arm64. Debian: g++-aarch64-linux-gnu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)  # so that an emulator needs no libraries of arm64
