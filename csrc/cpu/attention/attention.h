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
  // Drops weights with probability dropout_p where there are seeds: [b, h, t], int64, one for each
  // query.
  const TensorView* seeds = nullptr;
  double dropout_p = 0;
  bool is_causal = false;
  double scale = 1;
  int threads = 1;
};

// Gradients are contiguous and have the shapes of the operands.
struct AttentionGradient {
  TensorView grad;
  TensorView grad_query;
  TensorView grad_key;
  TensorView grad_value;
};

// These throw std::invalid_argument or DtypeError where the operands do not fit.
void check_attention(const AttentionCall& call);
void check_attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p);
void check_attention_gradient(const AttentionCall& call, const AttentionGradient& gradient);

// Writes attention's dropout mask to kept [b, h, t, s], bool, contiguous: 1 for each kept weight.
void attention_kept(const TensorView& kept, const TensorView& seeds, double dropout_p);

// Bits do not depend on the number of threads. The backward pass uses at most one thread a head.
void attention(const AttentionCall& call);
void attention_backward(const AttentionCall& call, const AttentionGradient& gradient);

}  // namespace gt
