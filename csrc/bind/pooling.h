// Python functions for pooling.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_pooling(nanobind::module_& module);

}  // namespace gt
