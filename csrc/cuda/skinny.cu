// Products with at most eight rows of a, where the time is that of reading b once: a warp has four
// columns of the result and reads 16 bytes a lane of each of their rows in b, [columns, depth].
#include "cuda/epilogue.h"

namespace gt {
namespace {

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kColumns = 4;  // of a warp at a time; a is read once for all of them
constexpr unsigned kChunk = 8;
static_assert(SkinnyTile::kRowsMax * kColumns == kWarpThreads, "a sum for each lane");

struct alignas(16) Chunk {
  std::uint32_t words[kChunk / 2];
};

__device__ inline Chunk load_chunk(const std::uint16_t* from) {
  return *reinterpret_cast<const Chunk*>(from);
}

template <Half kType>
__device__ float product(const Chunk& a, const Chunk& b) {
  float sum = 0;
#pragma unroll
  for (unsigned i = 0; i < kChunk / 2; ++i) {
    sum += device::to_float<kType>(static_cast<std::uint16_t>(a.words[i])) *
           device::to_float<kType>(static_cast<std::uint16_t>(b.words[i]));
    sum += device::to_float<kType>(static_cast<std::uint16_t>(a.words[i] >> 16)) *
           device::to_float<kType>(static_cast<std::uint16_t>(b.words[i] >> 16));
  }
  return sum;
}

// The sums of four columns, one a lane: row lane / 4, column lane % 4.
template <Half kType>
__device__ float sums_of(const GemmCall& call, const std::uint16_t* a, const std::uint16_t* b,
                         std::int64_t column) {
  const unsigned lane = device::lane_index();
  float sums[SkinnyTile::kRowsMax][kColumns] = {};
  for (std::int64_t k = lane * kChunk; k < call.depth; k += kWarpThreads * kChunk) {
    Chunk parts[kColumns] = {};
#pragma unroll
    for (unsigned i = 0; i < kColumns; ++i) {
      if (column + i < call.columns) {
        parts[i] = load_chunk(b + (column + i) * call.b.step + k);
      }
    }
#pragma unroll
    for (unsigned row = 0; row < SkinnyTile::kRowsMax; ++row) {
      if (row < call.rows) {
        const Chunk part = load_chunk(a + row * call.a.step + k);
#pragma unroll
        for (unsigned i = 0; i < kColumns; ++i) {
          sums[row][i] += product<kType>(part, parts[i]);
        }
      }
    }
  }
  float own = 0;
#pragma unroll
  for (unsigned i = 0; i < kWarpThreads; ++i) {
    float sum = sums[i / kColumns][i % kColumns];
    for (unsigned lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
      sum += device::shuffle_xor(sum, lanes);
    }
    own = lane == i ? sum : own;
  }
  return own;
}

template <Half kType>
__device__ void skinny(const GemmCall& call) {
  const std::int64_t batch = blockIdx.y;
  const std::uint16_t* a = call.a.data + batch * call.a.batch_step;
  const std::uint16_t* b = call.b.data + batch * call.b.batch_step;
  const std::int64_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpThreads;
  const std::int64_t warps = gridDim.x * blockDim.x / kWarpThreads;
  for (std::int64_t column = warp * kColumns; column < call.columns; column += warps * kColumns) {
    const float first = sums_of<kType>(call, a, b, column);
    const float second = device::shuffle_down(first, 1);
    const unsigned lane = device::lane_index();
    if (lane % 2 == 0) {
      finish<kType>(call, batch, lane / kColumns, column + lane % kColumns, first, second);
    }
  }
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(128) gt_skinny_nt_bf16(gt::GemmCall call) {
  gt::skinny<gt::device::Half::kBfloat16>(call);
}
__global__ void __launch_bounds__(128) gt_skinny_nt_f16(gt::GemmCall call) {
  gt::skinny<gt::device::Half::kFloat16>(call);
}
}
