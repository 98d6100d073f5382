// A chain of elementwise operators in one pass over memory: each but the first takes the result of
// the one before it. Blocks go from operator to operator while they are in the first cache; what is
// computed, and rounded, is what the operators compute one after the other.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "cpu/array_path.h"

namespace gt {

// One operand: the result so far, a number, or a tensor.
struct ChainOperand {
  enum class Kind { kResult, kNumber, kTensor } kind = Kind::kResult;
  float number = 0;
  TensorView tensor{};  // as the result is, or broadcast to it
};

// An operator's operands; of those with one operand the second is not looked at.
struct ChainStep {
  ChainOp op;
  ChainOperand operands[2];
};

// How many steps from the first on `chain` takes: their tensors have float32 elements in the host's
// memory, are contiguous, and are as the result, of one element, one row of it repeated, or one
// number for each row; rows have the same length for all.
int fitting_chain(const TensorView& out, const ChainStep* steps, int count);

// Computes steps that fit, at most kChainSteps, into the contiguous `out`, which may be the memory
// of a tensor of its size that the first step alone reads. On at most `threads` threads.
void chain(const TensorView& out, const ChainStep* steps, int count, int threads);

constexpr int kChainSteps = 16;

}  // namespace gt
