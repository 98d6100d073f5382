// CUDA kernels for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "core/element.h"

namespace gt {

// Element of a dtype's name. Throws DtypeError.
Element cuda_element(const std::string& name);

void bind_cuda(nanobind::module_& module);

}  // namespace gt
