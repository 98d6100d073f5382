#include "cuda/host/hopper_attention.h"

#include <algorithm>

#include "cuda/attention_sm90.h"
#include "cuda/host/grids.h"
#include "cuda/worker_kernels.h"

namespace gt::cuda {
namespace {

constexpr int kCapability = 90;                           // sm_90a's code needs just this
constexpr std::int64_t kStepMax = std::int64_t{1} << 39;  // elements: 2^40 bytes
constexpr std::int64_t kNarrowWidthMax = 64;
constexpr std::int64_t kLeastStep = 8;  // elements in 16 bytes

// True where a tensor copy accepts the strides; those of dims of one element are not used.
bool is_mapped(const AttentionOperand& operand, std::int64_t rows, std::int64_t heads,
               std::int64_t batches) {
  const auto is_stride = [](std::int64_t count, std::int64_t step) {
    return count == 1 || (step >= kLeastStep && step < kStepMax);
  };
  return is_stride(rows, operand.row) && is_stride(heads, operand.head) &&
         is_stride(batches, operand.batch);
}

// Encodes the operand for copies in boxes of 64 elements by `box_rows` rows of a head.
TensorMap map_of(Launcher& launcher, int device, const AttentionLaunch& given,
                 const AttentionOperand& operand, std::int64_t rows, std::int64_t heads,
                 std::uint32_t box_rows) {
  const auto bytes = [](std::int64_t count, std::int64_t step) {
    return static_cast<std::uint64_t>(count == 1 ? kLeastStep : step) * 2;
  };
  const std::int64_t batches = given.sizes.batches;
  return launcher.map(
      device,
      {operand.address,
       given.element == Element::kBfloat16,
       4,
       {static_cast<std::uint64_t>(given.sizes.width), static_cast<std::uint64_t>(rows),
        static_cast<std::uint64_t>(heads), static_cast<std::uint64_t>(batches)},
       {bytes(rows, operand.row), bytes(heads, operand.head), bytes(batches, operand.batch)},
       {64, box_rows, 1, 1}});
}

constexpr unsigned kTileRows = AttentionHopperTile<64>::kRows;  // the same in all tiles

std::int64_t tiles_of(std::int64_t rows, std::int64_t heads, const AttentionSizes& sizes) {
  return ceil_divided(rows, kTileRows) * heads * sizes.batches;
}

// Grid of persistent blocks, one on each multiprocessor.
template <class Tile>
Grid grid_of(Launcher& launcher, int device, std::int64_t tiles) {
  static_assert(Tile::kRows == kTileRows);
  const std::int64_t processors = std::max(1, launcher.facts(device).processors);
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(std::min(processors, tiles));
  grid.threads[0] = Tile::kThreads;
  grid.shared_bytes = Tile::kSharedBytes;
  return grid;
}

using HopperKernel = Kernel<void(TensorMap, TensorMap, TensorMap, DeviceAttention, std::uint32_t)>;
using HopperGradient = Kernel<void(TensorMap, TensorMap, TensorMap, TensorMap, DeviceAttention,
                                   DeviceAttentionGradient, std::uint32_t)>;

template <unsigned kWidth>
void launch(Launcher& launcher, const HopperKernel& kernel, const AttentionLaunch& given,
            const DeviceAttention& call, const Queue& queue) {
  using Tile = AttentionHopperTile<kWidth>;
  const AttentionSizes& sizes = given.sizes;
  const TensorMap query =
      map_of(launcher, queue.device, given, given.query, sizes.queries, sizes.heads, Tile::kRows);
  const TensorMap key =
      map_of(launcher, queue.device, given, given.key, sizes.keys, sizes.key_heads, Tile::kColumns);
  const TensorMap value = map_of(launcher, queue.device, given, given.value, sizes.keys,
                                 sizes.key_heads, Tile::kColumns);
  const Grid grid =
      grid_of<Tile>(launcher, queue.device, tiles_of(sizes.queries, sizes.heads, sizes));
  launcher.launch(kernel, grid, queue, query, key, value, call,
                  static_cast<std::uint32_t>(sizes.batches));
}

// Launch arguments that the gradient kernels share.
struct Gradients {
  const AttentionLaunch& given;
  const AttentionOperand& grad;
  const DeviceAttention& call;
  const DeviceAttentionGradient& gradient;
  const Queue& queue;
};

// Launches the gradients of queries, or of keys and values: `rows` in each of `heads`.
template <class Tile>
void launch(Launcher& launcher, const HopperGradient& kernel, const Gradients& of,
            std::int64_t rows, std::int64_t heads, std::uint32_t query_rows,
            std::uint32_t key_rows) {
  const AttentionLaunch& given = of.given;
  const AttentionSizes& sizes = given.sizes;
  const int device = of.queue.device;
  launcher.launch(
      kernel, grid_of<Tile>(launcher, device, tiles_of(rows, heads, sizes)), of.queue,
      map_of(launcher, device, given, given.query, sizes.queries, sizes.heads, query_rows),
      map_of(launcher, device, given, of.grad, sizes.queries, sizes.heads, query_rows),
      map_of(launcher, device, given, given.key, sizes.keys, sizes.key_heads, key_rows),
      map_of(launcher, device, given, given.value, sizes.keys, sizes.key_heads, key_rows), of.call,
      of.gradient, static_cast<std::uint32_t>(sizes.batches));
}

template <unsigned kWidth>
void launch(Launcher& launcher, const HopperGradient& query, const HopperGradient& key,
            const Gradients& of) {
  using QueryTile = AttentionHopperQueryTile<kWidth>;
  using KeyTile = AttentionHopperKeyTile<kWidth>;
  const AttentionSizes& sizes = of.given.sizes;
  launch<QueryTile>(launcher, query, of, sizes.queries, sizes.heads, QueryTile::kRows,
                    QueryTile::kColumns);
  launch<KeyTile>(launcher, key, of, sizes.keys, sizes.key_heads, KeyTile::kColumns,
                  KeyTile::kRows);
}

}  // namespace

bool is_for_hopper(const DeviceFacts& facts, const AttentionLaunch& given) {
  const AttentionSizes& sizes = given.sizes;
  return facts.capability == kCapability && given.seeds == 0 && given.scale > 0 &&
         sizes.queries > 0 && sizes.keys > 0 &&
         tiles_of(std::max(sizes.queries, sizes.keys), sizes.heads, sizes) <= kBlocksMax &&
         is_mapped(given.query, sizes.queries, sizes.heads, sizes.batches) &&
         is_mapped(given.key, sizes.keys, sizes.key_heads, sizes.batches) &&
         is_mapped(given.value, sizes.keys, sizes.key_heads, sizes.batches);
}

bool is_for_hopper(const AttentionSizes& sizes, const AttentionOperand& grad) {
  return is_mapped(grad, sizes.queries, sizes.heads, sizes.batches);
}

void hopper_attention(Launcher& launcher, const AttentionLaunch& given, const DeviceAttention& call,
                      const Queue& queue) {
  constexpr HopperKernel kNarrow[] = {GT_KERNEL("attention_sm90", gt_attention_sm90_64_bf16),
                                      GT_KERNEL("attention_sm90", gt_attention_sm90_64_f16)};
  constexpr HopperKernel kWide[] = {GT_KERNEL("attention_sm90", gt_attention_sm90_128_bf16),
                                    GT_KERNEL("attention_sm90", gt_attention_sm90_128_f16)};
  const int which = given.element == Element::kBfloat16 ? 0 : 1;
  if (given.sizes.width <= kNarrowWidthMax) {
    launch<64>(launcher, kNarrow[which], given, call, queue);
  } else {
    launch<128>(launcher, kWide[which], given, call, queue);
  }
}

void hopper_attention_backward(Launcher& launcher, const AttentionLaunch& given,
                               const AttentionOperand& grad, const DeviceAttention& call,
                               const DeviceAttentionGradient& gradient, const Queue& queue) {
  constexpr const char* kSource = "attention_backward_sm90";
  constexpr HopperGradient kQuery[2][2] = {
      {GT_KERNEL(kSource, gt_attention_grad_query_sm90_64_bf16),
       GT_KERNEL(kSource, gt_attention_grad_query_sm90_128_bf16)},
      {GT_KERNEL(kSource, gt_attention_grad_query_sm90_64_f16),
       GT_KERNEL(kSource, gt_attention_grad_query_sm90_128_f16)}};
  constexpr HopperGradient kKey[2][2] = {{GT_KERNEL(kSource, gt_attention_grad_key_sm90_64_bf16),
                                          GT_KERNEL(kSource, gt_attention_grad_key_sm90_128_bf16)},
                                         {GT_KERNEL(kSource, gt_attention_grad_key_sm90_64_f16),
                                          GT_KERNEL(kSource, gt_attention_grad_key_sm90_128_f16)}};
  const int which = given.element == Element::kBfloat16 ? 0 : 1;
  const Gradients of{given, grad, call, gradient, queue};
  if (given.sizes.width <= kNarrowWidthMax) {
    launch<64>(launcher, kQuery[which][0], kKey[which][0], of);
  } else {
    launch<128>(launcher, kQuery[which][1], kKey[which][1], of);
  }
}

}  // namespace gt::cuda
