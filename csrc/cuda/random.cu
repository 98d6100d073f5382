// Random numbers where they are needed: no copy from the host, and the same bits as csrc/cpu,
// because both compile algo/. To be compiled without fused multiply-adds (-fmad=false).
#include "cuda/kernels.h"

namespace gt {
namespace {

constexpr std::int64_t kThreadElements = 4;  // one Philox block of 32-bit values

__device__ inline std::uint32_t word_at(const std::uint32_t* words, std::uint32_t place) {
  const std::uint32_t low = (place & 1U) != 0 ? words[1] : words[0];
  const std::uint32_t high = (place & 1U) != 0 ? words[3] : words[2];
  return (place & 2U) != 0 ? high : low;
}

// Calls emit(local, words, place) for each element: the words of its block, and its place there.
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

__device__ inline float uniform_at(const std::uint32_t* words, std::uint32_t place,
                                   const UniformRange<float>& range) {
  return uniform_value(unit_f32(word_at(words, place)), range);
}

__device__ inline float normal_at(const std::uint32_t* words, std::uint32_t place,
                                  const NormalShape<float>& shape) {
  const bool is_second = (place & 2U) != 0;
  const NormalPair<float> pair =
      normal_pair_f32(is_second ? words[2] : words[0], is_second ? words[3] : words[1]);
  return ((place & 1U) != 0 ? pair.sine : pair.cosine) * shape.std + shape.mean;
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void gt_uniform_f32(float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> range) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        out[local] = gt::uniform_at(words, place, range);
                      });
}

__global__ void gt_uniform_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::UniformRange<float> range) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        out[local] = gt::bfloat16_bits(gt::uniform_at(words, place, range));
                      });
}

__global__ void gt_normal_f32(float* out, std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                              gt::NormalShape<float> shape) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        out[local] = gt::normal_at(words, place, shape);
                      });
}

__global__ void gt_normal_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::NormalShape<float> shape) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        out[local] = gt::bfloat16_bits(gt::normal_at(words, place, shape));
                      });
}

__global__ void gt_integers_i64(std::int64_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range) {
  gt::for_elements<2>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        const std::uint64_t low = place != 0 ? words[2] : words[0];
                        const std::uint64_t high = place != 0 ? words[3] : words[1];
                        out[local] = gt::integer_value(high << 32 | low, range);
                      });
}

__global__ void gt_dropout_mask(std::uint8_t* keep, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, std::uint64_t threshold) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        keep[local] = gt::word_at(words, place) < threshold ? 0 : 1;
                      });
}

__global__ void gt_dropout_f32(const float* x, float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, std::uint64_t threshold, float scale) {
  gt::for_elements<4>(elements, box, stream,
                      [&](std::int64_t local, const std::uint32_t* words, std::uint32_t place) {
                        const bool is_kept = gt::word_at(words, place) >= threshold;
                        out[local] = is_kept ? x[local] * scale : 0.0F;
                      });
}
}
