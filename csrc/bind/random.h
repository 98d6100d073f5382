// Python functions for random numbers.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_random(nanobind::module_& module);

}  // namespace gt
