// Tile sizes of attention_sm90.cu, shared by its kernels and their launches.
#pragma once

#include "cuda/attention.h"
#include "cuda/tensor_map.h"

namespace gt {

// A block has 128 queries of a head at a time, each of two warpgroups 64, and goes over the keys
// and the values in panels of 128 rows, which one warp of a third warpgroup copies into a ring.
template <unsigned width>
struct AttentionHopperTile {
  static constexpr unsigned kWidth = width;
  static constexpr unsigned kRows = 128;
  static constexpr unsigned kColumns = 128;  // keys in one panel
  static constexpr unsigned kConsumers = 2;
  static constexpr unsigned kWarpgroup = 128;
  static constexpr unsigned kThreads = (1 + kConsumers) * kWarpgroup;
  static constexpr unsigned kSwizzleBytes = 128;
  static constexpr unsigned kBoxWidth = 64;  // elements: a row of the swizzle
  static constexpr unsigned kBoxes = kWidth / kBoxWidth;
  static constexpr unsigned kBoxBytes = kRows * kSwizzleBytes;
  static constexpr unsigned kPanelBytes = kBoxes * kBoxBytes;
  static constexpr unsigned kStages = width == 64 ? 8 : 5;
  static constexpr unsigned kBarriers = 2 * kStages + 2;
  static constexpr unsigned kOutBytes = 16 * kSwizzleBytes;  // 16 rows of 64 columns of a warp
  static constexpr unsigned kOutAt = (1 + kStages) * kPanelBytes;
  static constexpr unsigned kBarriersAt = kOutAt + kConsumers * kWarpgroup / 32 * kOutBytes;
  static constexpr unsigned kSharedBytes = kBarriersAt + kBarriers * 8;
};
// Tile of the gradients: a block holds two panels of 128 rows and goes over pairs of panels of
// `columns` rows. Rows are queries and columns keys, or rows are keys and columns queries with
// their terms.
template <unsigned width, unsigned columns, unsigned stages, unsigned term_bytes>
struct AttentionHopperGradientTile {
  static constexpr unsigned kWidth = width;
  static constexpr unsigned kRows = 128;
  static constexpr unsigned kColumns = columns;
  static constexpr unsigned kConsumers = 2;
  static constexpr unsigned kThreads = (1 + kConsumers) * 128;
  static constexpr unsigned kStages = stages;
  static constexpr unsigned kHeldBytes = kRows * kWidth * 2;  // one of the two panels
  static constexpr unsigned kPanelBytes = kColumns * kWidth * 2;
  static constexpr unsigned kOutAt = 2 * kHeldBytes + kStages * 2 * kPanelBytes;
  static constexpr unsigned kTermsAt = kOutAt + kConsumers * 4 * 16 * 128;
  static constexpr unsigned kTermBytes = kColumns * term_bytes;
  static constexpr unsigned kBarriersAt = kTermsAt + kStages * kTermBytes;
  static constexpr unsigned kSharedBytes = kBarriersAt + (2 * kStages + 2) * 8;
};
template <unsigned width>
using AttentionHopperQueryTile =
    AttentionHopperGradientTile<width, width == 64 ? 128 : 64, width == 64 ? 4 : 4, 0>;
template <unsigned width>
using AttentionHopperKeyTile = AttentionHopperGradientTile<width, 64, width == 64 ? 6 : 4, 8>;
static_assert(AttentionHopperQueryTile<128>::kSharedBytes <= 227 * 1024, "of a block on sm_90");
static_assert(AttentionHopperKeyTile<128>::kSharedBytes <= 227 * 1024, "of a block on sm_90");
static_assert(AttentionHopperTile<128>::kSharedBytes <= 227 * 1024, "of a block on sm_90");

}  // namespace gt
