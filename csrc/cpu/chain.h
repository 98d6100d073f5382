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

// An operator's operands; those that it does not have are not looked at.
struct ChainStep {
  ChainOp op;
  ChainOperand operands[3];
};

// Computes steps, at most kChainSteps, into the contiguous `out`, of float32 or bool, which may be
// the memory of a tensor of its size that the first step alone reads; on at most `threads` threads.
// As many from the first on as fit: their tensors, in the host's memory, have elements of float32,
// or of bool, int32 and int64, which stand for numbers of float32; are contiguous; and are as the
// result, of one element, one row of it repeated, or one number for each row; rows have the same
// length for all. Conditions are bools. Returns how many; 0, with nothing done, where fewer than
// `least` fit.
int fitting_chain(const TensorView& out, const ChainStep* steps, int count, int least, int threads);

// The same where all of them must fit.
void chain(const TensorView& out, const ChainStep* steps, int count, int threads);

constexpr int kChainSteps = 16;

}  // namespace gt
