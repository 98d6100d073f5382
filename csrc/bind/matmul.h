// Python functions for matrix products.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_matmul(nanobind::module_& module);

}  // namespace gt
