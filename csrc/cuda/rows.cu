// Kernels with one block a row: softmax cross-entropy, RMSNorm and LayerNorm with a residual, and
// their gradients. Rows are contiguous, sums in float32. Blocks of whole warps, up to 1024 threads.
#include "cuda/elements.h"
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

// Combines the values of all threads of the block in a fixed order; every thread gets the result.
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

// Sum of term(i) over the columns of a row, computed by all threads of the block.
template <class Term>
__device__ float sum_over(std::int64_t columns, Term term) {
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    sum += term(i);
  }
  return combined(sum, Sum{});
}

// The block's row of a matrix; nullptr for nullptr.
template <class T>
__device__ T* row_of(T* matrix, std::int64_t columns) {
  const std::int64_t row = blockIdx.x;
  return matrix == nullptr ? nullptr : matrix + row * columns;
}

// Target column of the block's row; -1 where the row is ignored.
__device__ std::int64_t checked_target(const std::int64_t* targets, std::int64_t columns,
                                       std::int64_t ignored) {
  const std::int64_t target = targets[blockIdx.x];
  if (target == ignored) {
    return -1;
  }
  if (target < 0 || target >= columns) {
    device::trap("cross_entropy: a target is no column");
  }
  return target;
}

template <class Element>
__device__ void cross_entropy(const CrossEntropyCall& call) {
  using T = typename Element::Stored;
  const T* logits = row_of(static_cast<const T*>(call.logits), call.columns);
  T* gradient = row_of(static_cast<T*>(call.gradient), call.columns);
  T* log_probs = row_of(static_cast<T*>(call.log_probs), call.columns);
  float largest = -__builtin_huge_valf();
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    largest = maximum(largest, Element::wide(logits[i]));
  }
  largest = combined(largest, Maximum{});
  const float sum = sum_over(call.columns, [&](std::int64_t i) {
    return device::exponential(Element::wide(logits[i]) - largest);
  });
  const std::int64_t target = checked_target(call.targets, call.columns, call.ignored);
  const float logsumexp = device::logarithm(sum) + largest;
  if (threadIdx.x == 0) {
    call.loss[blockIdx.x] = target < 0 ? 0.0F : logsumexp - Element::wide(logits[target]);
  }
  for (std::int64_t i = threadIdx.x; log_probs != nullptr && i < call.columns; i += blockDim.x) {
    log_probs[i] = Element::narrow(Element::wide(logits[i]) - logsumexp);
  }
  if (gradient == nullptr) {
    return;
  }
  const float scale = target < 0 ? 0.0F : call.scale;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    const float softmax = device::exponential(Element::wide(logits[i]) - largest) / sum;
    gradient[i] = Element::narrow((i == target ? softmax - 1.0F : softmax) * scale);
  }
}

template <class Element>
__device__ void cross_entropy_backward(const CrossEntropyGradientCall& call) {
  using T = typename Element::Stored;
  const T* log_probs = row_of(static_cast<const T*>(call.log_probs), call.columns);
  T* gradient = row_of(static_cast<T*>(call.gradient), call.columns);
  const std::int64_t target = checked_target(call.targets, call.columns, call.ignored);
  const std::int64_t row = blockIdx.x;
  float grad = Element::wide(static_cast<const T*>(call.grad)[row * call.grad_step]);
  if (call.total != nullptr) {
    grad /= Element::wide(*static_cast<const T*>(call.total));
  }
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    const float softmax = device::exponential(Element::wide(log_probs[i]));
    const float slope = i == target ? softmax - 1.0F : softmax;
    gradient[i] = Element::narrow(target < 0 ? 0.0F : slope * grad);
  }
}

// Normalized value = (x - mean) * scale; mean is 0 for RMSNorm.
struct Moments {
  float mean, scale;
};

