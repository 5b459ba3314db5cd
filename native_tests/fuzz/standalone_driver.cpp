// Runs a harness without libFuzzer: replays files, then mutates them for a limited time.
//
//  HARNESS SECONDS FINDING FOLDER...     files of the folders in order of their names, then mutations, fixed seed
//
// Unlike libFuzzer it does not measure coverage. An input that fails a check or does not end is written to the file
// FINDING.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* input, std::size_t size, std::size_t max_size,
                                               unsigned seed);

// Sanitizer findings raise SIGABRT like failed checks, so one handler sees both.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kMaxBytes = 4096;       // per input
constexpr std::chrono::seconds kLongest(20);  // per input; usual inputs take milliseconds

std::mt19937 random_numbers(20240229);
Bytes current_input;
const char* finding_path = nullptr;
std::atomic<std::size_t> num_begun{0};

std::size_t random_below(std::size_t end) { return random_numbers() % end; }

void keep_current_input(int signal) {
    if (std::FILE* file = std::fopen(finding_path, "wb")) {
        std::fwrite(current_input.data(), 1, current_input.size(), file);
        std::fclose(file);
    }
    std::signal(signal, SIG_DFL);
    std::raise(signal);
}

void run(Bytes input) {
    current_input = std::move(input);
    ++num_begun;
    LLVMFuzzerTestOneInput(current_input.data(), current_input.size());
}

[[noreturn]] void watch_for_an_endless_input() {
    for (;;) {
        const std::size_t number = num_begun;
        std::this_thread::sleep_for(kLongest);
        if (number > 0 && number == num_begun) {
            std::fputs("an input did not end\n", stderr);
            std::abort();
        }
    }
}

std::vector<Bytes> read_files(int num_folders, char** folders) {
    std::vector<std::filesystem::path> paths;
    for (int index = 0; index < num_folders; ++index) {
        if (std::filesystem::is_directory(folders[index])) {
            for (const auto& entry : std::filesystem::directory_iterator(folders[index])) {
                paths.push_back(entry.path());
            }
        }
    }
    std::sort(paths.begin(), paths.end());
    std::vector<Bytes> inputs;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return inputs;
}

Bytes mutated(const Bytes& input) {
    Bytes bytes = input;
    std::size_t size = std::min(bytes.size(), kMaxBytes);
    bytes.resize(kMaxBytes);
    for (std::size_t left = 1 + random_below(4); left > 0; --left) {
        size = LLVMFuzzerCustomMutator(bytes.data(), size, kMaxBytes, static_cast<unsigned>(random_numbers()));
    }
    bytes.resize(size);
    return bytes;
}

}  // namespace

// Changes any bytes; called by the harnesses.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t max_size) {
    if (size == 0 || (random_below(6) == 0 && size < max_size)) {  // insert a byte
        const std::size_t place = random_below(size + 1);
        std::memmove(bytes + place + 1, bytes + place, size - place);
        bytes[place] = static_cast<std::uint8_t>(random_numbers());
        return size + 1;
    }
    const std::size_t place = random_below(size);
    switch (random_below(5)) {
        case 0:  // remove a byte
            std::memmove(bytes + place, bytes + place + 1, size - place - 1);
            return size - 1;
        case 1:
            return random_below(4) == 0 ? 1 + place : size;
        case 2:
            bytes[place] = static_cast<std::uint8_t>(bytes[place] ^ (1U << random_below(8)));
            return size;
        case 3: {  // copy a few bytes from another place
            const std::size_t source = random_below(size);
            std::memmove(bytes + place, bytes + source, std::min({size - place, size - source, 1 + random_below(16)}));
            return size;
        }
        default:
            bytes[place] = static_cast<std::uint8_t>(random_numbers());
            return size;
    }
}

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fputs("wanted: SECONDS FINDING FOLDER...\n", stderr);
        return 2;
    }
    finding_path = argv[2];
    std::signal(SIGABRT, keep_current_input);
    const std::vector<Bytes> inputs = read_files(argc - 3, argv + 3);
    if (inputs.empty()) {
        std::fputs("no file in the folders: nothing to replay or to mutate\n", stderr);
        return 2;
    }
    std::thread(watch_for_an_endless_input).detach();
    for (const Bytes& input : inputs) {
        run(input);
    }
    std::size_t num_mutated = 0;
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < std::atof(argv[1])) {
        run(mutated(inputs[random_below(inputs.size())]));
        ++num_mutated;
    }
    std::printf("%zu inputs replayed, %zu mutations of them tried, nothing found\n", inputs.size(), num_mutated);
    return 0;
}
