// The Python module gt._kernels: one bind_ function for each theme. No computation here.
#include <nanobind/nanobind.h>

#include "bind/arrays.h"
#include "bind/attention.h"
#include "bind/chain.h"
#include "bind/convolution.h"
#include "bind/cuda.h"
#include "bind/matmul.h"
#include "bind/pooling.h"
#include "bind/random.h"
#include "bind/table.h"
#include "core/calls.h"

NB_MODULE(_kernels, module) {
  module.doc() =
      "GT's own kernels: random numbers, matrix products, attention, recurrent layers,\n"
      "convolutions, pools, and loops over arrays of float32.";
  module.def(
      "calls", [] { return gt::kernel_calls.load(std::memory_order_relaxed); },
      "How many of these kernels have run in this process, those called from C++ among them.");
  gt::bind_arrays(module);
  gt::bind_chain(module);
  gt::bind_random(module);
  gt::bind_matmul(module);
  gt::bind_attention(module);
  gt::bind_convolution(module);
  gt::bind_cuda(module);
  gt::bind_pooling(module);
  gt::bind_table(module);
}
