// Code shared by the attention kernels of sm_90a. Included by kernels only.
//
// A warpgroup has 64 rows, a warp 16. In each block of 8 columns, lane l holds sums of rows l / 4
// and l / 4 + 8, in columns 2 (l % 4) and 2 (l % 4) + 1: sums 4 j to 4 j + 3 belong to the columns
// from 8 j on. Rounded in pairs they are the first operand of a product along these columns.
#pragma once

#include <gt_hopper.h>

#include "cuda/attention_sm90.h"
#include "cuda/worker_kernels.h"

namespace gt {
namespace {

using device::Half;

constexpr unsigned kWarpgroup = 128;
constexpr unsigned kWarpgroupRows = 64;
constexpr unsigned kSwizzleBytes = 128;
constexpr unsigned kPatternBytes = 8 * kSwizzleBytes;
constexpr unsigned kBoxWidth = kSwizzleBytes / 2;   // elements
constexpr unsigned kStepDepth = 16;                 // depth of one wgmma
constexpr unsigned kOutBytes = 16 * kSwizzleBytes;  // one warp's output: 16 rows of 64 columns
constexpr unsigned kProducerRegisters = 24;
constexpr unsigned kConsumerRegisters = 240;
constexpr float kLowest = -__builtin_huge_valf();
constexpr float kLogarithm2OfE = 1.44269504F;

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int ceil_divided(int count, int by) { return (count + by - 1) / by; }

// Position in a ring of kStages stages: the next stage and the parity of its round.
template <unsigned kStages>
struct Turn {
  unsigned stage = 0;
  unsigned parity = 0;

  __device__ void go_on() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Tile of this block in a round. Every second round runs backwards, so that, with the longest tiles
// first, all blocks take about the same time in total.
__device__ inline unsigned tile_of_round(unsigned round) {
  return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

// Starts copying a panel of kRows rows, in boxes 64 wide one after the other.
template <unsigned kWidth, unsigned kRows>
__device__ void copy_panel(unsigned char* to, const TensorMap& map, std::uint64_t* full, int row,
                           std::int32_t head, std::int32_t batch) {
#pragma unroll
  for (unsigned box = 0; box < kWidth / kBoxWidth; ++box) {
    device::copy_box(to + box * (kRows * kSwizzleBytes), &map, full,
                     static_cast<std::int32_t>(box * kBoxWidth), row, head, batch);
  }
}

__device__ inline std::uint64_t descriptor_of(const unsigned char* start, unsigned leading) {
  return device::matrix_descriptor<kSwizzleBytes>(start, leading, kPatternBytes);
}

// sums = rows of panel a (of kRowsA) times rows of panel b (of kRowsB), along the width. The
// product may still run when this returns.
template <Half kType, unsigned kWidth, unsigned kRowsA, unsigned kRowsB, unsigned count>
__device__ void multiply_rows(float (&sums)[count], const unsigned char* a,
                              const unsigned char* b) {
  constexpr unsigned kStepsOfBox = kBoxWidth / kStepDepth;
  const std::uint64_t first_a = descriptor_of(a, 16);
  const std::uint64_t first_b = descriptor_of(b, 16);
#pragma unroll
  for (unsigned step = 0; step < kWidth / kStepDepth; ++step) {
    const unsigned box = step / kStepsOfBox;
    const unsigned at = step % kStepsOfBox * kStepDepth * 2;
    device::warpgroup_multiply_add<kType, false, false>(
        sums, first_a + (box * kRowsA * kSwizzleBytes + at) / 16,
        first_b + (box * kRowsB * kSwizzleBytes + at) / 16, step > 0);
  }
  device::warpgroup_commit();
}

// sums += weights times the kRows rows of a panel. Issued but not committed when this returns.
template <Half kType, unsigned kRows, unsigned count>
__device__ void multiply_weights(float (&sums)[count], const std::uint32_t (&weights)[kRows / 4],
                                 const unsigned char* panel, bool adds) {
  const std::uint64_t first = descriptor_of(panel, kRows * kSwizzleBytes);
#pragma unroll
  for (unsigned step = 0; step < kRows / kStepDepth; ++step) {
    device::warpgroup_multiply_add<kType, true>(sums, weights + step * 4,
                                                first + step * (kStepDepth * kSwizzleBytes / 16),
                                                adds || step > 0);
  }
}

template <Half kType, unsigned count>
__device__ void round_weights(const float (&scores)[count], std::uint32_t (&weights)[count / 2]) {
#pragma unroll
  for (unsigned i = 0; i < count / 2; ++i) {
    weights[i] = device::pair_from_floats<kType>(scores[i * 2], scores[i * 2 + 1]);
  }
}

struct alignas(16) OutChunk {
  std::uint32_t words[4];
};

__device__ inline unsigned char* out_chunk(unsigned char* out, unsigned row, unsigned chunk) {
  return out + row * kSwizzleBytes + (chunk ^ row % 8) * 16;
}

// Writes a warp's 16 rows, of which `left` exist, times the factors of a lane's two rows. Sums pass
// through shared memory, 64 columns at a time, so that neighbouring lanes write neighbouring 16
// bytes.
template <Half kType, unsigned count>
__device__ void write_rows(const float (&sums)[count], const float (&factors)[2], int left,
                           std::uint32_t width, unsigned char* out, std::uint16_t* to) {
  const unsigned lane = device::lane_index();
#pragma unroll
  for (unsigned first = 0; first < count * 2; first += 64) {
    __syncwarp();  // the previous columns have been read
#pragma unroll
    for (unsigned part = 0; part < 8; part += 2) {
      const float* const eight = sums + (first + part * 8) / 2;
      std::uint32_t words[4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        words[i] = device::pair_from_floats<kType>(eight[i * 2] * factors[i % 2],
                                                   eight[i * 2 + 1] * factors[i % 2]);
      }
      device::store_matrices(out_chunk(out, lane % 16, part + lane / 16), words);
    }
    __syncwarp();
    const unsigned column = first + lane % 8 * 8;
#pragma unroll
    for (unsigned below = 0; below < 16; below += 4) {
      const unsigned at = below + lane / 8;
      if (static_cast<int>(at) < left && column < width) {
        *reinterpret_cast<OutChunk*>(to + std::int64_t{at} * width + column) =
            *reinterpret_cast<const OutChunk*>(out_chunk(out, at, lane % 8));
      }
    }
  }
}

}  // namespace
}  // namespace gt
