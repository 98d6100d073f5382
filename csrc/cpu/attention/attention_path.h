// Attention of one head by streaming softmax, once for each instruction set. Batches, heads and
// threads belong to attention.cpp.
//
// Scores are computed for a group of queries and a block of keys at a time, with one query in each
// lane: S^T = K Q^T. Maxima and sums of a softmax are then vector operations, and its result is
// already stored in the layout that the next products read. The scores of one group and one block
// are all that exist at a time.
// time.
#pragma once

#include <cstdint>

#include "core/cpu_path.h"

namespace gt {

// Numbers of one head: element (r, c) is data[r * row + c * column].
struct Rows {
  const float* data;
  std::int64_t row;
  std::int64_t column;
};

// Dropout of the weights: one seed for each query, or no dropout where data is null.
struct Seeds {
  const std::int64_t* data;
  std::int64_t step;
  std::uint32_t dropped_last;  // the greatest random word that drops a weight
  float kept_factor;           // 1 / (1 - p)
};

struct Head {
  std::int64_t queries, keys, width, value_width;
  Rows query, key, value;
  Rows mask;  // [queries, keys], added to the scores; data may be null
  Seeds seeds;
  bool is_causal;
  float scale;
  float* output;     // [queries, value_width], contiguous
  float* logsumexp;  // [queries]
};

// Further operands of the gradient, all contiguous except grad.
struct HeadGradient {
  Rows grad;  // gradient of the output
  float *grad_query, *grad_key, *grad_value;
};

struct AttentionPath {
  int group;  // maximum number of queries in one call of forward
  // Sizes, in numbers, of the packed operands and of the working memory for a head.
  std::int64_t (*packed_numbers)(const Head& head);
  std::int64_t (*forward_numbers)(const Head& head);
  std::int64_t (*backward_numbers)(const Head& head);

  // Copies the keys and values that forward cannot read in place.
  void (*pack)(const Head& head, float* packed);
  // Computes output and logsumexp of queries [begin, begin + group).
  void (*forward)(const Head& head, const float* packed, std::int64_t begin, float* work);
  // Computes all gradients, from the output and the logsumexp.
  void (*backward)(const Head& head, const HeadGradient& gradient, float* work);
};

extern const PathTable<AttentionPath> kAttention;

extern const AttentionPath kScalarAttention;
extern const AttentionPath kAvx2Attention;
extern const AttentionPath kAvx512Attention;

}  // namespace gt