template <bool kIsCentered, class Value>
__device__ Moments moments_of(std::int64_t columns, float eps, Value value) {
  const auto count = static_cast<float>(columns);
  const float mean = kIsCentered ? sum_over(columns, value) / count : 0.0F;
  const float squares = sum_over(columns, [&](std::int64_t i) {
    const float centered = value(i) - mean;
    return centered * centered;
  });
  return {mean, device::reciprocal_square_root(squares / count + eps)};
}

// Element i of a parameter; `absent` where there is no parameter.
template <class Element>
__device__ float parameter(const typename Element::Stored* values, std::int64_t i, float absent) {
  return values == nullptr ? absent : Element::wide(values[i]);
}

// Eight adjacent elements, loaded and stored as one access.
template <class T>
struct alignas(16) RowChunk {
  T elements[8];
};

// A thread's part of a row: kHeld chunks, blockDim.x chunks apart.
template <class Element>
struct HeldRow {
  static constexpr unsigned kHeld = NormTile::kHeld;
  using T = typename Element::Stored;
  using Chunk = RowChunk<T>;

  __device__ static std::int64_t column(unsigned held) {
    return std::int64_t{8} * (threadIdx.x + held * blockDim.x);
  }
  // Sum of term over all elements of the row, computed by all threads of the block.
  template <class Term>
  __device__ static float sum(std::int64_t columns, const Chunk (&held)[kHeld], Term term) {
    float sum = 0;
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) {
      if (column(i) < columns) {
#pragma unroll
        for (const T element : held[i].elements) {
          sum += term(Element::wide(element));
        }
      }
    }
    return combined(sum, Sum{});
  }
};

// True where sizes and alignment allow threads to hold the row in chunks.
__device__ inline bool is_held(const NormCall& call) {
  const auto bits = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  const std::uintptr_t all = bits(call.x) | bits(call.residual) | bits(call.weight) |
                             bits(call.bias) | bits(call.total) | bits(call.out);
  return call.columns % 8 == 0 && all % 16 == 0 &&
         call.columns <= std::int64_t{8} * NormTile::kHeld * blockDim.x;
}

// Norm of a row that its threads load once and keep in registers.
template <class Element, bool kIsCentered>
__device__ void held_norm(const NormCall& call) {
  using Row = HeldRow<Element>;
  using T = typename Element::Stored;
  constexpr unsigned kHeld = Row::kHeld;
  const std::int64_t columns = call.columns;
  const T* x = row_of(static_cast<const T*>(call.x), columns);
  const T* residual = row_of(static_cast<const T*>(call.residual), columns);
  T* total = row_of(static_cast<T*>(call.total), columns);
  T* out = row_of(static_cast<T*>(call.out), columns);
  typename Row::Chunk held[kHeld];
  typename Row::Chunk more[kHeld];
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) {  // all loads are issued before the first use
    if (Row::column(i) < columns) {
      held[i] = *reinterpret_cast<const typename Row::Chunk*>(x + Row::column(i));
    }
    if (residual != nullptr && Row::column(i) < columns) {
      more[i] = *reinterpret_cast<const typename Row::Chunk*>(residual + Row::column(i));
    }
  }
  if (residual != nullptr) {
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) {
#pragma unroll
      for (unsigned e = 0; e < 8; ++e) {
        held[i].elements[e] = Element::narrow(Element::wide(held[i].elements[e]) +
                                              Element::wide(more[i].elements[e]));
      }
    }
  }
  if (total != nullptr) {
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) {
      if (Row::column(i) < columns) {
        *reinterpret_cast<typename Row::Chunk*>(total + Row::column(i)) = held[i];
      }
    }
  }
  const auto count = static_cast<float>(columns);
  const float mean =
      kIsCentered ? Row::sum(columns, held, [](float value) { return value; }) / count : 0.0F;
  const float squares =
      Row::sum(columns, held, [&](float value) { return (value - mean) * (value - mean); });
  const float scale = device::reciprocal_square_root(squares / count + call.eps);
  if (threadIdx.x == 0 && call.mean != nullptr) {
    call.mean[blockIdx.x] = mean;
  }
  if (threadIdx.x == 0 && call.rstd != nullptr) {
    call.rstd[blockIdx.x] = scale;
  }
