// The Python module gt._kernels: one bind_ function for each theme. No computation here.
#include <nanobind/nanobind.h>

#include "bind/matmul.h"
#include "bind/random.h"

NB_MODULE(_kernels, module) {
  module.doc() = "GT's own kernels: random numbers, matrix products.";
  gt::bind_random(module);
  gt::bind_matmul(module);
}
