// Random numbers on the device, with the bits of csrc/cpu, because both compile algo/. Must be
// compiled without fused multiply-adds (-fmad=false).
#include "cuda/kernels.h"

namespace gt {
namespace {

constexpr std::int64_t kThreadElements = 4;  // one Philox block of 32-bit values

__device__ inline std::uint32_t word_at(const std::uint32_t* words, std::uint32_t place) {
  const std::uint32_t low = (place & 1U) != 0 ? words[1] : words[0];
  const std::uint32_t high = (place & 1U) != 0 ? words[3] : words[2];
  return (place & 2U) != 0 ? high : low;
}

// Calls emit(local, words, place) for each element, with the words of its block and its index in
// them.
template <std::int64_t per_block, class Emit>
__device__ void for_elements(std::int64_t elements, const BoxRuns& box, const Stream& stream,
                             Emit emit) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t first = thread * kThreadElements; first < elements;
       first += threads * kThreadElements) {
    const std::int64_t end =
        first + kThreadElements < elements ? first + kThreadElements : elements;
    std::uint32_t words[4] = {};
    std::int64_t made = -1;
    for (std::int64_t local = first; local < end; ++local) {
      const std::int64_t global = box.global_index(local);
      const std::int64_t block = global / per_block;
      if (block != made) {
        philox_block(stream, static_cast<std::uint64_t>(block), words);
        made = block;
      }
      emit(local, words, static_cast<std::uint32_t>(global - block * per_block));
    }
  }
}

// Values of each distribution: float32 from one or two words, float64 from half of a block.
__device__ inline float value_at(const std::uint32_t* words, std::uint32_t place,
                                 const UniformRange<float>& range) {
  return uniform_value(unit_f32(word_at(words, place)), range);
}
__device__ inline float value_at(const std::uint32_t* words, std::uint32_t place,
                                 const NormalShape<float>& shape) {
  const bool is_second = (place & 2U) != 0;
  const NormalPair<float> pair =
      normal_pair_f32(is_second ? words[2] : words[0], is_second ? words[3] : words[1]);
  return ((place & 1U) != 0 ? pair.sine : pair.cosine) * shape.std + shape.mean;
}

__device__ inline std::uint64_t first_half(const std::uint32_t* words) {
  return std::uint64_t{words[1]} << 32 | words[0];
}
__device__ inline std::uint64_t second_half(const std::uint32_t* words) {
  return std::uint64_t{words[3]} << 32 | words[2];
}
__device__ inline std::uint64_t half_at(const std::uint32_t* words, std::uint32_t place) {
  return place != 0 ? second_half(words) : first_half(words);
}
__device__ inline double value_at(const std::uint32_t* words, std::uint32_t place,
                                  const UniformRange<double>& range) {
  return uniform_value(unit_f64(half_at(words, place)), range);
}
__device__ inline double value_at(const std::uint32_t* words, std::uint32_t place,
                                  const NormalShape<double>& shape) {
  const NormalPair<double> pair = normal_pair_f64(first_half(words), second_half(words));
  return (place != 0 ? pair.sine : pair.cosine) * shape.std + shape.mean;
}

// Stores the value in its own type.
struct Same {
  template <class T>
  __device__ T operator()(T value) const {
    return value;
  }
};
struct ToBfloat16 {
  __device__ std::uint16_t operator()(float value) const { return bfloat16_bits(value); }
};
struct ToFloat16 {
  __device__ std::uint16_t operator()(float value) const { return float16_bits(value); }
};

template <std::int64_t per_block, class Rounding, class T, class Shape>
__device__ void fill(T* out, std::int64_t elements, const BoxRuns& box, const Stream& stream,
                     const Shape& shape) {
  for_elements<per_block>(elements, box, stream,
                          [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                            out[local] = Rounding{}(value_at(words, place, shape));
                          });
}

template <class T>
__device__ void fill_integers(T* out, std::int64_t elements, const BoxRuns& box,
                              const Stream& stream, const IntegerRange& range) {
  for_elements<2>(elements, box, stream,
                  [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                    out[local] = static_cast<T>(integer_value(half_at(words, place), range));
                  });
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void gt_uniform_f32(float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> shape) {
  gt::fill<4, gt::Same>(out, elements, box, stream, shape);
}

__global__ void gt_uniform_f64(double* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<double> shape) {
  gt::fill<2, gt::Same>(out, elements, box, stream, shape);
}

__global__ void gt_uniform_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::UniformRange<float> shape) {
  gt::fill<4, gt::ToBfloat16>(out, elements, box, stream, shape);
}

__global__ void gt_uniform_f16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> shape) {
  gt::fill<4, gt::ToFloat16>(out, elements, box, stream, shape);
}

__global__ void gt_normal_f32(float* out, std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                              gt::NormalShape<float> shape) {
  gt::fill<4, gt::Same>(out, elements, box, stream, shape);
}

__global__ void gt_normal_f64(double* out, std::int64_t elements, gt::BoxRuns box,
                              gt::Stream stream, gt::NormalShape<double> shape) {
  gt::fill<2, gt::Same>(out, elements, box, stream, shape);
}

__global__ void gt_normal_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::NormalShape<float> shape) {
  gt::fill<4, gt::ToBfloat16>(out, elements, box, stream, shape);
}

__global__ void gt_normal_f16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                              gt::Stream stream, gt::NormalShape<float> shape) {
  gt::fill<4, gt::ToFloat16>(out, elements, box, stream, shape);
}

__global__ void gt_integers_i64(std::int64_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range) {
  gt::fill_integers(out, elements, box, stream, range);
}

__global__ void gt_integers_i32(std::int32_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range) {
  gt::fill_integers(out, elements, box, stream, range);
}

__global__ void gt_bernoulli_mask(std::uint8_t* out, std::int64_t elements, gt::BoxRuns box,
                                  gt::Stream stream, std::uint64_t threshold) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        out[local] = gt::word_at(words, place) < threshold ? 1 : 0;
                      });
}

__global__ void gt_dropout_mask(std::uint8_t* keep, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, std::uint64_t threshold) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        keep[local] = gt::word_at(words, place) < threshold ? 0 : 1;
                      });
}

__global__ void gt_dropout_f32(const float* x, float* out, std::uint8_t* keep,
                               std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                               std::uint64_t threshold, float scale) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        const bool is_kept = gt::word_at(words, place) >= threshold;
                        if (keep != nullptr) {
                          keep[local] = is_kept ? 1 : 0;
                        }
                        // 0 times infinity or NaN is NaN, as in PyTorch.
                        out[local] = x[local] * (is_kept ? 1.0F : 0.0F) * scale;
                      });
}
}
