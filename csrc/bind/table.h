// Binds the kernel table.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_table(nanobind::module_& module);

}  // namespace gt
