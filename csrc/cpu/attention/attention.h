// Attention over batches and heads: checks, working memory and threads.
#pragma once

#include "core/tensor_view.h"

namespace gt {

// softmax(query @ key^T * scale + mask) @ value, in float32.
struct AttentionCall {
  TensorView output;                 // [b, h, t, v], contiguous
  TensorView logsumexp;              // [b, h, t], contiguous
  TensorView query;                  // [b, h, t, k]
  TensorView key;                    // [b, h, s, k]
  TensorView value;                  // [b, h, s, v]
  const TensorView* mask = nullptr;  // [b, h, t, s]; broadcast by strides of 0
  // Drops weights with this probability where there are seeds: [b, h, t], int64, one a query.
  const TensorView* seeds = nullptr;
  double dropout_p = 0;
  bool is_causal = false;
  double scale = 1;
  int threads = 1;
};

// The gradients are contiguous and of the operands' shapes.
struct AttentionGradient {
  TensorView grad;
  TensorView grad_query;
  TensorView grad_key;
  TensorView grad_value;
};

// Throw std::invalid_argument or DtypeError where the operands do not fit.
void check_attention(const AttentionCall& call);
void check_attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p);
void check_attention_gradient(const AttentionCall& call, const AttentionGradient& gradient);

// Which weights are kept: 1 or 0 into kept [b, h, t, s], bool, contiguous. As attention does it.
void attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p);

// The bits do not depend on threads. backward uses a thread for a head at most.
void attention(const AttentionCall& call);
void attention_backward(const AttentionCall& call, const AttentionGradient& gradient);

}  // namespace gt
