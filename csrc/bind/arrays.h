// Binds the array kernels into the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_arrays(nanobind::module_& module);

}  // namespace gt
