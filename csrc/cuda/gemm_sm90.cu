// Matrix products on tensor cores of sm_90a: tensor copies (TMA) into a ring of stages, wgmma from
// shared memory, sums in float32.
//
// A block has three warpgroups: one copies, two multiply 64 rows each. Each stage of the ring has
// two mbarriers: `full` when its bytes have arrived, `empty` when both blocks of the cluster have
// read it, since each copies half of b into both. Blocks are persistent and take one pair of tiles
// after another.
#include <gt_hopper.h>

#include "cuda/epilogue.h"
#include "cuda/gemm_sm90.h"

namespace gt {
namespace {

constexpr unsigned kPatternBytes = 8 * 128;  // one repetition of the swizzle
constexpr unsigned kStepDepth = 16;          // depth of one wgmma
constexpr unsigned kWarpgroupRows = 64;
constexpr std::uint16_t kBothRanks = 3;
constexpr unsigned kProducerRegisters = 40;
constexpr unsigned kConsumerRegisters = 232;

struct alignas(8) Pair {
  float first, second;
};
using PairBits = std::uint64_t;  // in shared memory, so that a pair is one access

template <class Tile>
struct Ring {
  unsigned char* stages = device::dynamic_shared();
  std::uint64_t* full =
      reinterpret_cast<std::uint64_t*>(stages + Tile::kStages * Tile::kStageBytes);
  std::uint64_t* empty = full + Tile::kStages;
  PairBits* out = reinterpret_cast<PairBits*>(empty + Tile::kStages);  // one buffer for each warp

  __device__ unsigned char* a(unsigned stage) const { return stages + stage * Tile::kStageBytes; }
  __device__ unsigned char* b(unsigned stage) const { return a(stage) + Tile::kBytesA; }

  __device__ void init() const {
    for (unsigned stage = 0; stage < Tile::kStages; ++stage) {
      device::mbarrier_init(full + stage, 1);
      device::mbarrier_init(empty + stage, Tile::kConsumers * Tile::kCluster);
    }
    device::fence_mbarrier_init();
  }
};

// Position in the ring: the next stage and the parity of its round.
template <class Tile>
struct Turn {
  unsigned stage = 0;
  unsigned parity = 0;

