// Binds the reductions of arrays into the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_reductions(nanobind::module_& module);

}  // namespace gt
