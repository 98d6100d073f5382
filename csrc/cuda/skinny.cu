// Products with at most eight rows of a, bound by reading b once. Tensor cores multiply 16 columns
// of the result by the eight rows: b's rows are their first operand, in the order in which lanes
// load 16 bytes of them, since a sum over the depth may take any order that both operands share.
// The warps of a block divide the depth, and their sums are added in order.
#include "cuda/epilogue.h"

namespace gt {
namespace {

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kChunk = 8;       // elements in 16 bytes
constexpr unsigned kStepDepth = 64;  // a warp's step: two chunks a lane of each of its rows
constexpr unsigned kWarps = SkinnyTile::kThreads / kWarpThreads;
constexpr unsigned kRows = SkinnyTile::kRowsMax;
constexpr unsigned kColumns = SkinnyTile::kColumns;
static_assert(kRows == 8 && kColumns == 16, "the tile of mma.m16n8k16");

struct alignas(16) Chunk {
  std::uint32_t words[kChunk / 2];
};

// Operands of a lane's step: chunks l % 4 and l % 4 + 4 of 64 elements, from rows l / 4 and l / 4 +
// 8 of b and from row l / 4 of a.
struct Part {
  Chunk b[2][2];
  Chunk a[2];
};

struct Sums {
  float of_warp[kWarps][kRows][kColumns + 1];
};

// Addresses that a lane loads from. Rows beyond the last are the first row; their sums are unused.
struct Sources {
  const std::uint16_t* b[2];
  const std::uint16_t* a;
};

// Loads a part of which `left` elements remain; zeros beyond them. kIsWhole: the part is complete.
template <bool kIsWhole>
__device__ Part load_part(const Sources& from, int k, int left) {
  Part part = {};
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const int at = static_cast<int>(half * (kStepDepth / 2));
    if (kIsWhole || at < left) {
      device::load_streamed(from.b[0] + k + at, part.b[0][half].words);
      device::load_streamed(from.b[1] + k + at, part.b[1][half].words);
      part.a[half] = *reinterpret_cast<const Chunk*>(from.a + k + at);
    }
  }
  return part;
}

template <Half kType>
__device__ void multiply_part(const Part& part, float (&sums)[4]) {
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
#pragma unroll
    for (unsigned i = 0; i < 4; i += 2) {
      device::multiply_add<kType>(sums,
                                  {part.b[0][half].words[i], part.b[1][half].words[i],
                                   part.b[0][half].words[i + 1], part.b[1][half].words[i + 1]},
                                  {part.a[half].words[i], part.a[half].words[i + 1]});
    }
  }
}

// Multiplies a warp's part of the depth for 16 columns from `column` on.
template <Half kType>
__device__ void multiply_share(const GemmCall& call, const std::uint16_t* a, const std::uint16_t* b,
                               std::int64_t column, float (&sums)[4]) {
  const unsigned lane = device::lane_index();
  const unsigned row = lane / 4;
  const unsigned warp = threadIdx.x / kWarpThreads;
  const std::int64_t columns_left = call.columns - column;
  const unsigned chunk = lane % 4 * kChunk;
  const Sources from = {
      {b + (column + (row < columns_left ? row : 0)) * call.b.step + chunk,
       b + (column + (row + 8 < columns_left ? row + 8 : 0)) * call.b.step + chunk},
      a + (row < call.rows ? row : 0) * call.a.step + chunk};
  const auto depth = static_cast<int>(call.depth);
  int k = static_cast<int>(warp * kStepDepth);
#pragma unroll 2
  for (; k + static_cast<int>(kStepDepth) <= depth; k += kWarps * kStepDepth) {
    multiply_part<kType>(load_part<true>(from, k, 0), sums);
  }
  if (k < depth) {
    multiply_part<kType>(load_part<false>(from, k, depth - k - static_cast<int>(chunk)), sums);
  }
}

template <Half kType>
__device__ void skinny(const GemmCall& call) {
  Sums& shared = device::static_shared<Sums>();
  const std::int64_t batch = blockIdx.y;
  const std::uint16_t* a = call.a.data + batch * call.a.batch_step;
  const std::uint16_t* b = call.b.data + batch * call.b.batch_step;
  const unsigned lane = device::lane_index();
  float (&mine)[kRows][kColumns + 1] = shared.of_warp[threadIdx.x / kWarpThreads];
  for (std::int64_t column = std::int64_t{blockIdx.x} * kColumns; column < call.columns;
       column += std::int64_t{gridDim.x} * kColumns) {
    float sums[4] = {};
    multiply_share<kType>(call, a, b, column, sums);
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      mine[lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[i];
    }
    __syncthreads();  // all sums are written
    if (threadIdx.x < kRows * kColumns / 2) {
      const unsigned row = threadIdx.x / (kColumns / 2);
      const unsigned at = threadIdx.x % (kColumns / 2) * 2;
      float first = 0;
      float second = 0;
#pragma unroll
      for (unsigned warp = 0; warp < kWarps; ++warp) {
        first += shared.of_warp[warp][row][at];
        second += shared.of_warp[warp][row][at + 1];
      }
      finish<kType>(call, batch, row, column + at, first, second);
    }
    __syncthreads();  // all sums are read
  }
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(256, 4) gt_skinny_nt_bf16(gt::GemmCall call) {
  gt::skinny<gt::device::Half::kBfloat16>(call);
}
__global__ void __launch_bounds__(256, 4) gt_skinny_nt_f16(gt::GemmCall call) {
  gt::skinny<gt::device::Half::kFloat16>(call);
}
}
