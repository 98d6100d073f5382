// Optimizer steps over whole arrays: constants of a step, and threads. The loops are
// array_path.h's.
#pragma once

#include <cstddef>

#include "cpu/array_path.h"

namespace gt {

struct AdamNumbers {
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  double step;  // counted from 1
  bool decoupled;
  bool maximize;
};

AdamStep adam_step(const AdamNumbers& numbers);

// A parameter and its state, `count` numbers each; max_sq may be null.
struct AdamArrays {
  float* param;
  const float* grad;
  float* avg;
  float* avg_sq;
  float* max_sq;
  std::size_t count;
};

// One step of Adam. Bits do not depend on `threads`, the maximum number used.
void adam(const AdamArrays& arrays, const AdamStep& step, int threads);

}  // namespace gt
