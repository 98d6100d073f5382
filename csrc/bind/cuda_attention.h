// Attention's CUDA kernels for Python.
#pragma once

#include <nanobind/nanobind.h>

#include "cuda/host/launcher.h"

namespace gt {

void bind_cuda_attention(nanobind::class_<cuda::Launcher>& cuda);

}  // namespace gt
