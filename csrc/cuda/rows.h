// Kernels of rows [rows, columns] of float32, bfloat16 or float16: their arguments. The kernel's
// name says what the addresses without a type point to.
#pragma once

#include <cstdint>

namespace gt {

// loss[row] = logsumexp(logits[row]) - logits[row, target], 0 where the target is negative.
struct CrossEntropyCall {
  const void* logits;
  const std::int64_t* targets;  // less than columns
  float* loss;
  void* gradient;  // of the loss with regard to logits, times scale; or nullptr
  std::int64_t columns;
  float scale;
};

// total = x + residual, rounded; out = total normalized, * weight + bias.
struct NormCall {
  const void* x;
  const void* residual;  // or nullptr
  const void* weight;
  const void* bias;  // of LayerNorm
  void* total;       // or nullptr
  void* out;
  std::int64_t columns;
  float eps;
};

struct NormGradientCall {
  const void* total;  // what was normalized
  const void* weight;
  const void* grad;        // of out
  const void* grad_total;  // of total, from where it is used besides; or nullptr
  void* grad_x;            // of x and of residual alike
  float* weight_sums;      // [blocks, columns]: each block's part of the gradient of weight
  float* bias_sums;        // the same of bias, for LayerNorm
  std::int64_t rows, columns;
  float eps;
};

struct NormGradientTile {
  static constexpr unsigned kBlocksMax = 128;  // alike on all devices: it orders the sums
};

}  // namespace gt
