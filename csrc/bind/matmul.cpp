// Converts and checks Python's arguments for matrix products. No computation here.
#include "bind/matmul.h"

#include <optional>
#include <stdexcept>
#include <string_view>

#include "bind/tensor_argument.h"
#include "core/calls.h"
#include "cpu/matmul/matmul.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

// A product below this size takes less time than releasing the interpreter's lock.
constexpr std::int64_t kQuick = 32LL * 32 * 32;

Activation activation_named(std::string_view name) {
  struct Row {
    std::string_view name;
    Activation activation;
  };
  constexpr Row kRows[] = {{"none", Activation::kNone}, {"relu", Activation::kRelu},
                           {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh},
                           {"silu", Activation::kSilu}, {"gate", Activation::kGate}};
  for (const Row& row : kRows) {
    if (row.name == name) {
      return row.activation;
    }
  }
  throw std::invalid_argument(
      message("matmul: activation '", name, "' is not none, relu, gelu, gelu_tanh, silu or gate"));
}

void run(nb::handle out, nb::handle a, nb::handle b, nb::handle bias, nb::handle residual,
         const char* activation, double scale, int threads) {
  count_call();
  const OutputArgument out_argument("matmul", "out", out);
  const TensorArgument a_argument("matmul", "a", a);
  const TensorArgument b_argument("matmul", "b", b);
  std::optional<TensorArgument> bias_argument, residual_argument;
  MatmulCall call{out_argument.view(), a_argument.view(), b_argument.view()};
  if (!bias.is_none()) {
    call.bias = &bias_argument.emplace("matmul", "bias", bias).view();
  }
  if (!residual.is_none()) {
    call.residual = &residual_argument.emplace("matmul", "residual", residual).view();
  }
  call.epilogue = {scale, activation_named(activation)};
  call.threads = threads;
  check_matmul(call);
  if (call.out.rank == 2 && call.out.size(0) * call.out.size(1) * call.a.size(1) < kQuick) {
    return matmul(call);
  }
  const nb::gil_scoped_release release;
  matmul(call);
}

}  // namespace

void bind_matmul(nb::module_& module) {
  module.def("matmul", &run, "out"_a, "a"_a, "b"_a, "bias"_a = nb::none(),
             "residual"_a = nb::none(), "activation"_a = "none", "scale"_a = 1.0, "threads"_a = 1,
             R"(Writes activation(scale * (a @ b) + bias) + residual into out.

Sums are in float32 (of bfloat16 too) or float64. The bits do not depend on threads.

Args:
    out: Array [..., m, n] on the CPU of float32, float64 or bfloat16 (numpy: its bits as uint16),
        its last dim contiguous; must not overlap the others, except that it may be residual.
    a: [..., m, k] of out's dtype, or one of float32 and bfloat16 where out has the other; any
        strides; leading dims of 1 or none broadcast.
    b: [..., k, n], likewise.
    bias: [n] of out's dtype, contiguous.
    residual: Like out.
    activation: "none", "relu", "gelu" (by the error function), "gelu_tanh" or "silu"; or "gate":
        nothing is added, and where residual is not above 0 (nor NaN) the result is 0.
    scale: Factor of the product.
    threads: Threads to use at most, 1 to 256.

Raises:
    TypeError: An argument is not a CPU array of such a dtype.
    ValueError: Shapes, strides, activation or threads do not fit.)");
}

}  // namespace gt