#pragma unroll
  for (unsigned i = 0; i < kHeld; ++i) {
    const std::int64_t at = Row::column(i);
    if (at < columns) {
      typename Row::Chunk weight;
      typename Row::Chunk bias;
      if (call.weight != nullptr) {
        weight =
            *reinterpret_cast<const typename Row::Chunk*>(static_cast<const T*>(call.weight) + at);
      }
      if (kIsCentered && call.bias != nullptr) {
        bias = *reinterpret_cast<const typename Row::Chunk*>(static_cast<const T*>(call.bias) + at);
      }
#pragma unroll
      for (unsigned e = 0; e < 8; ++e) {
        float value = (Element::wide(held[i].elements[e]) - mean) * scale;
        value *= call.weight == nullptr ? 1.0F : Element::wide(weight.elements[e]);
        if (kIsCentered && call.bias != nullptr) {
          value += Element::wide(bias.elements[e]);
        }
        held[i].elements[e] = Element::narrow(value);
      }
      *reinterpret_cast<typename Row::Chunk*>(out + at) = held[i];
    }
  }
}

template <class Element, bool kIsCentered>
__device__ void norm(const NormCall& call) {
  if (is_held(call)) {
    return held_norm<Element, kIsCentered>(call);
  }
  using T = typename Element::Stored;
  const T* x = row_of(static_cast<const T*>(call.x), call.columns);
  const T* residual = row_of(static_cast<const T*>(call.residual), call.columns);
  const T* weight = static_cast<const T*>(call.weight);
  const T* bias = static_cast<const T*>(call.bias);
  T* total = row_of(static_cast<T*>(call.total), call.columns);
  T* out = row_of(static_cast<T*>(call.out), call.columns);
  const auto stored = [&](std::int64_t i) {
    return residual == nullptr ? x[i]
                               : Element::narrow(Element::wide(x[i]) + Element::wide(residual[i]));
  };
  const Moments moments = moments_of<kIsCentered>(
      call.columns, call.eps, [&](std::int64_t i) { return Element::wide(stored(i)); });
  if (threadIdx.x == 0 && call.mean != nullptr) {
    call.mean[blockIdx.x] = moments.mean;
  }
  if (threadIdx.x == 0 && call.rstd != nullptr) {
    call.rstd[blockIdx.x] = moments.scale;
  }
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    const T value = stored(i);
    if (total != nullptr) {
      total[i] = value;
    }
    const float normal = (Element::wide(value) - moments.mean) * moments.scale;
    const float scaled = normal * parameter<Element>(weight, i, 1.0F);
    out[i] = Element::narrow(kIsCentered ? scaled + parameter<Element>(bias, i, 0.0F) : scaled);
  }
}

// Gradient of row `at`. is_first: the row starts the block's sums instead of adding to them.
template <class Element, bool kIsCentered>
__device__ void norm_backward_row(const NormGradientCall& call, std::int64_t at, bool is_first) {
  using T = typename Element::Stored;
  const T* total = static_cast<const T*>(call.total) + at * call.columns;
  const T* grad = static_cast<const T*>(call.grad) + at * call.columns;
  const T* weight = static_cast<const T*>(call.weight);
  const T* grad_total = static_cast<const T*>(call.grad_total);
  T* grad_x = static_cast<T*>(call.grad_x) + at * call.columns;
  float* weight_sums = row_of(call.weight_sums, call.columns);
  float* bias_sums = row_of(call.bias_sums, call.columns);
  const Moments moments =
      call.rstd != nullptr ? Moments{kIsCentered ? call.mean[at] : 0.0F, call.rstd[at]}
                           : moments_of<kIsCentered>(call.columns, call.eps, [&](std::int64_t i) {
                               return Element::wide(total[i]);
                             });
  const auto normal = [&](std::int64_t i) {
    return (Element::wide(total[i]) - moments.mean) * moments.scale;
  };
  const auto above = [&](std::int64_t i) {
    return Element::wide(grad[i]) * parameter<Element>(weight, i, 1.0F);
  };
  const auto count = static_cast<float>(call.columns);
  const float mean = kIsCentered ? sum_over(call.columns, above) / count : 0.0F;
  const float product =
      sum_over(call.columns, [&](std::int64_t i) { return above(i) * normal(i); }) / count;
  for (std::int64_t i = threadIdx.x; i < call.columns; i += blockDim.x) {
    float value = moments.scale * (above(i) - mean - normal(i) * product);
    if (grad_total != nullptr) {
      value += Element::wide(grad_total[at * call.columns + i]);
    }
    grad_x[i] = Element::narrow(value);
    const float one = Element::wide(grad[i]);
    weight_sums[i] = is_first ? one * normal(i) : weight_sums[i] + one * normal(i);
    if constexpr (kIsCentered) {
      bias_sums[i] = is_first ? one : bias_sums[i] + one;
    }
  }
}

