// Binds gathers, scatters and copies of arrays with permuted dims.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_places(nanobind::module_& module);

}  // namespace gt
