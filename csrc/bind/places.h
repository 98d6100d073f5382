// Binds what reads and writes arrays where an index says, and copies in another order.
#pragma once

#include <nanobind/nanobind.h>

namespace gt {

void bind_places(nanobind::module_& module);

}  // namespace gt
