// The CUDA kernels of rows for Python: addresses and sizes in, launches queued. No computation
// here. gt/worker/cuda/rows.py says which tensors are taken.
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
using Losses = std::tuple<Address, Address, Address, Address, Address>;
using Pair = std::tuple<Address, Address>;

Rows rows_of(const std::string& dtype, const Sizes& sizes, std::uintptr_t stream) {
  return {cuda_element(dtype), std::get<0>(sizes), std::get<1>(sizes), stream};
}

// Makes the Python method of `run`.
auto norm(void (*run)(Launcher&, const cuda::NormOperands&, const Rows&, float)) {
  return [run](Launcher& launcher, const std::string& dtype, const Sizes& sizes,
               const Norm& operands, const Pair& moments, float eps, std::uintptr_t stream) {
    const auto& [x, residual, weight, bias, total, out] = operands;
    const auto& [mean, rstd] = moments;
    run(launcher, {x, residual, weight, bias, total, out, mean, rstd},
        rows_of(dtype, sizes, stream), eps);
  };
}

}  // namespace

void bind_cuda_rows(nb::class_<Launcher>& cuda) {
  cuda.def(
      "cross_entropy",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Losses& operands,
         std::int64_t ignored, float scale, std::uintptr_t stream) {
        const auto& [logits, targets, loss, gradient, log_probs] = operands;
        cuda::cross_entropy(launcher, {logits, targets, loss, gradient, log_probs},
                            rows_of(dtype, sizes, stream), ignored, scale);
      },
      "dtype"_a, "sizes"_a, "operands"_a, "ignored"_a, "scale"_a, "stream"_a,
      R"(Each row's loss, in float32; its gradient times scale, and log-softmax, unless they are 0.

Args:
    sizes: Rows and columns.
    operands: Addresses of logits, targets, loss, gradient and log-softmax. The target `ignored`
        gives 0; another that is no column ends the launch with an error.)");
  cuda.def(
      "cross_entropy_backward",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Losses& operands,
         std::int64_t ignored, std::int64_t grad_step, std::uintptr_t stream) {
        const auto& [log_probs, targets, grad, total, gradient] = operands;
        cuda::cross_entropy_backward(launcher, {log_probs, targets, grad, total, gradient},
                                     rows_of(dtype, sizes, stream), ignored, grad_step);
      },
      "dtype"_a, "sizes"_a, "operands"_a, "ignored"_a, "grad_step"_a, "stream"_a,
      R"(The gradient of cross-entropy with regard to the logits, from their log-softmax.

Args:
    sizes: Rows and columns.
    operands: Addresses of log-softmax, targets, the losses' gradient, what it is divided by, or 0,
        and the result.
    grad_step: Elements from one row's gradient to the next: 0 where one is for all.)");
  cuda.def("rms_norm", norm(&cuda::rms_norm), "dtype"_a, "sizes"_a, "operands"_a, "moments"_a,
           "eps"_a, "stream"_a,
           R"(RMSNorm of x + residual, which goes into total.

Args:
    sizes: Rows and columns.
    operands: Addresses of x, residual, weight, bias, total and out; all but x and out may be 0.
    moments: Addresses of each row's mean and 1 / sqrt(variance + eps), of float32, or 0.)");
  cuda.def("layer_norm", norm(&cuda::layer_norm), "dtype"_a, "sizes"_a, "operands"_a, "moments"_a,
           "eps"_a, "stream"_a, "LayerNorm, with the arguments of rms_norm.");
  cuda.def_static("norm_blocks", &cuda::norm_blocks, "rows"_a,
                  "Rows of the working memory of norm_backward.");
  cuda.def(
      "norm_backward",
      [](Launcher& launcher, const std::string& dtype, const Sizes& sizes, const Operands& operands,
         const Pair& moments, Address grad_x, const Pair& sums, const Pair& gradients, float eps,
         std::uintptr_t stream) {
        const auto& [total, weight, grad, grad_total] = operands;
        const auto& [mean, rstd] = moments;
        const auto& [weight_sums, bias_sums] = sums;
        const auto& [grad_weight, grad_bias] = gradients;
        cuda::norm_backward(launcher,
                            {total, mean, rstd, weight, grad, grad_total, grad_x, weight_sums,
                             bias_sums, grad_weight, grad_bias},
                            rows_of(dtype, sizes, stream), eps);
      },
      "dtype"_a, "sizes"_a, "operands"_a, "moments"_a, "grad_x"_a, "sums"_a, "gradients"_a, "eps"_a,
      "stream"_a,
      R"(Gradients of a norm: of x (and residual alike), weight and bias.

Args:
    sizes: Rows and columns.
    operands: Addresses of what was normalized, weight, the output's gradient, and the gradient of
        what was normalized from elsewhere, or 0; that of weight may be 0.
    moments: Addresses of mean and rstd as the norm has given them; where they are 0, eps says what
        they were.
    sums: Working memory for weight and bias, float32 [norm_blocks(rows), columns] each.
    gradients: Of weight and bias. Those of bias are 0 for RMSNorm.)");
}

}  // namespace gt
