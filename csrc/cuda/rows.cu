// One block a row: softmax cross-entropy, RMSNorm and LayerNorm with a residual. float32, rows
// contiguous, sums in float32. Blocks of whole warps, up to 1024 threads.
#include "cuda/kernels.h"

namespace gt {
namespace {

using device::maximum;

constexpr unsigned kWarpThreads = 32;

struct Partials {
  float of_warp[kWarpThreads];
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Maximum {
  __device__ float operator()(float a, float b) const { return maximum(a, b); }
};

// The values of all threads of the block, combined in a fixed order; every thread gets the result.
template <class Combine>
__device__ float combined(float value, Combine combine) {
  Partials& partials = device::static_shared<Partials>();
  for (unsigned lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
    value = combine(value, device::shuffle_xor(value, lanes));
  }
  if (device::lane_index() == 0) {
    partials.of_warp[threadIdx.x / kWarpThreads] = value;
  }
  __syncthreads();  // partials are written
  float result = partials.of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarpThreads; ++warp) {
    result = combine(result, partials.of_warp[warp]);
  }
  __syncthreads();  // partials are read
  return result;
}

// The offset of the block's row.
__device__ inline std::int64_t row_offset(std::int64_t columns) {
  const std::int64_t row = blockIdx.x;
  return row * columns;
}

__device__ inline float element(const float* x, const float* residual, std::int64_t i) {
  return residual != nullptr ? x[i] + residual[i] : x[i];
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(1024)
    gt_cross_entropy_f32(const float* logits, const std::int64_t* targets, float* loss,
                         float* gradient, std::int64_t columns, float scale) {
  const std::int64_t offset = gt::row_offset(columns);
  float largest = -__builtin_huge_valf();
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    largest = gt::device::maximum(largest, logits[offset + i]);
  }
  largest = gt::combined(largest, gt::Maximum{});
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += gt::device::exponential(logits[offset + i] - largest);
  }
  sum = gt::combined(sum, gt::Sum{});
  const std::int64_t target = targets[blockIdx.x];
  if (threadIdx.x == 0) {
    loss[blockIdx.x] = gt::device::logarithm(sum) + largest - logits[offset + target];
  }
  if (gradient != nullptr) {
    for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
      const float softmax = gt::device::exponential(logits[offset + i] - largest) / sum;
      gradient[offset + i] = (i == target ? softmax - 1.0F : softmax) * scale;
    }
  }
}

__global__ void __launch_bounds__(1024)
    gt_rms_norm_f32(const float* x, const float* residual, const float* weight, float* total,
                    float* out, std::int64_t columns, float eps) {
  const std::int64_t offset = gt::row_offset(columns);
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float value = gt::element(x, residual, offset + i);
    if (total != nullptr) {
      total[offset + i] = value;
    }
    squares += value * value;
  }
  squares = gt::combined(squares, gt::Sum{});
  const float scale =
      gt::device::reciprocal_square_root(squares / static_cast<float>(columns) + eps);
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    out[offset + i] = gt::element(x, residual, offset + i) * scale * weight[i];
  }
}

__global__ void __launch_bounds__(1024)
    gt_layer_norm_f32(const float* x, const float* residual, const float* weight, const float* bias,
                      float* total, float* out, std::int64_t columns, float eps) {
  const std::int64_t offset = gt::row_offset(columns);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float value = gt::element(x, residual, offset + i);
    if (total != nullptr) {
      total[offset + i] = value;
    }
    sum += value;
  }
  const float mean = gt::combined(sum, gt::Sum{}) / static_cast<float>(columns);
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float centered = gt::element(x, residual, offset + i) - mean;
    squares += centered * centered;
  }
  squares = gt::combined(squares, gt::Sum{});
  const float scale =
      gt::device::reciprocal_square_root(squares / static_cast<float>(columns) + eps);
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float centered = gt::element(x, residual, offset + i) - mean;
    out[offset + i] = centered * scale * weight[i] + bias[i];
  }
}
}
