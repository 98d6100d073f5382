// Arguments of the kernels over rows [rows, columns] of float32, bfloat16 or float16. The kernel's
// name gives the type of untyped addresses.
#pragma once

#include <cstdint>

namespace gt {

// loss[row] = logsumexp(logits[row]) - logits[row, target], 0 where the target is `ignored`. Any
// other target outside the columns ends the launch with an error.
struct CrossEntropyCall {
  const void* logits;
  const std::int64_t* targets;
  float* loss;
  void* gradient;   // of the loss with respect to logits, times scale; or nullptr
  void* log_probs;  // logits - logsumexp(logits), which the gradient below reads; or nullptr
  std::int64_t columns, ignored;
  float scale;
};

// logits' gradient = (exp(log_probs) - the target's 1) * grad / total; 0 where the target is
// `ignored`.
struct CrossEntropyGradientCall {
  const void* log_probs;
  const std::int64_t* targets;
  const void* grad;   // gradient of each row's loss, grad_step elements apart (0: shared)
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
  const void* total;  // the sum that was normalized
  const float* mean;  // of each row, with rstd; or nullptr: then computed again with eps
  const float* rstd;
  const void* weight;      // or nullptr for ones
  const void* grad;        // gradient of out
  const void* grad_total;  // gradient of total from its other uses; or nullptr
  void* grad_x;            // gradient of x and of residual, which are equal
  float* weight_sums;      // [blocks, columns]: each block's part of the gradient of weight
  float* bias_sums;        // each block's part of the gradient of bias, for LayerNorm
  std::int64_t rows, columns;
  float eps;
};

struct NormTile {
  static constexpr unsigned kHeld = 2;  // chunks of eight elements that a thread holds
};

struct NormGradientTile {
  static constexpr unsigned kHeld = 8;  // elements of a row that a thread holds
  static constexpr unsigned kThreadsMax = 512;
  static constexpr unsigned kBlocksMax = 128;  // fixes the order of sums on all devices
};

}  // namespace gt
