#include "cuda/host/products.h"

#include <algorithm>
#include <stdexcept>

#include "core/message.h"
#include "cuda/host/grids.h"
#include "cuda/host/hopper_products.h"
#include "cuda/worker_kernels.h"

namespace gt::cuda {
namespace {

// Copies take 16 bytes at a time.
constexpr std::int64_t kGemmElements = 8;
constexpr std::int64_t kGemmBatchesMax = 65535;  // gridDim.y
constexpr std::int64_t kSkinnyBlocksMax = 4096;

void check_gemm_operand(const char* name, const GemmOperand& operand, std::int64_t side_by_side) {
  const bool is_aligned = reinterpret_cast<Address>(operand.data) % 16 == 0;
  if (!is_aligned || operand.step % kGemmElements != 0 || operand.batch_step % kGemmElements != 0 ||
      side_by_side % kGemmElements != 0 || operand.step < side_by_side) {
    throw std::invalid_argument(
        message("gemm: ", name, " has ", side_by_side, " elements side by side, ", operand.step,
                " from row to row and ", operand.batch_step, " from batch to batch, and begins ",
                is_aligned ? "at" : "at no", " multiple of 16 bytes; each has to be a multiple of ",
                kGemmElements, " elements"));
  }
}

void check_gemm(GemmLayout layout, const GemmCall& call, std::int64_t batches) {
  if (call.rows < 0 || call.columns < 0 || call.depth < 0 || call.columns % 2 != 0 || batches < 0 ||
      batches > kGemmBatchesMax) {
    throw std::invalid_argument(message("gemm: ", batches, " products of [", call.rows, ", ",
                                        call.depth, "] and [", call.depth, ", ", call.columns,
                                        "]; up to ", kGemmBatchesMax, ", and columns are even"));
  }
  check_gemm_operand("a", call.a, layout == GemmLayout::kTN ? call.rows : call.depth);
  check_gemm_operand("b", call.b, layout == GemmLayout::kNT ? call.depth : call.columns);
}

// Kernels in the order nn, nt, tn of bfloat16, then of float16.
template <class Signature>
Kernel<Signature> chosen(const Kernel<Signature> (&kernels)[6], Element element,
                         GemmLayout layout) {
  if (element != Element::kBfloat16 && element != Element::kFloat16) {
    throw DtypeError(message("gemm: no CUDA kernel multiplies ", element_name(element)));
  }
  return kernels[(element == Element::kBfloat16 ? 0 : 3) + static_cast<int>(layout)];
}

std::int64_t gemm_tiles(const GemmCall& call) {
  const std::int64_t tiles =
      ceil_divided(call.rows, GemmTile::kRows) * ceil_divided(call.columns, GemmTile::kColumns);
  if (tiles > kBlocksMax) {
    throw std::invalid_argument(message("gemm: more than ", kBlocksMax, " tiles in one launch"));
  }
  return tiles;
}

int device_of(const Launcher& launcher, const GemmCall& call, Address table) {
  const auto address = [](const void* pointer) { return reinterpret_cast<Address>(pointer); };
  return launcher.device_of("gemm", {address(call.a.data), address(call.b.data), address(call.bias),
                                     address(call.residual.data), address(call.out), table});
}

// Grid of the kernel for few rows.
Grid skinny_grid(const GemmCall& call) {
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(
      std::min(kSkinnyBlocksMax, ceil_divided(call.columns, SkinnyTile::kColumns)));
  grid.threads[0] = SkinnyTile::kThreads;
  return grid;
}

Grid tile_grid(std::int64_t tiles) {
  Grid grid;
  grid.blocks[0] = static_cast<unsigned>(tiles);
  grid.threads[0] = GemmTile::kThreads;
  grid.shared_bytes = GemmTile::kSharedBytes;
  return grid;
}

// Launches gemm.cu's tiles, or skinny.cu.
void plain_gemm(Launcher& launcher, const Kernel<void(GemmCall)>& kernel, bool is_skinny,
                Element element, const GemmCall& call, std::int64_t batches, const Queue& queue) {
  Grid grid = is_skinny ? skinny_grid(call) : tile_grid(gemm_tiles(call));
  grid.blocks[1] = static_cast<unsigned>(batches);
  if (!is_skinny) {
    launcher.launch(kernel, grid, queue, call);
  } else if (element == Element::kBfloat16) {
    launcher.launch(GT_KERNEL("skinny", gt_skinny_nt_bf16), grid, queue, call);
  } else {
    launcher.launch(GT_KERNEL("skinny", gt_skinny_nt_f16), grid, queue, call);
  }
}

}  // namespace

void gemm(Launcher& launcher, Element element, GemmLayout layout, const GemmCall& call,
          std::int64_t batches, GemmPath path, std::uintptr_t queue_stream) {
  constexpr Kernel<void(GemmCall)> kTiles[6] = {
      GT_KERNEL("gemm", gt_gemm_nn_bf16), GT_KERNEL("gemm", gt_gemm_nt_bf16),
      GT_KERNEL("gemm", gt_gemm_tn_bf16), GT_KERNEL("gemm", gt_gemm_nn_f16),
      GT_KERNEL("gemm", gt_gemm_nt_f16),  GT_KERNEL("gemm", gt_gemm_tn_f16)};
  const Kernel<void(GemmCall)> kernel = chosen(kTiles, element, layout);
  check_gemm(layout, call, batches);
  if (gemm_tiles(call) == 0 || batches == 0) {
    return;
  }
  const Queue queue{device_of(launcher, call, 0), queue_stream};
  const bool is_skinny = layout == GemmLayout::kNT && call.rows <= SkinnyTile::kRowsMax;
  if (path == GemmPath::kSm80 || (path == GemmPath::kAuto && is_skinny)) {
    return plain_gemm(launcher, kernel, is_skinny, element, call, batches, queue);
  }
  const std::string unfit = unfit_for_hopper(launcher.facts(queue.device), layout, call, batches);
  if (unfit.empty()) {
    return hopper_gemm(launcher, element, layout, call, batches, queue);
  }
  if (path == GemmPath::kSm90a) {
    throw std::invalid_argument(message("gemm: not for the kernel of sm_90a: ", unfit));
  }
  plain_gemm(launcher, kernel, is_skinny, element, call, batches, queue);
}

std::int64_t gemm_table_bytes(std::size_t products) {
  return static_cast<std::int64_t>(products * sizeof(GemmGroup));
}

void grouped_gemm(Launcher& launcher, Element element, GemmLayout layout,
                  const std::vector<GemmCall>& calls, Address table, std::int64_t table_bytes,
                  std::uintptr_t queue_stream) {
  constexpr Kernel<void(const GemmGroup*, std::uint32_t)> kGroups[6] = {
      GT_KERNEL("gemm", gt_grouped_gemm_nn_bf16), GT_KERNEL("gemm", gt_grouped_gemm_nt_bf16),
      GT_KERNEL("gemm", gt_grouped_gemm_tn_bf16), GT_KERNEL("gemm", gt_grouped_gemm_nn_f16),
      GT_KERNEL("gemm", gt_grouped_gemm_nt_f16),  GT_KERNEL("gemm", gt_grouped_gemm_tn_f16)};
  const auto kernel = chosen(kGroups, element, layout);
  if (table_bytes < gemm_table_bytes(calls.size())) {
    throw std::invalid_argument(message("gemm: the table of ", calls.size(), " products takes ",
                                        gemm_table_bytes(calls.size()), " bytes, not ",
                                        table_bytes));
  }
  std::vector<GemmGroup> groups;
  std::int64_t tiles = 0;
  int device = 0;
  for (const GemmCall& call : calls) {
    check_gemm(layout, call, 1);
    const std::int64_t added = gemm_tiles(call);
    if (added == 0) {
      continue;
    }
    device = device_of(launcher, call, table);
    groups.push_back({call, static_cast<std::uint32_t>(tiles)});
    tiles += added;
    if (tiles > kBlocksMax) {
      throw std::invalid_argument(message("gemm: more than ", kBlocksMax, " tiles in one launch"));
    }
  }
  if (groups.empty()) {
    return;
  }
  const Queue queue{device, queue_stream};
  launcher.copy_to_device(table, groups.data(), groups.size() * sizeof(GemmGroup), queue);
  launcher.launch(kernel, tile_grid(tiles), queue, at<const GemmGroup>(table),
                  static_cast<std::uint32_t>(groups.size()));
}

}  // namespace gt::cuda
