// Optimizer steps over whole arrays: numbers that a step needs, and threads. The loops are
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
  double step;  // from 1 on
  bool decoupled;
  bool maximize;
};

AdamStep adam_step(const AdamNumbers& numbers);

// A parameter with its state, `count` numbers each; max_sq may be null.
struct AdamArrays {
  float* param;
  const float* grad;
  float* avg;
  float* avg_sq;
  float* max_sq;
  std::size_t count;
};

// One step of Adam. The bits do not depend on threads, which is the most that are used.
void adam(const AdamArrays& arrays, const AdamStep& step, int threads);

}  // namespace gt
