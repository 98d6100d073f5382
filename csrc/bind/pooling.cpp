// Converts Python's arguments for pooling. No computation here.
#include "bind/pooling.h"

#include <nanobind/stl/array.h>

#include <array>
#include <cstdint>

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "cpu/pooling/max_pool.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using Pair = std::array<std::int64_t, 2>;

void run(nb::handle out, nb::handle indices, nb::handle input, Pair size, Pair stride, Pair padding,
         Pair dilation, int threads) {
  count_call();
  const OutputArgument out_argument("max_pool", "out", out);
  const OutputArgument indices_argument("max_pool", "indices", indices);
  const TensorArgument input_argument("max_pool", "input", input);
  const MaxPoolCall call{out_argument.view(),
                         indices_argument.view(),
                         input_argument.view(),
                         {size[0], stride[0], padding[0], dilation[0]},
                         {size[1], stride[1], padding[1], dilation[1]},
                         threads};
  const nb::gil_scoped_release release;
  max_pool(call);
}

}  // namespace

void bind_pooling(nb::module_& module) {
  module.def("max_pool", &run, "out"_a, "indices"_a, "input"_a, "size"_a, "stride"_a, "padding"_a,
             "dilation"_a, "threads"_a = 1,
             R"(Writes the largest value of each window into out, and where it is into indices.

Of equal values the first one counts, and of NaN, which is above all others, the last.

Args:
    out: Array [..., oh, ow] of float32, like all contiguous and on the CPU.
    indices: The same shape, of int64: i * w + j in the picture.
    input: [..., h, w] of float32.
    size, stride, padding, dilation: Of the window, for rows and columns; what is beyond the
        picture does not count.
    threads: Threads to use at most, 1 to 256; changes no value.

Raises:
    TypeError: An argument is not a CPU array of such a dtype.
    ValueError: Shapes, strides, windows or threads do not fit.)");
}

}  // namespace gt
