// Matrix products on tensor cores of sm_80 and later: cp.async through shared memory, ldmatrix,
// mma.sync m16n8k16, sums in float32.
//
// A block computes a tile of 128 x 128 by eight warps in 2 x 4, each 64 x 32. Tiles of 32 of the
// depth arrive in three stages: while one is multiplied, two are being copied. Shared memory holds
// chunks of 16 bytes whose order within a row depends on the row, so that ldmatrix has no bank
// conflicts.
#include "cuda/epilogue.h"
#include "cuda/worker_kernels.h"

namespace gt {
namespace {

constexpr unsigned kChunk = 8;  // elements in 16 bytes
constexpr unsigned kWarpThreads = 32;
constexpr unsigned kWarpRows = 64;
constexpr unsigned kWarpColumns = 32;
constexpr unsigned kMmaRows = 16;
constexpr unsigned kMmaColumns = 8;
constexpr unsigned kMmaDepth = 16;
constexpr unsigned kRowTiles = kWarpRows / kMmaRows;
constexpr unsigned kColumnTiles = kWarpColumns / kMmaColumns;
constexpr unsigned kTileElements = GemmTile::kRows * GemmTile::kDepth;
static_assert(GemmTile::kRows == GemmTile::kColumns, "one tile of both operands is one size");
static_assert(GemmTile::kThreads / kWarpThreads ==
              GemmTile::kRows / kWarpRows * (GemmTile::kColumns / kWarpColumns));

// A tile in shared memory, in rows of kWidth elements that run along the depth or across it.
template <bool kIsDeep>
struct Tile {
  static constexpr unsigned kWidth = kIsDeep ? GemmTile::kDepth : GemmTile::kRows;
  static constexpr unsigned kChunks = kWidth / kChunk;

