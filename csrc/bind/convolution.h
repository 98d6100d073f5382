// Binds the kernels of convolutions and of mean pooling.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_convolution(nanobind::module_& module);

}  // namespace gt
