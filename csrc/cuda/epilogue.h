// What follows a product, in the registers that hold it. Included by kernels only.
#pragma once

#include "cuda/worker_kernels.h"

namespace gt {
namespace {

using device::Half;

__device__ inline float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      return x > 0 || x != x ? x : 0.0F;
    case Activation::kGelu:
      return 0.5F * x * (1 + device::error_function(x * 0.707106781F));
    case Activation::kSilu:
      return x / (1 + device::exponential(-x));
  }
  return x;
}

// Two elements of a row, of which the first has an even column.
template <Half kType>
__device__ void finish(const GemmCall& call, std::int64_t batch, std::int64_t row,
                       std::int64_t column, float first, float second) {
  if (row >= call.rows || column >= call.columns) {
    return;
  }
  float values[2] = {first * call.scale, second * call.scale};
#pragma unroll
  for (unsigned i = 0; i < 2; ++i) {
    if (call.bias != nullptr) {
      values[i] += device::to_float<kType>(call.bias[column + i]);
    }
    values[i] = activated(values[i], call.activation);
    if (call.residual.data != nullptr) {
      values[i] += device::to_float<kType>(
          call.residual
              .data[batch * call.residual.batch_step + row * call.residual.step + column + i]);
    }
  }
  const std::int64_t at = (batch * call.rows + row) * call.columns + column;
  if (call.is_float_out) {
    static_cast<float*>(call.out)[at] = values[0];
    static_cast<float*>(call.out)[at + 1] = values[1];
    return;
  }
  // Columns are even, so that a pair is one word.
  const std::uint32_t low = device::from_float<kType>(values[0]);
  const std::uint32_t high = device::from_float<kType>(values[1]);
  static_cast<std::uint32_t*>(call.out)[at / 2] = low | high << 16;
}

}  // namespace
}  // namespace gt
