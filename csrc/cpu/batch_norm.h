// Batch norm of channels, over threads: which channels are a task. The loops are array_path.h's.
// The bits do not depend on threads, which is the most that are used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

// A contiguous array [batch, channels, inner] with elements.
struct ChannelShape {
  std::size_t batch, channels, inner;
};

// Numbers of a channel that stand beside each other, from which on a loop over them pays; of one
// the loops go over channels.
inline constexpr std::int64_t kInnerMin = 8;

inline bool takes_batch_norm(const ChannelShape& shape) {
  return shape.inner == 1 || shape.inner >= static_cast<std::size_t>(kInnerMin);
}

// x and out of the shape; weight and bias [channels] or null; mean, rstd and var, the unbiased
// variance, [channels].
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

// The same; grad and x_grad are like x, weight_grad and bias_grad are there without a weight too.
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

// Sums in float64, of what is left of a channel's numbers without its first one.
void batch_norm(const BatchNorm& call, int threads);
void batch_norm_backward(const BatchNormGradient& call, int threads);

}  // namespace gt
