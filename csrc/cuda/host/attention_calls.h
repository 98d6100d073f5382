// Launches of attention's kernels. All throw CudaError, or std::invalid_argument with the sizes.
#pragma once

#include "cuda/host/worker_calls.h"

namespace gt::cuda {

struct AttentionOperand {
  Address address;
  std::int64_t row, head, batch;  // strides in elements
};

struct AttentionSizes {
  std::int64_t batches, heads, key_heads, queries, keys, width;
};

// cuda/attention.h defines the computation and the layout of the operands.
struct AttentionLaunch {
  Element element;  // bfloat16 or float16
  AttentionSizes sizes;
  AttentionOperand query, key, value;
  Address seeds;  // or 0; then dropout_p is not read
  double dropout_p;
  bool is_causal;
  float scale;
  Address output, logsumexp;  // written by attention, read by its gradient
  std::uintptr_t queue_stream;
};

struct AttentionGradientLaunch {
  AttentionOperand grad;  // gradient of the output
  Address products;       // working memory of one float32 for each query
  Address grad_query, grad_key, grad_value;
};

void attention(Launcher& launcher, const AttentionLaunch& given);
void attention_backward(Launcher& launcher, const AttentionLaunch& given,
                        const AttentionGradientLaunch& gradient);

}  // namespace gt::cuda
