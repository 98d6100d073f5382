// A chain of elementwise operators in one pass over memory: each but the first takes the previous
// result. Blocks go from operator to operator while they are in the first-level cache; values and
// rounding are those of the operators applied one after the other.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "cpu/array_path.h"

namespace gt {

// One operand: the result so far, a number, or a tensor.
struct ChainOperand {
  enum class Kind { kResult, kNumber, kTensor } kind = Kind::kResult;
  float number = 0;
  TensorView tensor{};  // like the result, or broadcast to it
};

// The operands of one operator; entries beyond its arity are ignored.
struct ChainStep {
  LoopOperator op;
  ChainOperand operands[3];
};

// Computes steps, at most kChainSteps, into the contiguous `out`, of float32 or bool, on at most
// `threads` threads. `out` may be the memory of a tensor of its size that only the first step
// reads. Runs the longest prefix of the steps that fits. A step fits if its tensors are in host
// memory and contiguous; have elements of float32, or of bool, int32 and int64, which are converted
// to float32; and are like the result, of one element, one row of it repeated, or one number for
// each row, where rows have the same length in all steps. Conditions must be bools. Returns the
// number of steps run; 0, with nothing done, where fewer than `least` fit.
int fitting_chain(const TensorView& out, const ChainStep* steps, int count, int least, int threads);

// Runs all steps, which must all fit.
void chain(const TensorView& out, const ChainStep* steps, int count, int threads);

constexpr int kChainSteps = 16;

}  // namespace gt
