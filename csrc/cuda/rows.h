// Kernels of rows [rows, columns] of float32, bfloat16 or float16: their arguments. The kernel's
// name says what the addresses without a type point to.
#pragma once

#include <cstdint>

namespace gt {

// loss[row] = logsumexp(logits[row]) - logits[row, target], 0 where the target is `ignored`. Any
// other target that is no column ends the launch with an error.
struct CrossEntropyCall {
  const void* logits;
  const std::int64_t* targets;
  float* loss;
  void* gradient;   // of the loss with regard to logits, times scale; or nullptr
  void* log_probs;  // logits - logsumexp(logits), which the gradient below reads; or nullptr
  std::int64_t columns, ignored;
  float scale;
};

// logits' gradient = (exp(log_probs) - the target's 1) * grad / total; 0 where the target is
// `ignored`.
struct CrossEntropyGradientCall {
  const void* log_probs;
  const std::int64_t* targets;
  const void* grad;   // of each row's loss, grad_step elements apart: 0 where one is for all
  const void* total;  // one element; or nullptr for 1
  void* gradient;
  std::int64_t columns, ignored, grad_step;
};

// total = x + residual, rounded; out = total normalized, * weight + bias.
struct NormCall {
  const void* x;
  const void* residual;  // or nullptr
  const void* weight;    // or nullptr for ones
  const void* bias;      // of LayerNorm; or nullptr for zeros
  void* total;           // or nullptr
  void* out;
  float* mean;  // of each row, for LayerNorm; or nullptr
  float* rstd;  // 1 / sqrt(variance + eps) of each row; or nullptr
  std::int64_t columns;
  float eps;
};

struct NormGradientCall {
  const void* total;  // what was normalized
  const float* mean;  // of each row, with rstd; or nullptr, and eps says what they were
  const float* rstd;
  const void* weight;      // or nullptr for ones
  const void* grad;        // of out
  const void* grad_total;  // of total, from where it is used besides; or nullptr
  void* grad_x;            // of x and of residual alike
  float* weight_sums;      // [blocks, columns]: each block's part of the gradient of weight
  float* bias_sums;        // the same of bias, for LayerNorm
  std::int64_t rows, columns;
  float eps;
};

struct NormTile {
  static constexpr unsigned kHeld = 2;  // chunks of eight elements that a thread holds
};

struct NormGradientTile {
  static constexpr unsigned kHeld = 8;  // elements of a row that a thread holds
  static constexpr unsigned kThreadsMax = 512;
  static constexpr unsigned kBlocksMax = 128;  // alike on all devices: it orders the sums
};

}  // namespace gt
