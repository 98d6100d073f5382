// Functions of each element of float32 arrays, and their gradients: which calls the kernels take.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "cpu/array_path.h"
#include "table/kernel.h"

namespace gt {
namespace {

// A function of one operand, whose loop is `compute`.
struct FunctionCall {
  explicit FunctionCall(Arguments& from) : self(from.tensor()) {}

  bool is_valid() const { return is_row_major(self); }
  bool pays() const { return true; }

  bool compute(Unary kind, Results& results) const {
    array_path().unary[static_cast<std::size_t>(kind)](floats(self), results.floats(sizes_of(self)),
                                                       count_of(self));
    return true;
  }

  TensorView self;
};

// The gradient of a function, of the result's and what the forward pass has kept.
struct GradientCall {
  explicit GradientCall(Arguments& from) : grad(from.tensor()), kept(from.tensor()) {}

  bool is_valid() const {
    return is_row_major(grad) && is_row_major(kept) &&
           std::ranges::equal(sizes_of(grad), sizes_of(kept));
  }
  bool pays() const { return true; }

  bool compute(UnaryBackward kind, Results& results) const {
    array_path().unary_backward[static_cast<std::size_t>(kind)](
        floats(grad), floats(kept), results.floats(sizes_of(grad)), count_of(grad));
    return true;
  }

  TensorView grad, kept;
};

template <Unary kKind>
struct PlainFunction : FunctionCall {
  using FunctionCall::FunctionCall;

  bool run(Results& results) const { return compute(kKind, results); }
};

template <UnaryBackward kKind>
struct PlainGradient : GradientCall {
  using GradientCall::GradientCall;

  bool run(Results& results) const { return compute(kKind, results); }
};

// Behind the operands of gelu and its gradient: "none" or "tanh".
struct Gelu : FunctionCall {
  explicit Gelu(Arguments& from)
      : FunctionCall(from),
        kind(from.optional_text() == "tanh" ? Unary::kGeluTanh : Unary::kGelu) {}

  bool run(Results& results) const { return compute(kind, results); }

  Unary kind;
};

struct GeluGradient : GradientCall {
  explicit GeluGradient(Arguments& from)
      : GradientCall(from),
        kind(from.optional_text() == "tanh" ? UnaryBackward::kGeluTanh : UnaryBackward::kGelu) {}

  bool run(Results& results) const { return compute(kind, results); }

  UnaryBackward kind;
};

// Behind the operands: numbers that the loop takes between them and its result.
template <std::size_t kCount>
std::array<float, kCount> numbers(Arguments& from) {
  std::array<float, kCount> numbers;
  std::generate(numbers.begin(), numbers.end(),
                [&from] { return static_cast<float>(from.number()); });
  return numbers;
}

template <auto kLoop, std::size_t kNumbers>
struct FunctionOfNumbers : FunctionCall {
  explicit FunctionOfNumbers(Arguments& from) : FunctionCall(from), rest(numbers<kNumbers>(from)) {}

  bool run(Results& results) const {
    float* out = results.floats(sizes_of(self));
    std::apply(
        [&](auto... one) { (array_path().*kLoop)(floats(self), one..., out, count_of(self)); },
        rest);
    return true;
  }

  std::array<float, kNumbers> rest;
};

template <auto kLoop, std::size_t kNumbers>
struct GradientOfNumbers : GradientCall {
  explicit GradientOfNumbers(Arguments& from) : GradientCall(from), rest(numbers<kNumbers>(from)) {}

  bool run(Results& results) const {
    float* out = results.floats(sizes_of(grad));
    std::apply(
        [&](auto... one) {
          (array_path().*kLoop)(floats(grad), floats(kept), one..., out, count_of(grad));
        },
        rest);
    return true;
  }

  std::array<float, kNumbers> rest;
};

// self, low, high: between two numbers, each of which may be absent.
struct Clamp : FunctionCall {
  explicit Clamp(Arguments& from)
      : FunctionCall(from),
        low(from.optional_number().value_or(-std::numeric_limits<double>::infinity())),
        high(from.optional_number().value_or(std::numeric_limits<double>::infinity())) {}

  bool is_valid() const {
    return FunctionCall::is_valid() && !std::isnan(low) && !std::isnan(high);
  }
  bool run(Results& results) const {
    array_path().clamp(floats(self), static_cast<float>(low), static_cast<float>(high),
                       results.floats(sizes_of(self)), count_of(self));
    return true;
  }

  double low, high;
};

constexpr KernelRow kRows[] = {
    {"relu", 1, run_kernel<PlainFunction<Unary::kRelu>>},
    {"sigmoid", 1, run_kernel<PlainFunction<Unary::kSigmoid>>},
    {"tanh", 1, run_kernel<PlainFunction<Unary::kTanh>>},
    {"erf", 1, run_kernel<PlainFunction<Unary::kErf>>},
    {"exp", 1, run_kernel<PlainFunction<Unary::kExp>>},
    {"silu", 1, run_kernel<PlainFunction<Unary::kSilu>>},
    {"sign", 1, run_kernel<PlainFunction<Unary::kSign>>},
    {"rsqrt", 1, run_kernel<PlainFunction<Unary::kRsqrt>>},
    {"gelu", 1, run_kernel<Gelu>},
    {"leaky_relu", 1, run_kernel<FunctionOfNumbers<&ArrayPath::leaky_relu, 1>>},
    {"softplus", 1, run_kernel<FunctionOfNumbers<&ArrayPath::softplus, 2>>},
    {"clamp", 1, run_kernel<Clamp>},
    {"relu_backward", 1, run_kernel<PlainGradient<UnaryBackward::kRelu>>},
    {"sigmoid_backward", 1, run_kernel<PlainGradient<UnaryBackward::kSigmoid>>},
    {"tanh_backward", 1, run_kernel<PlainGradient<UnaryBackward::kTanh>>},
    {"silu_backward", 1, run_kernel<PlainGradient<UnaryBackward::kSilu>>},
    {"gelu_backward", 1, run_kernel<GeluGradient>},
    {"leaky_relu_backward", 1, run_kernel<GradientOfNumbers<&ArrayPath::leaky_relu_backward, 1>>},
    {"softplus_backward", 1, run_kernel<GradientOfNumbers<&ArrayPath::softplus_backward, 2>>},
};

}  // namespace

std::span<const KernelRow> function_kernels() { return kRows; }

}  // namespace gt