// Sums of two values over all threads of the block, in a fixed order. `parity` must alternate from
// call to call, because partials of the previous call may still be read.
__device__ inline void sum_both(unsigned parity, float& first, float& second) {
  struct Both {
    float of_warp[2][kWarpThreads][2];
  };
  Both& both = device::static_shared<Both>();
  for (unsigned lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
    first += device::shuffle_xor(first, lanes);
    second += device::shuffle_xor(second, lanes);
  }
  float (&partials)[kWarpThreads][2] = both.of_warp[parity];
  if (device::lane_index() == 0) {
    partials[threadIdx.x / kWarpThreads][0] = first;
    partials[threadIdx.x / kWarpThreads][1] = second;
  }
  __syncthreads();  // partials are written
  first = partials[0][0];
  second = partials[0][1];
  for (unsigned warp = 1; warp < blockDim.x / kWarpThreads; ++warp) {
    first += partials[warp][0];
    second += partials[warp][1];
  }
}

// True where a thread may hold its part of each row and the sums of its columns.
__device__ inline bool is_held(const NormGradientCall& call) {
  const auto bits = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  const std::uintptr_t all = bits(call.total) | bits(call.weight) | bits(call.grad) |
                             bits(call.grad_total) | bits(call.grad_x) | bits(call.weight_sums) |
                             bits(call.bias_sums);
  return call.columns % 8 == 0 && all % 16 == 0 &&
         call.columns <= std::int64_t{NormGradientTile::kHeld} * blockDim.x;
}

// Moments of row `at`, of which this thread holds a chunk; the chunk is zeros outside the row.
template <bool kIsCentered, class Element, class Chunk>
__device__ Moments held_moments(const NormGradientCall& call, std::int64_t at, const Chunk& held,
                                bool is_inside) {
  if (call.rstd != nullptr) {
    return {kIsCentered ? call.mean[at] : 0.0F, call.rstd[at]};
  }
  const auto sum = [&](auto term) {
    float terms = 0;
    if (is_inside) {
#pragma unroll
      for (const auto element : held.elements) {
        terms += term(Element::wide(element));
      }
    }
    return combined(terms, Sum{}) / static_cast<float>(call.columns);
  };
  const float mean = kIsCentered ? sum([](float value) { return value; }) : 0.0F;
  const float variance = sum([&](float value) { return (value - mean) * (value - mean); });
  return {mean, device::reciprocal_square_root(variance + call.eps)};
}

