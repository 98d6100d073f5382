// How the helper calls the loops of gt._kernels over elements. csrc/bind/kernel_calls.cpp has the
// other end, and says what each is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"

namespace gt {

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

// What an operand of a chain's step is: the result so far, a number, or the next tensor.
enum class ChainSource : int32_t { Result, Number, Tensor };

// Not negative: it has run; of a chain, how many of its steps have. Else `text` says what does not
// fit, cut to `text_bytes` with the zero at its end.
using LoopCall = int (*)(const KernelTensor* tensors, const double* numbers, int threads,
                         char* text, size_t text_bytes);

}  // namespace gt
