// A matrix product in bfloat16 or float16 with what follows it: its arguments.
#pragma once

#include <cstdint>

namespace gt {

enum class Activation : std::uint32_t { kNone, kRelu, kGelu, kSilu };

// A matrix of 16-bit elements: rows of `step` elements, from batch to batch `batch_step`.
struct GemmOperand {
  const std::uint16_t* data;
  std::int64_t step;
  std::int64_t batch_step;
};

// out[m, n] = activation(scale * sum over k of a[m, k] b[k, n] + bias[n]) + residual[m, n].
// How a and b are stored is the kernel's: what stands side by side there starts at multiples of 16
// bytes and has a multiple of 8 elements. `columns` is even.
struct GemmCall {
  GemmOperand a;
  GemmOperand b;
  const std::uint16_t* bias;  // or nullptr
  GemmOperand residual;       // data may be nullptr
  void* out;                  // of the operands' type or float32; dense
  bool is_float_out;
  std::int64_t rows, columns, depth;
  float scale;
  Activation activation;
};

// One of several products of one launch: its blocks are those from `first_tile` on.
struct GemmGroup {
  GemmCall call;
  std::uint32_t first_tile;
};

struct SkinnyTile {
  static constexpr unsigned kRowsMax = 8;  // of a
  static constexpr unsigned kThreads = 128;
  static constexpr unsigned kColumns = 16;  // of the result, that a block has at a time
};

struct GemmTile {
  static constexpr unsigned kRows = 128;
  static constexpr unsigned kColumns = 128;
  static constexpr unsigned kDepth = 32;
  static constexpr unsigned kStages = 3;
  static constexpr unsigned kThreads = 256;
  static constexpr unsigned kSharedBytes = kStages * (kRows + kColumns) * kDepth * 2;
  // Blocks that follow each other take this many tiles below each other, and so share their b.
  static constexpr unsigned kGroupRows = 8;
};
static_assert(GemmTile::kSharedBytes <= 48 * 1024, "more needs an attribute of the function");

}  // namespace gt