  __device__ void go_on() {
    if (++stage == Tile::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

struct Place {
  std::int32_t row, column, batch;
};

// Order of the pairs of tiles: batch by batch, in groups of rows of pairs, column by column.
template <class Tile>
struct Schedule {
  static constexpr unsigned kPairRows = Tile::kCluster * Tile::kRows;
  unsigned across, down, pairs;

  __device__ Schedule(const GemmCall& call, unsigned batches)
      : across((static_cast<unsigned>(call.columns) + Tile::kColumns - 1) / Tile::kColumns),
        down((static_cast<unsigned>(call.rows) + kPairRows - 1) / kPairRows),
        pairs(across * down * batches) {}

  // Tile of the block with this rank in the cluster.
  __device__ Place at(unsigned number, unsigned rank) const {
    const unsigned in_batch = number % (across * down);
    const unsigned first = in_batch / (Tile::kGroupPairs * across) * Tile::kGroupPairs;
    const unsigned left = down - first;
    const unsigned height = left < Tile::kGroupPairs ? left : Tile::kGroupPairs;
    const unsigned in_group = in_batch - first * across;
    const unsigned pair = first + in_group % height;
    return {static_cast<std::int32_t>(pair * kPairRows + rank * Tile::kRows),
            static_cast<std::int32_t>(in_group / height * Tile::kColumns),
            static_cast<std::int32_t>(number / (across * down))};
  }
};

// Starts copying kAcross rows of a, or columns of b, from (across, depth) on, to this block or to
// both blocks of the cluster.
template <bool kIsDeep, unsigned kAcross, bool kToBoth>
__device__ void copy_operand(unsigned char* to, const TensorMap& map, std::uint64_t* full,
                             std::int32_t across, std::int32_t depth, std::int32_t batch) {
  using Box = HopperBox<kIsDeep, kAcross>;
#pragma unroll
  for (unsigned box = 0; box < Box::kCount; ++box) {
    const std::int32_t x = kIsDeep ? depth : across;
    const std::int32_t y = kIsDeep ? across : depth;
    if constexpr (kToBoth) {
      device::copy_box_to_ranks(to, &map, full, kBothRanks, x, y, batch);
    } else {
      device::copy_box(to, &map, full, x, y, batch);
    }
    to += Box::kBytes;
    across += static_cast<std::int32_t>(Box::kWidth);
  }
}

// Fills the ring; one thread runs it.
template <class Tile, bool kDeepA, bool kDeepB>
__device__ void produce(const TensorMap& a, const TensorMap& b, const Schedule<Tile>& schedule,
                        unsigned steps) {
  constexpr unsigned kHalf = Tile::kColumns / Tile::kCluster;
  const Ring<Tile> ring;
  const unsigned rank = device::cluster_rank();
  Turn<Tile> turn;
  for (unsigned number = blockIdx.x / Tile::kCluster; number < schedule.pairs;
       number += gridDim.x / Tile::kCluster) {
    const Place place = schedule.at(number, rank);
    const std::int32_t column = place.column + static_cast<std::int32_t>(rank * kHalf);
    for (unsigned step = 0; step < steps; ++step) {
      const auto depth = static_cast<std::int32_t>(step * Tile::kDepth);
      std::uint64_t* full = ring.full + turn.stage;
      device::mbarrier_wait_cluster(ring.empty + turn.stage, turn.parity ^ 1);
      device::mbarrier_arrive_expect(full, Tile::kStageBytes);
      copy_operand<kDeepA, Tile::kRows, false>(ring.a(turn.stage), a, full, place.row, depth,
                                               place.batch);
      copy_operand<kDeepB, kHalf, true>(ring.b(turn.stage) + rank * kHalf * Tile::kSwizzleBytes, b,
                                        full, column, depth, place.batch);
      turn.go_on();
    }
  }
}

// Descriptor of the operand at `start`. Stored along the depth: rows of 128 bytes, 8 to a
// repetition of the swizzle. Stored across it: boxes 64 wide one after the other, with rows along
// the depth.
template <class Tile, bool kIsDeep>
__device__ std::uint64_t descriptor_of(const unsigned char* start) {
  constexpr unsigned kLeading = kIsDeep ? 16 : HopperBox<false, 64>::kBytes;
  return device::matrix_descriptor<Tile::kSwizzleBytes>(start, kLeading, kPatternBytes);
}

// Multiplies one stage. The group may still run when this returns.
template <class Tile, Half kType, bool kDeepA, bool kDeepB>
__device__ void multiply_stage(float (&sums)[Tile::kColumns / 2], const unsigned char* a,
                               const unsigned char* b, bool adds) {
  constexpr unsigned kStepA = kStepDepth * (kDeepA ? 2 : Tile::kSwizzleBytes);
  constexpr unsigned kStepB = kStepDepth * (kDeepB ? 2 : Tile::kSwizzleBytes);
  const std::uint64_t first_a = descriptor_of<Tile, kDeepA>(a);
  const std::uint64_t first_b = descriptor_of<Tile, kDeepB>(b);
  device::warpgroup_fence();
#pragma unroll
  for (unsigned step = 0; step < Tile::kDepth / kStepDepth; ++step) {
    device::warpgroup_multiply_add<kType, !kDeepA, !kDeepB>(
        sums, first_a + step * kStepA / 16, first_b + step * kStepB / 16, adds || step > 0);
  }
  device::warpgroup_commit();
}

// Writes a warp's results through shared memory, 32 columns at a time: neighbouring lanes then
// write neighbouring elements, and the epilogue is not unrolled for each sum. PTX ISA, fragment of
// matrix D: lane l of warp w has rows 16 w + l / 4 and 8 below, and in each 8 columns the columns 2
// (l % 4) and 2 (l % 4) + 1.
template <class Tile, Half kType>
__device__ void store(const GemmCall& call, const Place& place, unsigned row, PairBits* out,
                      const float (&sums)[Tile::kColumns / 2]) {
  constexpr unsigned kPairs = Tile::kOutColumns / 2;
  const unsigned lane = device::lane_index();
  PairBits* const mine = out + lane / 4 * Tile::kOutStep + lane % 4;
#pragma unroll
  for (unsigned first = 0; first < Tile::kColumns; first += Tile::kOutColumns) {
    if (place.column + first >= call.columns) {
      break;
    }
    __syncwarp();  // the previous columns have been read
#pragma unroll
    for (unsigned column = 0; column < Tile::kOutColumns; column += 8) {
      const unsigned i = (first + column) / 2;
      device::store_pair(mine + column / 2, sums[i], sums[i + 1]);
      device::store_pair(mine + 8 * Tile::kOutStep + column / 2, sums[i + 2], sums[i + 3]);
    }
    __syncwarp();
#pragma unroll 1
    for (unsigned number = lane; number < 16 * kPairs; number += 32) {
      const Pair pair =
          __builtin_bit_cast(Pair, out[number / kPairs * Tile::kOutStep + number % kPairs]);
      finish<kType>(call, place.batch, place.row + row + number / kPairs,
                    place.column + first + number % kPairs * 2, pair.first, pair.second);
    }
  }
}

// Address of 16 bytes in a warp's buffer of rows by 64 columns: eight rows of one column of chunks
// fill the 32 banks once.
__device__ inline unsigned char* out_chunk(unsigned char* out, unsigned row, unsigned chunk) {
  return out + row * 128 + (chunk ^ row % 8) * 16;
}

// Bias of the lane's pairs in 64 columns; -0 where there is none, which changes no sum.
using Biases = std::uint32_t[8];

__device__ inline void load_biases(const GemmCall& call, std::int64_t column, Biases& biases) {
  const std::int64_t first = column + device::lane_index() % 4 * 2;
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    biases[i] = call.bias == nullptr || first + i * 8 >= call.columns
                    ? 0x80008000U
                    : *reinterpret_cast<const std::uint32_t*>(call.bias + first + i * 8);
  }
}

// Finishes a pair of sums of one row, except for the residual.
template <Half kType, Activation kActivation>
__device__ void finish_pair(float scale, std::uint32_t bias, float& first, float& second) {
  first = activated(first * scale + device::to_float<kType>(static_cast<std::uint16_t>(bias)),
                    kActivation);
  second =
      activated(second * scale + device::to_float<kType>(static_cast<std::uint16_t>(bias >> 16)),
                kActivation);
}

template <Half kType>
__device__ void add_pair(std::uint32_t more, float& first, float& second) {
  first += device::to_float<kType>(static_cast<std::uint16_t>(more));
  second += device::to_float<kType>(static_cast<std::uint16_t>(more >> 16));
}

// Writes a warp's results through shared memory, 64 columns at a time: neighbouring lanes load the
// residual and write results in neighbouring chunks of 16 bytes. PTX ISA, fragment of matrix D:
// lane l of warp w has rows 16 w + l / 4 and 8 below, and in each 8 columns the columns 2 (l % 4)
// and 2 (l % 4) + 1; stmatrix and ldmatrix use the same layout.
template <class Tile, Half kType, Activation kActivation>
__device__ void store_chunks(const GemmCall& call, const Place& place, unsigned row,
                             unsigned char* out, Biases& next, float (&sums)[Tile::kColumns / 2]) {
  const unsigned lane = device::lane_index();
  const bool is_added = call.residual.data != nullptr;
  // Each lane has one chunk: the warp covers four rows of eight chunks at once.
  const std::int64_t first_row = place.row + row + lane / 8;
  const std::int64_t first_column = place.column + lane % 8 * 8;
  const std::uint16_t* more = call.residual.data + place.batch * call.residual.batch_step +
                              first_row * call.residual.step + first_column;
  std::uint16_t* to = static_cast<std::uint16_t*>(call.out) +
                      (place.batch * call.rows + first_row) * call.columns + first_column;
#pragma unroll
  for (unsigned first = 0; first < Tile::kColumns; first += 64) {
    if (place.column + first >= call.columns) {
      break;
    }
    const bool is_inside = first_column + first < call.columns;
    Biases biases;
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      biases[i] = next[i];
    }
    if (first + 64 < Tile::kColumns) {
      load_biases(call, place.column + first + 64, next);
    }
    __syncwarp();  // the previous columns have been read
    if (is_added) {
#pragma unroll
      for (unsigned below = 0; below < 16; below += 4) {
        const bool is_there = is_inside && first_row + below < call.rows;
        *reinterpret_cast<OutChunk*>(out_chunk(out, below + lane / 8, lane % 8)) =
            is_there ? *reinterpret_cast<const OutChunk*>(more + below * call.residual.step + first)
                     : OutChunk{};
      }
      __syncwarp();
    }
#pragma unroll
    for (unsigned part = 0; part < 8; part += 2) {
      float* const eight = sums + (first + part * 8) / 2;
      unsigned char* const mine = out_chunk(out, lane % 16, part + lane / 16);
      std::uint32_t words[4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        finish_pair<kType, kActivation>(call.scale, biases[part + i / 2], eight[i * 2],
                                        eight[i * 2 + 1]);
      }
      if (is_added) {
        device::load_matrices(words, mine);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
          add_pair<kType>(words[i], eight[i * 2], eight[i * 2 + 1]);
        }
      }
#pragma unroll
      for (unsigned i = 0; i < 4; ++i) {
        words[i] = device::pair_from_floats<kType>(eight[i * 2], eight[i * 2 + 1]);
      }
      device::store_matrices(mine, words);
    }
    __syncwarp();
#pragma unroll
    for (unsigned below = 0; below < 16; below += 4) {
      if (is_inside && first_row + below < call.rows) {
        *reinterpret_cast<OutChunk*>(to + below * call.columns + first) =
            *reinterpret_cast<const OutChunk*>(out_chunk(out, below + lane / 8, lane % 8));
      }
    }
  }
}

template <class Tile, Half kType>
__device__ void store_chunks(const GemmCall& call, const Place& place, unsigned row,
                             unsigned char* out, Biases& biases,
                             float (&sums)[Tile::kColumns / 2]) {
  switch (call.activation) {
    case Activation::kNone:
      return store_chunks<Tile, kType, Activation::kNone>(call, place, row, out, biases, sums);
    case Activation::kRelu:
      return store_chunks<Tile, kType, Activation::kRelu>(call, place, row, out, biases, sums);
    case Activation::kGelu:
      return store_chunks<Tile, kType, Activation::kGelu>(call, place, row, out, biases, sums);
    case Activation::kSilu:
      return store_chunks<Tile, kType, Activation::kSilu>(call, place, row, out, biases, sums);
  }
}

// Stores sums without activation as float32: the four lanes of a row write 32 adjacent bytes.
template <class Tile, Half kType>
__device__ void store_floats(const GemmCall& call, const Place& place, unsigned row,
                             const float (&sums)[Tile::kColumns / 2]) {
  const unsigned lane = device::lane_index();
  const std::int64_t first_row = place.row + row + lane / 4;
  const std::int64_t first_column = place.column + lane % 4 * 2;
  float* const to = static_cast<float*>(call.out) +
                    (place.batch * call.rows + first_row) * call.columns + first_column;
  const std::uint16_t* const more = call.residual.data + place.batch * call.residual.batch_step +
                                    first_row * call.residual.step + first_column;
#pragma unroll
  for (unsigned i = 0; i < Tile::kColumns / 2; i += 2) {
    const unsigned column = i / 4 * 8;
    const unsigned below = i % 4 / 2 * 8;
    if (first_column + column >= call.columns || first_row + below >= call.rows) {
      continue;
    }
    Pair pair = {sums[i] * call.scale, sums[i + 1] * call.scale};
    if (call.bias != nullptr) {
      add_pair<kType>(*reinterpret_cast<const std::uint32_t*>(call.bias + first_column + column),
                      pair.first, pair.second);
    }
    if (call.residual.data != nullptr) {
      add_pair<kType>(
          *reinterpret_cast<const std::uint32_t*>(more + below * call.residual.step + column),
          pair.first, pair.second);
    }
    *reinterpret_cast<Pair*>(to + below * call.columns + column) = pair;
  }
}

// Frees a stage: copies of both blocks may overwrite it from here on.
template <class Tile>
__device__ void release(const Ring<Tile>& ring, unsigned stage) {
  const unsigned rank = threadIdx.x % Tile::kWarpgroup;
  if (rank < Tile::kCluster) {
    device::mbarrier_arrive_at(ring.empty + stage, rank);
  }
}

template <class Tile, Half kType, bool kDeepA, bool kDeepB>
__device__ void consume(const GemmCall& call, const Schedule<Tile>& schedule, unsigned steps) {
  const Ring<Tile> ring;
  const unsigned rank = device::cluster_rank();
  const unsigned row = (threadIdx.x / Tile::kWarpgroup - 1) * kWarpgroupRows;
  const unsigned warp = (threadIdx.x - Tile::kWarpgroup) / 32;
  const bool in_chunks = is_in_chunks(call);
  const bool in_pairs = is_in_pairs(call);
  Turn<Tile> turn;
  for (unsigned number = blockIdx.x / Tile::kCluster; number < schedule.pairs;
       number += gridDim.x / Tile::kCluster) {
    float sums[Tile::kColumns / 2];
    unsigned before = 0;
    for (unsigned step = 0; step < steps; ++step) {
      device::mbarrier_wait(ring.full + turn.stage, turn.parity);
      multiply_stage<Tile, kType, kDeepA, kDeepB>(
          sums, ring.a(turn.stage) + row * Tile::kSwizzleBytes, ring.b(turn.stage), step > 0);
      device::warpgroup_wait<1>();
      if (step > 0) {
        release(ring, before);
      }
      before = turn.stage;
      turn.go_on();
    }
    const Place place = schedule.at(number, rank);
    PairBits* const out = ring.out + warp * (Tile::kOutBytes / 8);
    Biases biases;
    if (in_chunks) {
      load_biases(call, place.column, biases);
    }
    device::warpgroup_wait_all(sums);
    release(ring, before);
    if (in_chunks) {
      store_chunks<Tile, kType>(call, place, warp * 16, reinterpret_cast<unsigned char*>(out),
                                biases, sums);
    } else if (in_pairs) {
      store_floats<Tile, kType>(call, place, warp * 16, sums);
    } else {
      store<Tile, kType>(call, place, warp * 16, out, sums);
    }
  }
}

// kDeepA: a is stored as [rows, depth], else [depth, rows]. kDeepB: b as [columns, depth], else
// [depth, columns].
template <unsigned kColumns, Half kType, bool kDeepA, bool kDeepB>
__device__ void hopper_gemm(const TensorMap& a, const TensorMap& b, const GemmCall& call,
                            unsigned batches) {
  using Tile = HopperTile<kColumns>;
  const Schedule<Tile> schedule(call, batches);
  const auto steps = static_cast<unsigned>((call.depth + Tile::kDepth - 1) / Tile::kDepth);
  if (threadIdx.x == 0) {
    device::prefetch_map(&a);
    device::prefetch_map(&b);
    Ring<Tile>().init();
  }
  device::cluster_arrive();  // the barriers of both blocks are initialised
  device::cluster_wait();
  if (threadIdx.x < Tile::kWarpgroup) {
    device::lower_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      produce<Tile, kDeepA, kDeepB>(a, b, schedule, steps);
    }
  } else {
    device::raise_registers<kConsumerRegisters>();
    consume<Tile, kType, kDeepA, kDeepB>(call, schedule, steps);
  }
  device::cluster_arrive();  // no block ends while the other may still arrive at its barriers
  device::cluster_wait();
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_nn_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kBfloat16, true, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_nt_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kBfloat16, true, true>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_tn_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kBfloat16, false, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_nn_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kFloat16, true, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_nt_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kFloat16, true, true>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_256_tn_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<256, gt::device::Half::kFloat16, false, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_nn_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kBfloat16, true, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_nt_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kBfloat16, true, true>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_tn_bf16(const __grid_constant__ gt::TensorMap a,
                             const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                             std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kBfloat16, false, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_nn_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kFloat16, true, false>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_nt_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kFloat16, true, true>(a, b, call, batches);
}
__global__ void __launch_bounds__(384, 1)
    gt_gemm_sm90_128_tn_f16(const __grid_constant__ gt::TensorMap a,
                            const __grid_constant__ gt::TensorMap b, gt::GemmCall call,
                            std::uint32_t batches) {
  gt::hopper_gemm<128, gt::device::Half::kFloat16, false, false>(a, b, call, batches);
}
}
