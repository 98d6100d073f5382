// How the helper calls the kernels of gt._kernels: plain C, so that neither is linked against the
// other. csrc/bind/kernel_calls.cpp has the other end, and says what each kernel is given.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

enum class KernelElement : int32_t { Float32, Bool, Int32, Int64 };

// A tensor in the host's memory; strides count elements. One that is absent has no sizes. Kernels
// take float32, but for chains.
struct KernelTensor {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t dims;
  KernelElement element = KernelElement::Float32;
};

// Operators of a chain (csrc/cpu/chain.h), as both sides count them.
enum class ChainCode : int32_t {
  Neg,
  Abs,
  Square,
  Reciprocal,
  Rsqrt,
  Relu,
  Copy,
  Add,
  Sub,
  Mul,
  Div,
  ReluBackward,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  Where
};

// Steps of a chain, at most.
constexpr int CHAIN_STEPS_MAX = 16;

// Numbers of a channel beside each other that batch norm takes, at least, if they are more than
// one.
constexpr int64_t CHANNEL_MIN = 8;

// What an operand of a chain's step is: the result so far, a number, or the next tensor.
enum class ChainSource : int32_t { Result, Number, Tensor };

// Not negative: it has run; of a chain, how many of its steps have. Else `text` says what does not
// fit, cut to `text_bytes` with the zero at its end.
using KernelCall = int (*)(const KernelTensor* tensors, const double* numbers, int threads,
                           char* text, size_t text_bytes);

}  // namespace gt
