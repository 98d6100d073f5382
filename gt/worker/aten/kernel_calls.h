// Calls of the elementwise loops of gt._kernels by the helper. csrc/bind/kernel_calls.cpp has the
// other end, and lists the arguments of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel_table.h"
#include "loop_operators.h"

namespace gt {

// Largest number of steps in a chain.
constexpr int CHAIN_STEPS_MAX = 16;

// Operand of a chain's step: the result so far, a number, or the next tensor.
enum class ChainSource : int32_t { Result, Number, Tensor };

// Returns a number that is not negative if it has run (a chain: the number of its steps that have).
// Else `text` says what does not fit, cut to `text_bytes` with the zero at its end.
using LoopCall = int (*)(const KernelTensor* tensors, const double* numbers, int threads,
                         char* text, size_t text_bytes);

}  // namespace gt
