// Binds what is computed along one dimension into the module.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_dims(nanobind::module_& module);

}  // namespace gt
