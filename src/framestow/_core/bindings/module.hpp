// The functions that fill the module; module.cpp calls them in order.
#pragma once

#include <nanobind/nanobind.h>

namespace framestow {

void bind_errors();
void bind_segments(nanobind::module_& module);
void bind_frame_store(nanobind::module_& module);
void bind_draws(nanobind::module_& module);
void bind_output_pool(nanobind::module_& module);
void bind_palette_screen(nanobind::module_& module);
void bind_pixel_floats(nanobind::module_& module);
void bind_priorities(nanobind::module_& module);
void bind_steps(nanobind::module_& module);
void bind_core(nanobind::module_& module);
void bind_join_frames(nanobind::module_& module);

}  // namespace framestow
