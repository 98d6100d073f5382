#include "cuda/host/hopper_products.h"

#include <algorithm>

#include "core/message.h"
#include "cuda/gemm_sm90.h"
#include "cuda/host/grids.h"
#include "cuda/worker_kernels.h"

namespace gt::cuda {
namespace {

constexpr int kCapability = 90;                           // sm_90a's code needs just this
constexpr std::int64_t kSizeMax = 0x7FFFFFFF - 512;       // coordinates are of 32 bits
constexpr std::int64_t kStepMax = std::int64_t{1} << 39;  // elements: 2^40 bytes

// An operand as it is stored: rows of `inner` elements.
struct Stored {
  const GemmOperand& operand;
  std::int64_t inner, outer;
};

Stored stored(const GemmOperand& operand, bool is_deep, std::int64_t across, std::int64_t depth) {
  return {operand, is_deep ? depth : across, is_deep ? across : depth};
}
bool is_deep_a(GemmLayout layout) { return layout != GemmLayout::kTN; }
bool is_deep_b(GemmLayout layout) { return layout == GemmLayout::kNT; }

// cuTensorMapEncodeTiled requires each dim's stride to be at least the extent of the dims below it.
bool is_mapped(const Stored& matrix, std::int64_t batches) {
  const GemmOperand& operand = matrix.operand;
  return operand.step < kStepMax / matrix.outer &&
         (batches == 1 ||
          (operand.batch_step >= matrix.outer * operand.step && operand.batch_step < kStepMax));
}

// Encodes the operand for copies in boxes of 64 elements by `box_outer` rows.
TensorMap map_of(Launcher& launcher, int device, Element element, const Stored& matrix,
                 std::int64_t batches, std::uint32_t box_outer) {
  const GemmOperand& operand = matrix.operand;
  const std::int64_t batch_step = batches > 1 ? operand.batch_step : matrix.outer * operand.step;
  return launcher.map(
      device,
      {reinterpret_cast<Address>(operand.data),
       element == Element::kBfloat16,
       3,
       {static_cast<std::uint64_t>(matrix.inner), static_cast<std::uint64_t>(matrix.outer),
        static_cast<std::uint64_t>(batches)},
       {static_cast<std::uint64_t>(operand.step) * 2, static_cast<std::uint64_t>(batch_step) * 2},
       {64, box_outer, 1}});
}

// Number of pairs of tiles, over all batches.
template <class Tile>
std::int64_t pairs_of(const GemmCall& call, std::int64_t batches) {
  return ceil_divided(call.rows, Tile::kCluster * Tile::kRows) *
         ceil_divided(call.columns, Tile::kColumns) * batches;
}

using HopperKernel = Kernel<void(TensorMap, TensorMap, GemmCall, std::uint32_t)>;

template <unsigned kColumns>
void launch(Launcher& launcher, const HopperKernel& kernel, Element element, GemmLayout layout,
            const GemmCall& call, std::int64_t batches, const Queue& queue) {
  using Tile = HopperTile<kColumns>;
  constexpr unsigned kHalf = Tile::kColumns / Tile::kCluster;
  const auto width = [](bool is_deep, unsigned deep) { return is_deep ? deep : 64U; };
  const TensorMap a = map_of(launcher, queue.device, element,
                             stored(call.a, is_deep_a(layout), call.rows, call.depth), batches,
                             width(is_deep_a(layout), HopperBox<true, Tile::kRows>::kWidth));
  const TensorMap b = map_of(launcher, queue.device, element,
                             stored(call.b, is_deep_b(layout), call.columns, call.depth), batches,
                             width(is_deep_b(layout), HopperBox<true, kHalf>::kWidth));
  const std::int64_t clusters = std::max(1, launcher.facts(queue.device).processors / 2);
  Grid grid;
  grid.blocks[0] =
      Tile::kCluster * static_cast<unsigned>(std::min(clusters, pairs_of<Tile>(call, batches)));
  grid.cluster[0] = Tile::kCluster;
  grid.threads[0] = Tile::kThreads;
  grid.shared_bytes = Tile::kSharedBytes;
  launcher.launch(kernel, grid, queue, a, b, call, static_cast<std::uint32_t>(batches));
}

}  // namespace

std::string unfit_for_hopper(const DeviceFacts& facts, GemmLayout layout, const GemmCall& call,
                             std::int64_t batches) {
  if (facts.capability != kCapability) {
    return message("the device is of sm_", facts.capability);
  }
  if (call.depth < 1 || std::max({call.rows, call.columns, call.depth}) > kSizeMax ||
      pairs_of<HopperTile<128>>(call, batches) > kBlocksMax) {
    return message("a depth of ", call.depth, " and ", batches, " results of ", call.rows, " x ",
                   call.columns);
  }
  if (!is_mapped(stored(call.a, is_deep_a(layout), call.rows, call.depth), batches) ||
      !is_mapped(stored(call.b, is_deep_b(layout), call.columns, call.depth), batches)) {
    return "matrices of a batch are not one behind the other";
  }
  return "";
}

void hopper_gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
                 std::int64_t batches, const Queue& queue) {
  constexpr HopperKernel kWide[] = {GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_nn_bf16),
                                    GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_nt_bf16),
                                    GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_tn_bf16),
                                    GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_nn_f16),
                                    GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_nt_f16),
                                    GT_KERNEL("gemm_sm90", gt_gemm_sm90_256_tn_f16)};
  constexpr HopperKernel kNarrow[] = {GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_nn_bf16),
                                      GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_nt_bf16),
                                      GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_tn_bf16),
                                      GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_nn_f16),
                                      GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_nt_f16),
                                      GT_KERNEL("gemm_sm90", gt_gemm_sm90_128_tn_f16)};
  const int which = (element == Element::kBfloat16 ? 0 : 3) + static_cast<int>(layout);
  // Wide tiles move fewer bytes; narrow ones are used where some cluster would get no wide pair.
  const std::int64_t clusters = launcher.facts(queue.device).processors / 2;
  if (pairs_of<HopperTile<256>>(call, batches) >= clusters) {
    launch<256>(launcher, kWide[which], element, layout, call, batches, queue);
  } else {
    launch<128>(launcher, kNarrow[which], element, layout, call, batches, queue);
  }
}

}  // namespace gt::cuda
