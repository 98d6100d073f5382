// Batch norm over channels: cuts the channels into tasks for threads. The loops are array_path.h's.
// Bits do not depend on `threads`, the maximum number used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// A contiguous, nonempty array [batch, channels, inner].
struct ChannelShape {
  std::size_t batch, channels, inner;
};

// Minimum length of a channel's contiguous run for loops along it to pay; with runs of length 1 the
// loops go over channels.
inline constexpr std::int64_t kInnerMin = 8;

inline bool takes_batch_norm(const ChannelShape& shape) {
  return shape.inner == 1 || shape.inner >= static_cast<std::size_t>(kInnerMin);
}

// x and out have the call's shape; weight and bias are [channels] or null; mean, rstd and var, the
// unbiased variance, are [channels].
struct BatchNorm {
  const float* x;
  const float* weight;
  const float* bias;
  double eps;
  float* out;
  float* mean;
  float* rstd;
  float* var;
  ChannelShape shape;
};

// Shapes as in BatchNorm; grad and x_grad are like x. weight_grad and bias_grad exist without a
// weight too.
struct BatchNormGradient {
  const float* grad;
  const float* x;
  const float* mean;
  const float* rstd;
  const float* weight;
  float* x_grad;
  float* weight_grad;
  float* bias_grad;
  ChannelShape shape;
};

// Sums in float64 of a channel's numbers minus its first one.
void batch_norm(const BatchNorm& call, int threads);
void batch_norm_backward(const BatchNormGradient& call, int threads);

}  // namespace gt
