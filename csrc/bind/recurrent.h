// Python functions for recurrent layers.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_recurrent(nanobind::module_& module);

}  // namespace gt
