// Launches of the kernels of rows. All throw CudaError, DtypeError, or std::invalid_argument with
// the sizes.
#pragma once

#include "cuda/host/worker_calls.h"

namespace gt::cuda {

struct Rows {
  Element element;  // float32 bfloat16 float16
  std::int64_t rows, columns;
  std::uintptr_t queue_stream;
};

// cuda/rows.h defines what they compute; addresses that may be nullptr there may be 0 here.
struct CrossEntropy {
  Address logits, targets, loss, gradient, log_probs;
};
void cross_entropy(Launcher& launcher, const CrossEntropy& operands, const Rows& rows,
                   std::int64_t ignored, float scale);

struct CrossEntropyGradient {
  Address log_probs, targets, grad, total, gradient;
};
void cross_entropy_backward(Launcher& launcher, const CrossEntropyGradient& operands,
                            const Rows& rows, std::int64_t ignored, std::int64_t grad_step);

struct NormOperands {
  Address x, residual, weight, bias, total, out;  // bias: 0 for RMSNorm
  Address mean, rstd;
};
void rms_norm(Launcher& launcher, const NormOperands& operands, const Rows& rows, float eps);
void layer_norm(Launcher& launcher, const NormOperands& operands, const Rows& rows, float eps);

struct NormGradient {
  Address total, mean, rstd, weight, grad, grad_total, grad_x;
  Address weight_sums, bias_sums;  // working memory of norm_blocks * columns float32 each
  Address grad_weight, grad_bias;  // both of bias are 0 for RMSNorm
};
std::int64_t norm_blocks(std::int64_t rows);
void norm_backward(Launcher& launcher, const NormGradient& gradient, const Rows& rows, float eps);

}  // namespace gt::cuda