// Computes norm_backward_row for the block's rows, loading each once and the next one ahead.
template <class Element, bool kIsCentered>
__device__ void held_norm_backward(const NormGradientCall& call) {
  using T = typename Element::Stored;
  using Chunk = RowChunk<T>;
  constexpr unsigned kHeld = NormGradientTile::kHeld;
  const std::int64_t columns = call.columns;
  const std::int64_t column = std::int64_t{threadIdx.x} * kHeld;
  const bool is_inside = column < columns;
  const auto load = [&](const void* matrix, std::int64_t row) {
    return is_inside ? *reinterpret_cast<const Chunk*>(static_cast<const T*>(matrix) +
                                                       row * columns + column)
                     : Chunk{};
  };
  const Chunk weight = call.weight != nullptr ? load(call.weight, 0) : Chunk{};
  const auto count = static_cast<float>(columns);
  float weight_sums[kHeld] = {};
  float bias_sums[kHeld] = {};
  Chunk next_total = load(call.total, blockIdx.x);
  Chunk next_grad = load(call.grad, blockIdx.x);
  unsigned parity = 0;
  for (std::int64_t at = blockIdx.x; at < call.rows; at += gridDim.x) {
    const Chunk total = next_total;
    const Chunk grad = next_grad;
    const Moments moments = held_moments<kIsCentered, Element>(call, at, total, is_inside);
    Chunk more = {};
    if (call.grad_total != nullptr) {
      more = load(call.grad_total, at);
    }
    if (at + gridDim.x < call.rows) {
      next_total = load(call.total, at + gridDim.x);
      next_grad = load(call.grad, at + gridDim.x);
    }
    const auto normal = [&](unsigned i) {
      return (Element::wide(total.elements[i]) - moments.mean) * moments.scale;
    };
    const auto above = [&](unsigned i) {
      return Element::wide(grad.elements[i]) *
             (call.weight == nullptr ? 1.0F : Element::wide(weight.elements[i]));
    };
    float mean = 0;
    float product = 0;
    if (is_inside) {
#pragma unroll
      for (unsigned i = 0; i < kHeld; ++i) {
        mean += kIsCentered ? above(i) : 0.0F;
        product += above(i) * normal(i);
        weight_sums[i] += Element::wide(grad.elements[i]) * normal(i);
        bias_sums[i] += kIsCentered ? Element::wide(grad.elements[i]) : 0.0F;
      }
    }
    sum_both(parity, mean, product);
    parity ^= 1;
    mean /= count;
    product /= count;
    if (is_inside) {
      Chunk result;
#pragma unroll
      for (unsigned i = 0; i < kHeld; ++i) {
        float value = moments.scale * (above(i) - mean - normal(i) * product);
        if (call.grad_total != nullptr) {
          value += Element::wide(more.elements[i]);
        }
        result.elements[i] = Element::narrow(value);
      }
      *reinterpret_cast<Chunk*>(static_cast<T*>(call.grad_x) + at * columns + column) = result;
    }
  }
  if (is_inside) {
#pragma unroll
    for (unsigned i = 0; i < kHeld; ++i) {
      row_of(call.weight_sums, columns)[column + i] = weight_sums[i];
      if constexpr (kIsCentered) {
        row_of(call.bias_sums, columns)[column + i] = bias_sums[i];
      }
    }
  }
}

// A block takes every gridDim.x-th row; one thread always sums the same columns.
template <class Element, bool kIsCentered>
__device__ void norm_backward(const NormGradientCall& call) {
  if (is_held(call)) {
    return held_norm_backward<Element, kIsCentered>(call);
  }
  bool is_first = true;
  for (std::int64_t at = blockIdx.x; at < call.rows; at += gridDim.x) {
    norm_backward_row<Element, kIsCentered>(call, at, is_first);
    is_first = false;
  }
}

// out[column] = the blocks' sums, added in the order of blocks. Any grid.
template <class Element>
__device__ void add_sums(const float* sums, std::int64_t blocks, std::int64_t columns,
                         typename Element::Stored* out) {
  const std::int64_t column = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) {
    return;
  }
  float sum = 0;
#pragma unroll 16  // as many loads at once
  for (std::int64_t block = 0; block < blocks; ++block) {
    sum += sums[block * columns + column];
  }
  out[column] = Element::narrow(sum);
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(1024) gt_cross_entropy_f32(gt::CrossEntropyCall call) {
  gt::cross_entropy<gt::Float32>(call);
}

