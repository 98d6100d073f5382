#include "cuda/host/row_calls.h"

#include <algorithm>
#include <stdexcept>

#include "cuda/host/grids.h"

namespace gt::cuda {
namespace {

constexpr std::int64_t kWarp = 32;
constexpr std::int64_t kThreadsMax = 1024;

// Grid of blocks with enough whole warps for a row, where a thread takes `columns_of_thread`
// columns.
Grid row_grid(const char* op, const Rows& rows, std::int64_t blocks,
              std::int64_t columns_of_thread = 1, std::int64_t threads_max = kThreadsMax) {
  if (rows.rows > kBlocksMax || rows.rows < 0 || rows.columns < 1) {
    throw std::invalid_argument(message(op, ": ", rows.rows, " rows of ", rows.columns,
                                        " columns; from 0 to ", kBlocksMax, " rows of 1 or more"));
  }
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(blocks);
  const std::int64_t threads = ceil_divided(rows.columns, columns_of_thread);
  grid.threads[0] =
      static_cast<unsigned>(std::min(threads_max, ceil_divided(threads, kWarp) * kWarp));
  return grid;
}

// Columns of a row that a thread of a norm holds; 1 where the row is not held: is_held() of
// rows.cu.
std::int64_t norm_columns_of_thread(const NormOperands& operands, const Rows& rows) {
  constexpr std::int64_t kChunk = 8;
  constexpr std::int64_t kHeld = kChunk * NormTile::kHeld;
  const auto& [x, residual, weight, bias, total, out, mean, rstd] = operands;
  const bool is_held = rows.columns % kChunk == 0 && rows.columns <= kHeld * kThreadsMax &&
                       (x | residual | weight | bias | total | out) % 16 == 0;
  return is_held ? kHeld : 1;
}

// Kernels in the order float32, bfloat16, float16.
template <class T>
const T& chosen(const char* op, const T (&kernels)[3], Element element) {
  switch (element) {
    case Element::kFloat32:
      return kernels[0];
    case Element::kBfloat16:
      return kernels[1];
    case Element::kFloat16:
      return kernels[2];
    default:
      throw DtypeError(message(op, ": no CUDA kernel takes ", element_name(element)));
  }
}

constexpr const char* kSource = "rows";

using NormKernel = Kernel<void(NormCall)>;

void norm(Launcher& launcher, const char* op, const NormKernel& kernel,
          const NormOperands& operands, const Rows& rows, float eps) {
  const auto& [x, residual, weight, bias, total, out, mean, rstd] = operands;
  const Grid grid = row_grid(op, rows, rows.rows, norm_columns_of_thread(operands, rows));
  if (rows.rows == 0) {
    return;
  }
  const int device = launcher.device_of(op, {x, residual, weight, bias, total, out, mean, rstd});
  launcher.launch(kernel, grid, {device, rows.queue_stream},
                  NormCall{at(x), at(residual), at(weight), at(bias), at(total), at(out),
                           at<float>(mean), at<float>(rstd), rows.columns, eps});
}

// Sums the blocks' partial sums into `out`, column by column.
void add_sums(Launcher& launcher, Address sums, Address out, std::int64_t blocks, const Rows& rows,
              const Queue& queue) {
  Grid grid;
  grid.threads[0] = 256;
  grid.blocks[0] = static_cast<unsigned>(ceil_divided(rows.columns, grid.threads[0]));
  const auto* from = at<const float>(sums);
  switch (rows.element) {
    case Element::kFloat32:
      return launcher.launch(GT_KERNEL(kSource, gt_add_sums_f32), grid, queue, from, blocks,
                             rows.columns, at<float>(out));
    case Element::kBfloat16:
      return launcher.launch(GT_KERNEL(kSource, gt_add_sums_bf16), grid, queue, from, blocks,
                             rows.columns, at<std::uint16_t>(out));
    default:
      return launcher.launch(GT_KERNEL(kSource, gt_add_sums_f16), grid, queue, from, blocks,
                             rows.columns, at<std::uint16_t>(out));
  }
}

}  // namespace

void cross_entropy(Launcher& launcher, const CrossEntropy& operands, const Rows& rows,
                   std::int64_t ignored, float scale) {
  constexpr Kernel<void(CrossEntropyCall)> kKernels[3] = {GT_KERNEL(kSource, gt_cross_entropy_f32),
                                                          GT_KERNEL(kSource, gt_cross_entropy_bf16),
                                                          GT_KERNEL(kSource, gt_cross_entropy_f16)};
  const auto& kernel = chosen("cross_entropy", kKernels, rows.element);
  const Grid grid = row_grid("cross_entropy", rows, rows.rows);
  if (rows.rows == 0) {
    return;
  }
  const auto& [logits, targets, loss, gradient, log_probs] = operands;
  const int device =
      launcher.device_of("cross_entropy", {logits, targets, loss, gradient, log_probs});
  launcher.launch(kernel, grid, {device, rows.queue_stream},
                  CrossEntropyCall{at(logits), at<const std::int64_t>(targets), at<float>(loss),
                                   at(gradient), at(log_probs), rows.columns, ignored, scale});
}

void cross_entropy_backward(Launcher& launcher, const CrossEntropyGradient& operands,
                            const Rows& rows, std::int64_t ignored, std::int64_t grad_step) {
  constexpr Kernel<void(CrossEntropyGradientCall)> kKernels[3] = {
      GT_KERNEL(kSource, gt_cross_entropy_backward_f32),
      GT_KERNEL(kSource, gt_cross_entropy_backward_bf16),
      GT_KERNEL(kSource, gt_cross_entropy_backward_f16)};
  const auto& kernel = chosen("cross_entropy_backward", kKernels, rows.element);
  const Grid grid = row_grid("cross_entropy_backward", rows, rows.rows);
  if (rows.rows == 0) {
    return;
  }
  const auto& [log_probs, targets, grad, total, gradient] = operands;
  const int device =
      launcher.device_of("cross_entropy_backward", {log_probs, targets, grad, total, gradient});
  launcher.launch(
      kernel, grid, {device, rows.queue_stream},
      CrossEntropyGradientCall{at(log_probs), at<const std::int64_t>(targets), at(grad), at(total),
                               at(gradient), rows.columns, ignored, grad_step});
}

void rms_norm(Launcher& launcher, const NormOperands& operands, const Rows& rows, float eps) {
  constexpr NormKernel kKernels[3] = {GT_KERNEL(kSource, gt_rms_norm_f32),
                                      GT_KERNEL(kSource, gt_rms_norm_bf16),
                                      GT_KERNEL(kSource, gt_rms_norm_f16)};
  norm(launcher, "rms_norm", chosen("rms_norm", kKernels, rows.element), operands, rows, eps);
}

void layer_norm(Launcher& launcher, const NormOperands& operands, const Rows& rows, float eps) {
  constexpr NormKernel kKernels[3] = {GT_KERNEL(kSource, gt_layer_norm_f32),
                                      GT_KERNEL(kSource, gt_layer_norm_bf16),
                                      GT_KERNEL(kSource, gt_layer_norm_f16)};
  norm(launcher, "layer_norm", chosen("layer_norm", kKernels, rows.element), operands, rows, eps);
}

std::int64_t norm_blocks(std::int64_t rows) {
  return std::min<std::int64_t>(rows, NormGradientTile::kBlocksMax);
}

void norm_backward(Launcher& launcher, const NormGradient& gradient, const Rows& rows, float eps) {
  constexpr Kernel<void(NormGradientCall)> kPlain[3] = {
      GT_KERNEL(kSource, gt_rms_norm_backward_f32), GT_KERNEL(kSource, gt_rms_norm_backward_bf16),
      GT_KERNEL(kSource, gt_rms_norm_backward_f16)};
  constexpr Kernel<void(NormGradientCall)> kCentered[3] = {
      GT_KERNEL(kSource, gt_layer_norm_backward_f32),
      GT_KERNEL(kSource, gt_layer_norm_backward_bf16),
      GT_KERNEL(kSource, gt_layer_norm_backward_f16)};
  const auto& [total, mean, rstd, weight, grad, grad_total, grad_x, weight_sums, bias_sums,
               grad_weight, grad_bias] = gradient;
  const bool is_centered = grad_bias != 0;  // not bias_sums: its address is 0 for zero rows too
  const auto& kernel = chosen("norm_backward", is_centered ? kCentered : kPlain, rows.element);
  const std::int64_t blocks = norm_blocks(rows.rows);
  constexpr std::int64_t kHeld = NormGradientTile::kHeld;
  constexpr std::int64_t kGradientThreadsMax = NormGradientTile::kThreadsMax;
  const bool is_held =
      rows.columns % kHeld == 0 && rows.columns <= kHeld * kGradientThreadsMax &&
      (total | weight | grad | grad_total | grad_x | weight_sums | bias_sums) % 16 == 0;
  const Grid grid =
      row_grid("norm_backward", rows, blocks, is_held ? kHeld : 1, kGradientThreadsMax);
  const Queue queue{
      launcher.device_of("norm_backward", {total, mean, rstd, weight, grad, grad_total, grad_x,
                                           weight_sums, bias_sums, grad_weight, grad_bias}),
      rows.queue_stream};
  if (rows.rows > 0) {
    launcher.launch(
        kernel, grid, queue,
        NormGradientCall{at(total), at<const float>(mean), at<const float>(rstd), at(weight),
                         at(grad), at(grad_total), at(grad_x), at<float>(weight_sums),
                         at<float>(bias_sums), rows.rows, rows.columns, eps});
  }
  add_sums(launcher, weight_sums, grad_weight, blocks, rows, queue);
  if (is_centered) {
    add_sums(launcher, bias_sums, grad_bias, blocks, rows, queue);
  }
}

}  // namespace gt::cuda
