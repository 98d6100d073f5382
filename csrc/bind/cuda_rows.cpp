// The CUDA kernels of rows for Python: addresses and sizes in, launches queued. No computation
// here. gt/worker/cuda_rows.py says which tensors are taken.
#include "bind/cuda_rows.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <string>
#include <tuple>

#include "bind/cuda.h"
#include "cuda/host/row_calls.h"

namespace nb = nanobind;
using nb::literals::operator""_a;

namespace gt {
namespace {

using cuda::Address;
using cuda::Launcher;
using cuda::Rows;

using Sizes = std::tuple<std::int64_t, std::int64_t>;
using Norm = std::tuple<Address, Address, Address, Address, Address, Address>;
using Operands = std::tuple<Address, Address, Address, Address>;
using Pair = std::tuple<Address, Address>;

Rows rows_of(const std::string& dtype, const Sizes& sizes, std::uintptr_t stream) {
  return {cuda_element(dtype), std::get<0>(sizes), std::get<1>(sizes), stream};
}

// A method around run.
auto norm(void (*run)(Launcher&, const cuda::NormOperands&, const Rows&, float)) {
  return [run](Launcher& launcher, const std::string& dtype, const Sizes& sizes,
               const Norm& operands, float eps, std::uintptr_t stream) {
    const auto& [x, residual, weight, bias, total, out] = operands;
    run(launcher, {x, residual, weight, bias, total, out}, rows_of(dtype, sizes, stream), eps);
  };
}

}  // namespace

void bind_cuda_rows(nb::class_<Launcher>& cuda) {
  cuda.def(
      "cross_entropy",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Operands& operands,
         float scale, std::uintptr_t stream) {
        const auto& [logits, targets, loss, gradient] = operands;
        cuda::cross_entropy(launcher, logits, targets, loss, gradient,
                            rows_of(dtype, sizes, stream), scale);
      },
      "dtype"_a, "sizes"_a, "operands"_a, "scale"_a, "stream"_a,
      R"(Each row's loss, in float32, and, where gradient is not 0, its gradient times scale.

Args:
    sizes: Rows and columns.
    operands: Addresses of logits, targets, loss and gradient. A negative target gives 0.)");
  cuda.def("rms_norm", norm(&cuda::rms_norm), "dtype"_a, "sizes"_a, "operands"_a, "eps"_a,
           "stream"_a,
           R"(RMSNorm of x + residual, which goes into total.

Args:
    sizes: Rows and columns.
    operands: Addresses of x, residual, weight, bias, total and out; residual, bias and total may
        be 0.)");
  cuda.def("layer_norm", norm(&cuda::layer_norm), "dtype"_a, "sizes"_a, "operands"_a, "eps"_a,
           "stream"_a, "LayerNorm, with the arguments of rms_norm.");
  cuda.def_static("norm_blocks", &cuda::norm_blocks, "rows"_a,
                  "Rows of the working memory of norm_backward.");
  cuda.def(
      "norm_backward",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Operands& operands,
         Address grad_x, const Pair& sums, const Pair& gradients, float eps,
         std::uintptr_t stream) {
        const auto& [total, weight, grad, grad_total] = operands;
        const auto& [weight_sums, bias_sums] = sums;
        const auto& [grad_weight, grad_bias] = gradients;
        cuda::norm_backward(launcher,
                            {total, weight, grad, grad_total, grad_x, weight_sums, bias_sums,
                             grad_weight, grad_bias},
                            rows_of(dtype, sizes, stream), eps);
      },
      "dtype"_a, "sizes"_a, "operands"_a, "grad_x"_a, "sums"_a, "gradients"_a, "eps"_a, "stream"_a,
      R"(Gradients of a norm: of x (and residual alike), weight and bias.

Args:
    sizes: Rows and columns.
    operands: Addresses of what was normalized, weight, the output's gradient, and the gradient of
        what was normalized from elsewhere, or 0.
    sums: Working memory for weight and bias, float32 [norm_blocks(rows), columns] each.
    gradients: Of weight and bias. Those of bias are 0 for RMSNorm.)");
}

}  // namespace gt
