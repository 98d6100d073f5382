// Mean pooling of images, and the gradients of mean and max pooling.
#pragma once

#include <cstdint>

#include "cpu/images.h"

namespace gt {

// All arrays are float32 and contiguous, [planes, height, width] and [planes, places].
struct MeanPool {
  std::int64_t planes;
  Image size;  // size of one plane; channels are ignored
  ImageWindow window;
  Places places;
  bool counts_padding;   // padding counts in the mean, but not what is beyond it
  std::int64_t divisor;  // 0: the number of counted elements of the window
  int threads;
};

void mean_pool(const MeanPool& call, const float* input, float* out);
void mean_pool_backward(const MeanPool& call, const float* grad, float* input_grad);

// Adds each window's gradient to the pixel of its plane that had the maximum. Each of `from` must
// be in [0, pixels).
void max_pool_backward(std::int64_t planes, std::int64_t windows, std::int64_t pixels, int threads,
                       const float* grad, const std::int64_t* from, float* input_grad);

}  // namespace gt
