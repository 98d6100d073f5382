// Kernels that workers call (cuda/host/worker_calls.h), and their arguments.
#pragma once

#include <gt_device.h>

#include "algo/box_runs.h"
#include "algo/philox.h"
#include "algo/random_values.h"
#include "cuda/attention.h"
#include "cuda/gemm.h"
#include "cuda/rows.h"
#include "cuda/tensor_map.h"

namespace gt {

struct AdamwTensor {
  float* parameter;
  const float* gradient;
  float* mean;    // running mean of the gradient
  float* square;  // running mean of the gradient's square
  std::int64_t elements;
  std::uint32_t first_block;  // within the launch; one block has blockDim.x elements
};

struct AdamwStep {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  // 1 - beta^step
};

}  // namespace gt

extern "C" {

// ---- random.cu: out[i] depends on the index of element i in the whole tensor; any grid ----
__global__ void gt_uniform_f32(float* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> shape);
__global__ void gt_uniform_f64(double* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<double> shape);
__global__ void gt_uniform_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::UniformRange<float> shape);
__global__ void gt_uniform_f16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::UniformRange<float> shape);
__global__ void gt_normal_f32(float* out, std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                              gt::NormalShape<float> shape);
__global__ void gt_normal_f64(double* out, std::int64_t elements, gt::BoxRuns box,
                              gt::Stream stream, gt::NormalShape<double> shape);
__global__ void gt_normal_bf16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                               gt::Stream stream, gt::NormalShape<float> shape);
__global__ void gt_normal_f16(std::uint16_t* out, std::int64_t elements, gt::BoxRuns box,
                              gt::Stream stream, gt::NormalShape<float> shape);
__global__ void gt_integers_i64(std::int64_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range);
__global__ void gt_integers_i32(std::int32_t* out, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, gt::IntegerRange range);
// threshold: number of the 2^32 words that give 1 (bernoulli), or drop an element.
__global__ void gt_bernoulli_mask(std::uint8_t* out, std::int64_t elements, gt::BoxRuns box,
                                  gt::Stream stream, std::uint64_t threshold);
__global__ void gt_dropout_mask(std::uint8_t* keep, std::int64_t elements, gt::BoxRuns box,
                                gt::Stream stream, std::uint64_t threshold);
// out = x * mask * scale, in this order; keep may be nullptr.
__global__ void gt_dropout_f32(const float* x, float* out, std::uint8_t* keep,
                               std::int64_t elements, gt::BoxRuns box, gt::Stream stream,
                               std::uint64_t threshold, float scale);

// ---- rows.cu: blocks of whole warps, grid.x rows. Gradients of norms have up to
// NormGradientTile::kBlocksMax blocks, whose sums gt_add_sums adds with a thread for each column
// ----
__global__ void gt_cross_entropy_f32(gt::CrossEntropyCall call);
__global__ void gt_cross_entropy_bf16(gt::CrossEntropyCall call);
__global__ void gt_cross_entropy_f16(gt::CrossEntropyCall call);
__global__ void gt_cross_entropy_backward_f32(gt::CrossEntropyGradientCall call);
__global__ void gt_cross_entropy_backward_bf16(gt::CrossEntropyGradientCall call);
__global__ void gt_cross_entropy_backward_f16(gt::CrossEntropyGradientCall call);
__global__ void gt_rms_norm_f32(gt::NormCall call);
__global__ void gt_rms_norm_bf16(gt::NormCall call);
__global__ void gt_rms_norm_f16(gt::NormCall call);
__global__ void gt_layer_norm_f32(gt::NormCall call);
__global__ void gt_layer_norm_bf16(gt::NormCall call);
__global__ void gt_layer_norm_f16(gt::NormCall call);
__global__ void gt_rms_norm_backward_f32(gt::NormGradientCall call);
__global__ void gt_rms_norm_backward_bf16(gt::NormGradientCall call);
__global__ void gt_rms_norm_backward_f16(gt::NormGradientCall call);
__global__ void gt_layer_norm_backward_f32(gt::NormGradientCall call);
__global__ void gt_layer_norm_backward_bf16(gt::NormGradientCall call);
__global__ void gt_layer_norm_backward_f16(gt::NormGradientCall call);
__global__ void gt_add_sums_f32(const float* sums, std::int64_t blocks, std::int64_t columns,
                                float* out);
__global__ void gt_add_sums_bf16(const float* sums, std::int64_t blocks, std::int64_t columns,
                                 std::uint16_t* out);
__global__ void gt_add_sums_f16(const float* sums, std::int64_t blocks, std::int64_t columns,
                                std::uint16_t* out);

// ---- adamw.cu: tensors sorted by first_block ----
__global__ void gt_adamw_f32(const gt::AdamwTensor* tensors, std::uint32_t count,
                             gt::AdamwStep step);