  // Eight rows of one column of chunks fill the 32 banks once.
  __device__ static unsigned offset(unsigned row, unsigned chunk) {
    const unsigned turn = kIsDeep ? row >> 1 & 3 : row & 7;
    return (row * kChunks + (chunk ^ turn)) * kChunk;
  }
};

// Starts copying the tile whose first element is at (row, column) of an operand; zeros beyond the
// end.
template <class Tile>
__device__ void copy_tile(const GemmOperand& from, std::int64_t row, std::int64_t column,
                          std::int64_t rows, std::int64_t columns, std::uint16_t* tile) {
  for (unsigned i = threadIdx.x; i < kTileElements / kChunk; i += GemmTile::kThreads) {
    const unsigned in_row = i / Tile::kChunks;
    const unsigned chunk = i % Tile::kChunks;
    const std::int64_t r = row + in_row;
    const std::int64_t c = column + chunk * kChunk;
    const bool is_inside = r < rows && c < columns;
    device::copy_async<16>(tile + Tile::offset(in_row, chunk),
                           is_inside ? from.data + r * from.step + c : from.data,
                           is_inside ? 16U : 0U);
  }
}

// Loads the 16 x 16 elements at (across, depth) in the layout of mma.sync's operand a, or two parts
// of 8 columns of b. Lane l gives the address of row l % 8 of the 8 x 8 matrix l / 8; the second
// matrix is next to the first in the direction of `kAcrossFirst`.
template <bool kIsDeep, bool kAcrossFirst>
__device__ void load_fragment(const std::uint16_t* tile, unsigned across, unsigned depth,
                              std::uint32_t (&registers)[4]) {
  const unsigned lane = device::lane_index();
  const unsigned matrix = lane / 8;
  const unsigned first = matrix % 2 * 8;
  const unsigned second = matrix / 2 * 8;
  across += kAcrossFirst ? first : second;
  depth += kAcrossFirst ? second : first;
  if constexpr (kIsDeep) {
    device::load_matrices(registers, tile + Tile<true>::offset(across + lane % 8, depth / kChunk));
  } else {
    device::load_matrices_transposed(registers,
                                     tile + Tile<false>::offset(depth + lane % 8, across / kChunk));
  }
}

using Sums = float[kRowTiles][kColumnTiles][4];

// Adds the product of one stage to a warp's sums.
template <Half kType, bool kDeepA, bool kDeepB>
__device__ void multiply_stage(const std::uint16_t* a, const std::uint16_t* b, unsigned warp_row,
                               unsigned warp_column, Sums& sums) {
#pragma unroll
  for (unsigned depth = 0; depth < GemmTile::kDepth; depth += kMmaDepth) {
    std::uint32_t a_parts[kRowTiles][4];
    std::uint32_t b_parts[kColumnTiles / 2][4];
#pragma unroll
    for (unsigned i = 0; i < kRowTiles; ++i) {
      load_fragment<kDeepA, true>(a, warp_row + i * kMmaRows, depth, a_parts[i]);
    }
#pragma unroll
    for (unsigned j = 0; j < kColumnTiles / 2; ++j) {
      load_fragment<kDeepB, false>(b, warp_column + j * 2 * kMmaColumns, depth, b_parts[j]);
    }
#pragma unroll
    for (unsigned i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (unsigned j = 0; j < kColumnTiles; ++j) {
        const unsigned half = j % 2 * 2;
        const std::uint32_t part[2] = {b_parts[j / 2][half], b_parts[j / 2][half + 1]};
        device::multiply_add<kType>(sums[i][j], a_parts[i], part);
      }
    }
  }
}

struct Position {
  std::int64_t row, column;
};

// Position of tile `number`: groups of rows of tiles, column by column within a group.
__device__ inline Position tile_at(const GemmCall& call, std::int64_t number) {
  const std::int64_t across = (call.columns + GemmTile::kColumns - 1) / GemmTile::kColumns;
  const std::int64_t down = (call.rows + GemmTile::kRows - 1) / GemmTile::kRows;
  const std::int64_t group = number / (GemmTile::kGroupRows * across);
  const std::int64_t first = group * GemmTile::kGroupRows;
  const std::int64_t height =
      down - first < GemmTile::kGroupRows ? down - first : std::int64_t{GemmTile::kGroupRows};
  const std::int64_t place = number - first * across;
  return {(first + place % height) * GemmTile::kRows, place / height * GemmTile::kColumns};
}

// kDeepA: a is stored as [rows, depth], else [depth, rows]. kDeepB: b as [columns, depth], else
// [depth, columns].
template <Half kType, bool kDeepA, bool kDeepB>
__device__ void gemm(const GemmCall& call, std::int64_t number, std::int64_t batch) {
  auto* shared = reinterpret_cast<std::uint16_t*>(device::dynamic_shared());
  const Position tile = tile_at(call, number);
  const unsigned warp = threadIdx.x / kWarpThreads;
  const unsigned warp_row = warp / 4 * kWarpRows;
  const unsigned warp_column = warp % 4 * kWarpColumns;
  GemmOperand a = call.a, b = call.b;
  a.data += batch * a.batch_step;
  b.data += batch * b.batch_step;
  const std::int64_t steps = (call.depth + GemmTile::kDepth - 1) / GemmTile::kDepth;

  const auto stage = [&](std::int64_t step) {
    return shared + step % GemmTile::kStages * (2 * kTileElements);
  };
  const auto copy = [&](std::int64_t step) {
    if (step < steps) {
      const std::int64_t depth = step * GemmTile::kDepth;
      std::uint16_t* to = stage(step);
      if constexpr (kDeepA) {
        copy_tile<Tile<true>>(a, tile.row, depth, call.rows, call.depth, to);
      } else {
        copy_tile<Tile<false>>(a, depth, tile.row, call.depth, call.rows, to);
      }
      to += kTileElements;
      if constexpr (kDeepB) {
        copy_tile<Tile<true>>(b, tile.column, depth, call.columns, call.depth, to);
      } else {
        copy_tile<Tile<false>>(b, depth, tile.column, call.depth, call.columns, to);
      }
    }
    device::copy_commit();  // an empty group too, so that groups count as steps
  };

  for (unsigned step = 0; step < GemmTile::kStages - 1; ++step) {
    copy(step);
  }
  Sums sums = {};
  for (std::int64_t step = 0; step < steps; ++step) {
    device::copy_wait<GemmTile::kStages - 2>();
    __syncthreads();  // the stage is complete, and nobody reads the previous one
    copy(step + GemmTile::kStages - 1);
    const std::uint16_t* now = stage(step);
    multiply_stage<kType, kDeepA, kDeepB>(now, now + kTileElements, warp_row, warp_column, sums);
  }

  // PTX ISA, fragments of mma.m16n8k16: lane l has rows l / 4 and l / 4 + 8, columns 2 (l % 4) and
  // 2 (l % 4) + 1.
  const unsigned lane = device::lane_index();
#pragma unroll
  for (unsigned i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kColumnTiles; ++j) {
      const std::int64_t row = tile.row + warp_row + i * kMmaRows + lane / 4;
      const std::int64_t column = tile.column + warp_column + j * kMmaColumns + lane % 4 * 2;
      finish<kType>(call, batch, row, column, sums[i][j][0], sums[i][j][1]);
      finish<kType>(call, batch, row + 8, column, sums[i][j][2], sums[i][j][3]);
    }
  }
}

// The product that a block belongs to; groups are sorted by their first block.
__device__ inline const GemmGroup& group_of_block(const GemmGroup* groups, std::uint32_t count) {
  std::uint32_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    if (groups[middle].first_tile <= blockIdx.x) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return groups[low];
}

template <Half kType, bool kDeepA, bool kDeepB>
__device__ void grouped_gemm(const GemmGroup* groups, std::uint32_t count) {
  const GemmGroup& group = group_of_block(groups, count);
  gemm<kType, kDeepA, kDeepB>(group.call, blockIdx.x - group.first_tile, 0);
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(256, 2) gt_gemm_nn_bf16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kBfloat16, true, false>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_nn_bf16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kBfloat16, true, false>(groups, count);
}
__global__ void __launch_bounds__(256, 2) gt_gemm_nt_bf16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kBfloat16, true, true>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_nt_bf16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kBfloat16, true, true>(groups, count);
}
__global__ void __launch_bounds__(256, 2) gt_gemm_tn_bf16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kBfloat16, false, false>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_tn_bf16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kBfloat16, false, false>(groups, count);
}
__global__ void __launch_bounds__(256, 2) gt_gemm_nn_f16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kFloat16, true, false>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_nn_f16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kFloat16, true, false>(groups, count);
}
__global__ void __launch_bounds__(256, 2) gt_gemm_nt_f16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kFloat16, true, true>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_nt_f16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kFloat16, true, true>(groups, count);
}
__global__ void __launch_bounds__(256, 2) gt_gemm_tn_f16(gt::GemmCall call) {
  gt::gemm<gt::device::Half::kFloat16, false, false>(call, blockIdx.x, blockIdx.y);
}
__global__ void __launch_bounds__(256, 2)
    gt_grouped_gemm_tn_f16(const gt::GemmGroup* groups, std::uint32_t count) {
  gt::grouped_gemm<gt::device::Half::kFloat16, false, false>(groups, count);
}
}
