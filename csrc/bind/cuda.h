// CUDA kernels for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_cuda(nanobind::module_& module);

}  // namespace gt
