// Convolutions of images and their gradients, as products over blocks of places: what the windows
// of a few rows see becomes the columns of a matrix that stays in the second cache. Lines are
// images of one row.
#pragma once

#include <cstdint>

#include "cpu/images.h"

namespace gt {

// All arrays are float32 and contiguous. The bits of a result do not depend on threads.
struct Convolution {
  std::int64_t batch, groups;
  Image size;            // of an image's part for one group
  std::int64_t filters;  // of one group
  ImageWindow window;
  Places places;
  int threads;
};

// out [batch, groups filters, places] of input [batch, groups channels, height, width] and weight
// [groups filters, channels, kernel_h, kernel_w]; bias [groups filters] or null.
void convolve(const Convolution& call, const float* input, const float* weight, const float* bias,
              float* out);

// The gradient of the input, of the result's.
void convolve_input_grad(const Convolution& call, const float* grad, const float* weight,
                         float* input_grad);

// The gradient of the weight: images are added in their order.
void convolve_weight_grad(const Convolution& call, const float* grad, const float* input,
                          float* weight_grad);

}  // namespace gt