// ---- gemm.cu: grid (tiles of the result, batches), GemmTile::kThreads and kSharedBytes ----
// nn: a [rows, depth], b [depth, columns]; nt: b [columns, depth]; tn: a [depth, rows].
__global__ void gt_gemm_nn_bf16(gt::GemmCall call);
__global__ void gt_gemm_nt_bf16(gt::GemmCall call);
__global__ void gt_gemm_tn_bf16(gt::GemmCall call);
__global__ void gt_gemm_nn_f16(gt::GemmCall call);
__global__ void gt_gemm_nt_f16(gt::GemmCall call);
__global__ void gt_gemm_tn_f16(gt::GemmCall call);
// Several products in one launch, of one batch each; grid (tiles of all).
__global__ void gt_grouped_gemm_nn_bf16(const gt::GemmGroup* groups, std::uint32_t count);
__global__ void gt_grouped_gemm_nt_bf16(const gt::GemmGroup* groups, std::uint32_t count);
__global__ void gt_grouped_gemm_tn_bf16(const gt::GemmGroup* groups, std::uint32_t count);
__global__ void gt_grouped_gemm_nn_f16(const gt::GemmGroup* groups, std::uint32_t count);
__global__ void gt_grouped_gemm_nt_f16(const gt::GemmGroup* groups, std::uint32_t count);
__global__ void gt_grouped_gemm_tn_f16(const gt::GemmGroup* groups, std::uint32_t count);

// ---- skinny.cu: at most SkinnyTile::kRowsMax rows, stored as for nt; grid (any, batches) ----
__global__ void gt_skinny_nt_bf16(gt::GemmCall call);
__global__ void gt_skinny_nt_f16(gt::GemmCall call);

// ---- attention.cu: grid (tiles of queries, heads, batches), AttentionForwardTile ----
__global__ void gt_attention_64_bf16(gt::DeviceAttention call);
__global__ void gt_attention_128_bf16(gt::DeviceAttention call);
__global__ void gt_attention_64_f16(gt::DeviceAttention call);
__global__ void gt_attention_128_f16(gt::DeviceAttention call);

// ---- attention_backward.cu: first the products; then the gradients in any order, with grids
// (tiles of queries, heads, batches) and (tiles of keys, heads of keys, batches) ----
__global__ void gt_attention_products_bf16(gt::DeviceAttention call,
                                           gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_products_f16(gt::DeviceAttention call,
                                          gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_query_64_bf16(gt::DeviceAttention call,
                                                gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_query_128_bf16(gt::DeviceAttention call,
                                                 gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_query_64_f16(gt::DeviceAttention call,
                                               gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_query_128_f16(gt::DeviceAttention call,
                                                gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_key_64_bf16(gt::DeviceAttention call,
                                              gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_key_128_bf16(gt::DeviceAttention call,
                                               gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_key_64_f16(gt::DeviceAttention call,
                                             gt::DeviceAttentionGradient gradient);
__global__ void gt_attention_grad_key_128_f16(gt::DeviceAttention call,
                                              gt::DeviceAttentionGradient gradient);

// ---- attention_sm90.cu: AttentionHopperTile, grid (blocks) ----
__global__ void gt_attention_sm90_64_bf16(const __grid_constant__ gt::TensorMap query,
                                          const __grid_constant__ gt::TensorMap key,
                                          const __grid_constant__ gt::TensorMap value,
                                          gt::DeviceAttention call, std::uint32_t batches);
__global__ void gt_attention_sm90_128_bf16(const __grid_constant__ gt::TensorMap query,
                                           const __grid_constant__ gt::TensorMap key,
                                           const __grid_constant__ gt::TensorMap value,
                                           gt::DeviceAttention call, std::uint32_t batches);
__global__ void gt_attention_sm90_64_f16(const __grid_constant__ gt::TensorMap query,
                                         const __grid_constant__ gt::TensorMap key,
                                         const __grid_constant__ gt::TensorMap value,
                                         gt::DeviceAttention call, std::uint32_t batches);
__global__ void gt_attention_sm90_128_f16(const __grid_constant__ gt::TensorMap query,
                                          const __grid_constant__ gt::TensorMap key,
                                          const __grid_constant__ gt::TensorMap value,
                                          gt::DeviceAttention call, std::uint32_t batches);

// ---- attention_backward_sm90.cu: AttentionHopperQueryTile and AttentionHopperKeyTile, grid
// (blocks) ----
__global__ void gt_attention_grad_query_sm90_64_bf16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_query_sm90_128_bf16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_query_sm90_64_f16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_query_sm90_128_f16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_key_sm90_64_bf16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_key_sm90_128_bf16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_key_sm90_64_f16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);
__global__ void gt_attention_grad_key_sm90_128_f16(
    const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,
    const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,
    gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches);

// ---- gemm_sm90.cu: HopperTile<columns>, grid (blocks), in clusters of two ----
__global__ void gt_gemm_sm90_256_nn_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_256_nt_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_256_tn_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_256_nn_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
__global__ void gt_gemm_sm90_256_nt_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
__global__ void gt_gemm_sm90_256_tn_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
__global__ void gt_gemm_sm90_128_nn_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_128_nt_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_128_tn_bf16(const __grid_constant__ gt::TensorMap a,
                                         const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                         std::uint32_t batches);
__global__ void gt_gemm_sm90_128_nn_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
__global__ void gt_gemm_sm90_128_nt_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
__global__ void gt_gemm_sm90_128_tn_f16(const __grid_constant__ gt::TensorMap a,
                                        const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                                        std::uint32_t batches);
}
