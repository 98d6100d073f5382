// Attention in bfloat16 or float16 by streaming softmax: arguments and tile sizes.
#pragma once

#include <cstdint>

namespace gt {

// Rows of 16-bit elements, with the strides in elements from row to row, from head to head and from
// batch to batch. A row begins at a multiple of 16 bytes.
struct AttentionRows {
  const std::uint16_t* data;
  std::int64_t row, head, batch;
};

// output = (softmax(query @ key^T * scale) with dropped weights) @ value.
// Results are dense: output [b, h, t, width], logsumexp [b, h, t].
struct DeviceAttention {
  AttentionRows query;         // [b, h, t, width]
  AttentionRows key, value;    // [b, h / sharing, s, width]
  const std::int64_t* seeds;   // [b, h, t], dense, for dropout as in cpu/attention/kept.h; or 0
  std::uint32_t dropped_last;  // the greatest random word that drops a weight
  float kept_factor;           // 1 / (1 - p)
  std::uint32_t heads;         // heads of queries
  std::uint32_t sharing;       // heads of queries for each head of keys
  std::uint32_t width;         // a multiple of 8, up to the tile's
  bool is_causal;              // query i sees keys up to i
  std::int32_t queries, keys;
  float scale;
  std::uint16_t* output;
  float* logsumexp;
};

// Further arguments of the gradient. Gradients are dense and have the shapes of the operands.
struct DeviceAttentionGradient {
  AttentionRows grad;  // gradient of the output
  float* products;     // [b, h, t]: sum of grad * output over a row
  std::uint16_t *grad_query, *grad_key, *grad_value;
};

// A block holds `held` panels of kRows rows, and each of its four warps has kRowTiles * 16 of them.
// It goes over pairs of panels of kColumns rows in two stages.
template <unsigned width, unsigned row_tiles, unsigned columns, unsigned held, unsigned term_bytes>
struct AttentionTile {
  static constexpr unsigned kWidth = width;
  static constexpr unsigned kRowTiles = row_tiles;
  static constexpr unsigned kColumns = columns;
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kRows = kThreads / 32 * 16 * kRowTiles;
  static constexpr unsigned kHeldElements = kRows * kWidth;
  static constexpr unsigned kStageElements = kColumns * kWidth;  // one panel of the pair
  static constexpr unsigned kStages = 2;
  static constexpr unsigned kPanelBytes = (held * kHeldElements + kStages * 2 * kStageElements) * 2;
  static constexpr unsigned kSharedBytes = kPanelBytes + kStages * kColumns * term_bytes;
};

// Tile of the forward pass: rows are queries, columns are keys.
template <unsigned width>
using AttentionForwardTile = AttentionTile<width, 2, width == 64 ? 48 : 32, 1, 0>;
template <unsigned width>
using AttentionQueryTile = AttentionTile<width, width == 64 ? 2 : 1, 32, 2, 0>;
// Tile of the gradients of keys and values: rows are keys, columns are queries. Each query brings
// its logsumexp, product and seed.
template <unsigned width>
using AttentionKeyTile = AttentionTile<width, 1, width == 64 ? 64 : 32, 2, 16>;

struct AttentionProductsTile {
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kRows = 4;  // one row for each warp
};

}  // namespace gt
