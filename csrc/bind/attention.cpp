// Converts and checks Python's arguments for the weights that attention drops. No computation here.
#include "bind/attention.h"

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "cpu/attention/attention.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

constexpr const char* kOp = "attention";

void kept(nb::handle out, nb::handle seeds, double dropout_p) {
  count_call();
  const OutputArgument written{kOp, "kept", out};
  const TensorArgument read{kOp, "seeds", seeds};
  check_attention_kept(written.view(), read.view(), dropout_p);
  const nb::gil_scoped_release release;
  attention_kept(written.view(), read.view(), dropout_p);
}

}  // namespace

void bind_attention(nb::module_& module) {
  module.def("attention_kept", &kept, "kept"_a, "seeds"_a, "dropout_p"_a,
             R"(Writes which weights attention keeps under dropout.

Key k of a query is dropped where word k % 4 of Philox's block k / 4, under the query's seed, is
below dropout_p * 2**32.

Args:
    kept: Array [b, h, t, s] of bool on the CPU, C-contiguous.
    seeds: [b, h, t] of int64, any strides.
    dropout_p: Probability, in (0, 1).

Raises:
    TypeError: An argument is no CPU array of its dtype.
    ValueError: Shapes, strides or the probability do not fit.)");
}

}  // namespace gt
