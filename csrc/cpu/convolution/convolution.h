// Convolutions of images and their gradients, as products over blocks of places: the windows of a
// few rows become the columns of a matrix that stays in the second-level cache. One-dimensional
// signals are images of one row.
#pragma once

#include <cstdint>

#include "cpu/images.h"

namespace gt {

// All arrays are float32 and contiguous. The bits of a result do not depend on the number of
// threads.
struct Convolution {
  std::int64_t batch, groups;
  Image size;            // one group's part of an image
  std::int64_t filters;  // filters of one group
  ImageWindow window;
  Places places;
  int threads;
};

// Computes out [batch, groups * filters, places] from input [batch, groups * channels, height,
// width] and weight [groups * filters, channels, kernel_h, kernel_w]; bias is [groups * filters] or
// null.
void convolve(const Convolution& call, const float* input, const float* weight, const float* bias,
              float* out);

// Gradient of the input, from the gradient of the result.
void convolve_input_grad(const Convolution& call, const float* grad, const float* weight,
                         float* input_grad);

// Gradient of the weight; images are added in order.
void convolve_weight_grad(const Convolution& call, const float* grad, const float* input,
                          float* weight_grad);

}  // namespace gt
