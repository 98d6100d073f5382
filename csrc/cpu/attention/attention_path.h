// Attention of one head by streaming softmax, once for each instruction set. Batches, heads and
// threads are attention.cpp's.
//
// Scores are made for a group of queries and a block of keys at a time, a query a lane: S^T = K
// Q^T. So maxima and sums of a softmax are vector operations, and its result already is stored as
// the products with it read it. No more scores than those of one group and one block exist at a
// time.
#pragma once

#include <cstdint>

#include "core/cpu_path.h"

namespace gt {

// Numbers of one head: row r, column c stands at data[r * row + c * column].
struct Rows {
  const float* data;
  std::int64_t row;
  std::int64_t column;
};

// Dropout of the weights: a seed for each query, or none where data is null.
struct Seeds {
  const std::int64_t* data;
  std::int64_t step;
  std::uint32_t dropped_last;  // the greatest word that drops
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

// What the gradient adds: all contiguous but grad.
struct HeadGradient {
  Rows grad;  // of the output
  float *grad_query, *grad_key, *grad_value;
};

struct AttentionPath {
  int group;  // queries that forward takes at a time, at most
  // Numbers that pack writes, and working memory of forward and of backward, for a head.
  std::int64_t (*packed_numbers)(const Head& head);
  std::int64_t (*forward_numbers)(const Head& head);
  std::int64_t (*backward_numbers)(const Head& head);

  // Copies of the keys and values that forward does not read where they are.
  void (*pack)(const Head& head, float* packed);
  // Output and logsumexp of queries [begin, begin + group).
  void (*forward)(const Head& head, const float* packed, std::int64_t begin, float* work);
  // All gradients, from the output and the logsumexp.
  void (*backward)(const Head& head, const HeadGradient& gradient, float* work);
};

extern const PathTable<AttentionPath> kAttention;

extern const AttentionPath kScalarAttention;
extern const AttentionPath kAvx2Attention;
extern const AttentionPath kAvx512Attention;

}  // namespace gt
