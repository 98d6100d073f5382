// Means of windows of pictures, and the gradients of both kinds of pools.
#pragma once

#include <cstdint>

#include "cpu/images.h"

namespace gt {

// All arrays are float32 and contiguous, [planes, height, width] and [planes, places].
struct MeanPool {
  std::int64_t planes;
  Image size;  // of one plane; its channels do not count
  ImageWindow window;
  Places places;
  bool counts_padding;   // a window's padding counts, but not what is beyond it
  std::int64_t divisor;  // 0: what counts in the window
  int threads;
};

void mean_pool(const MeanPool& call, const float* input, float* out);
void mean_pool_backward(const MeanPool& call, const float* grad, float* input_grad);

// Adds each window's gradient to the pixel of its plane that was the largest. Each of `from` must
// be in [0, pixels).
void max_pool_backward(std::int64_t planes, std::int64_t windows, std::int64_t pixels, int threads,
                       const float* grad, const std::int64_t* from, float* input_grad);

}  // namespace gt
