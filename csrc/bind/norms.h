// Binds RMS norm and batch norm into the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_norms(nanobind::module_& module);

}  // namespace gt
