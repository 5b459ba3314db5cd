// The Python face of the core. The files of this folder are the only ones that include nanobind.
#include "parts.hpp"

namespace {

constexpr int kAbiVersion = 10;  // raised with every change of the Python face; _core/__init__.py expects it

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Packs, unpacks and gathers frames, keeps steps, shrinks screens; typed in _native.pyi.";
    module.attr("ABI_VERSION") = kAbiVersion;
    framestow::bind_errors();
    framestow::bind_segments(module);
    framestow::bind_packed_streams(module);
    framestow::bind_frame_stacks(module);
    framestow::bind_step_ring(module);
    framestow::bind_step_blocks(module);
    framestow::bind_draws(module);
    framestow::bind_priorities(module);
    framestow::bind_palette_screen(module);
}
