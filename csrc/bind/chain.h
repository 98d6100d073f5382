// Binds chains of elementwise operators into the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_chain(nanobind::module_& module);

}  // namespace gt
