// Python functions for attention.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_attention(nanobind::module_& module);

}  // namespace gt
