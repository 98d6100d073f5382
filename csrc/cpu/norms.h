// RMS norm over rows: cuts the rows into tasks for threads. The loops are array_path.h's.
#pragma once

#include <cstddef>

namespace gt {

// Contiguous arrays: x and out [rows, columns], weight [columns] or null, rstd [rows].
struct RmsNorm {
  const float* x;
  const float* weight;
  double eps;
  float* out;
  float* rstd;
  std::size_t rows, columns;
};

// Shapes as in RmsNorm; grad and x_grad are like x. weight_grad [columns] exists without a weight
// too.
struct RmsNormGradient {
  const float* grad;
  const float* x;
  const float* rstd;
  const float* weight;
  float* x_grad;
  float* weight_grad;
  std::size_t rows, columns;
};

// Bits do not depend on `threads`, the maximum number used.
void rms_norm(const RmsNorm& call, int threads);
void rms_norm_backward(const RmsNormGradient& call, int threads);

}  // namespace gt