__global__ void __launch_bounds__(1024) gt_cross_entropy_bf16(gt::CrossEntropyCall call) {
  gt::cross_entropy<gt::Bfloat16>(call);
}

__global__ void __launch_bounds__(1024) gt_cross_entropy_f16(gt::CrossEntropyCall call) {
  gt::cross_entropy<gt::Float16>(call);
}

__global__ void __launch_bounds__(1024)
    gt_cross_entropy_backward_f32(gt::CrossEntropyGradientCall call) {
  gt::cross_entropy_backward<gt::Float32>(call);
}

__global__ void __launch_bounds__(1024)
    gt_cross_entropy_backward_bf16(gt::CrossEntropyGradientCall call) {
  gt::cross_entropy_backward<gt::Bfloat16>(call);
}

__global__ void __launch_bounds__(1024)
    gt_cross_entropy_backward_f16(gt::CrossEntropyGradientCall call) {
  gt::cross_entropy_backward<gt::Float16>(call);
}

__global__ void __launch_bounds__(1024) gt_rms_norm_f32(gt::NormCall call) {
  gt::norm<gt::Float32, false>(call);
}

__global__ void __launch_bounds__(1024) gt_rms_norm_bf16(gt::NormCall call) {
  gt::norm<gt::Bfloat16, false>(call);
}

__global__ void __launch_bounds__(1024) gt_rms_norm_f16(gt::NormCall call) {
  gt::norm<gt::Float16, false>(call);
}

__global__ void __launch_bounds__(1024) gt_layer_norm_f32(gt::NormCall call) {
  gt::norm<gt::Float32, true>(call);
}

__global__ void __launch_bounds__(1024) gt_layer_norm_bf16(gt::NormCall call) {
  gt::norm<gt::Bfloat16, true>(call);
}

__global__ void __launch_bounds__(1024) gt_layer_norm_f16(gt::NormCall call) {
  gt::norm<gt::Float16, true>(call);
}

__global__ void __launch_bounds__(512, 1) gt_rms_norm_backward_f32(gt::NormGradientCall call) {
  gt::norm_backward<gt::Float32, false>(call);
}

__global__ void __launch_bounds__(512, 1) gt_rms_norm_backward_bf16(gt::NormGradientCall call) {
  gt::norm_backward<gt::Bfloat16, false>(call);
}

__global__ void __launch_bounds__(512, 1) gt_rms_norm_backward_f16(gt::NormGradientCall call) {
  gt::norm_backward<gt::Float16, false>(call);
}

__global__ void __launch_bounds__(512, 1) gt_layer_norm_backward_f32(gt::NormGradientCall call) {
  gt::norm_backward<gt::Float32, true>(call);
}

__global__ void __launch_bounds__(512, 1) gt_layer_norm_backward_bf16(gt::NormGradientCall call) {
  gt::norm_backward<gt::Bfloat16, true>(call);
}

__global__ void __launch_bounds__(512, 1) gt_layer_norm_backward_f16(gt::NormGradientCall call) {
  gt::norm_backward<gt::Float16, true>(call);
}

__global__ void __launch_bounds__(1024)
    gt_add_sums_f32(const float* sums, std::int64_t blocks, std::int64_t columns, float* out) {
  gt::add_sums<gt::Float32>(sums, blocks, columns, out);
}

__global__ void __launch_bounds__(1024) gt_add_sums_bf16(const float* sums, std::int64_t blocks,
                                                         std::int64_t columns, std::uint16_t* out) {
  gt::add_sums<gt::Bfloat16>(sums, blocks, columns, out);
}

__global__ void __launch_bounds__(1024) gt_add_sums_f16(const float* sums, std::int64_t blocks,
                                                        std::int64_t columns, std::uint16_t* out) {
  gt::add_sums<gt::Float16>(sums, blocks, columns, out);
}
}
