// Collectives over CUDA IPC for Python.
#pragma once

#include <nanobind/nanobind.h>

#include "cuda/host/launcher.h"

namespace gt {

void bind_cuda_collectives(nanobind::class_<cuda::Launcher>& cuda);

}  // namespace gt
