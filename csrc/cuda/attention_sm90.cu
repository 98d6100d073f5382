// Attention on tensor cores of sm_90a: tensor copies (TMA) into a ring of panels, wgmma with the
// weights in registers. While a warpgroup computes the weights of one panel's scores, the product
// of the previous weights with their values still runs. The order is that of Shah and others,
// "FlashAttention-3" (NeurIPS 2024).
//
// Blocks are persistent and take one tile of queries after another. Panels of keys and values
// arrive in the order of use, from the last that a tile sees to the first: only the last needs
// masking.
#include "cuda/attention_hopper.h"

namespace gt {
namespace {

template <class Tile>
struct Panels {
  unsigned char* query = device::dynamic_shared();
  unsigned char* ring = query + Tile::kPanelBytes;
  unsigned char* out = query + Tile::kOutAt;
  std::uint64_t* full = reinterpret_cast<std::uint64_t*>(query + Tile::kBarriersAt);
  std::uint64_t* empty = full + Tile::kStages;
  std::uint64_t* query_full = empty + Tile::kStages;
  std::uint64_t* query_empty = query_full + 1;

  __device__ unsigned char* at(unsigned stage) const { return ring + stage * Tile::kPanelBytes; }

  __device__ void init() const {
    for (unsigned stage = 0; stage < Tile::kStages; ++stage) {
      device::mbarrier_init(full + stage, 1);
      device::mbarrier_init(empty + stage, Tile::kConsumers);
    }
    device::mbarrier_init(query_full, 1);
    device::mbarrier_init(query_empty, Tile::kConsumers);
    device::fence_mbarrier_init();
  }
};

// A tile of queries of one head.
struct Place {
  int first;  // query
  std::int32_t head, batch;
  int steps;  // number of panels of keys that it sees
};

// Order of the tiles: the longest first.
template <class Tile>
struct Schedule {
  unsigned heads, tiles, all;

  __device__ Schedule(const DeviceAttention& call, unsigned batches)
      : heads(call.heads * batches),
        tiles((static_cast<unsigned>(call.queries) + Tile::kRows - 1) / Tile::kRows),
        all(heads * tiles) {}

  __device__ Place at(const DeviceAttention& call, unsigned number) const {
    const int first = static_cast<int>((tiles - 1 - number / heads) * Tile::kRows);
    const int seen =
        call.is_causal ? least(call.keys, first + static_cast<int>(Tile::kRows)) : call.keys;
    return {first, static_cast<std::int32_t>(number % heads % call.heads),
            static_cast<std::int32_t>(number % heads / call.heads),
            ceil_divided(seen, static_cast<int>(Tile::kColumns))};
  }
};

// Fills the ring; one thread runs it.
template <class Tile>
__device__ void produce(const TensorMap& query, const TensorMap& key, const TensorMap& value,
                        const DeviceAttention& call, const Schedule<Tile>& schedule) {
  const Panels<Tile> panels;
  Turn<Tile::kStages> turn;
  const auto copy_next = [&](const TensorMap& map, const Place& place, int step) {
    device::mbarrier_wait(panels.empty + turn.stage, turn.parity ^ 1);
    device::mbarrier_arrive_expect(panels.full + turn.stage, Tile::kPanelBytes);
    copy_panel<Tile::kWidth, Tile::kColumns>(
        panels.at(turn.stage), map, panels.full + turn.stage,
        (place.steps - 1 - step) * static_cast<int>(Tile::kColumns),
        static_cast<std::int32_t>(static_cast<unsigned>(place.head) / call.sharing), place.batch);
    turn.go_on();
  };
  for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
    const unsigned number = tile_of_round(round);
    if (number >= schedule.all) {
      continue;
    }
    const Place place = schedule.at(call, number);
    device::mbarrier_wait(panels.query_empty, round % 2 ^ 1);
    device::mbarrier_arrive_expect(panels.query_full, Tile::kPanelBytes);
    copy_panel<Tile::kWidth, Tile::kRows>(panels.query, query, panels.query_full, place.first,
                                          place.head, place.batch);
    for (int step = 0; step < place.steps; ++step) {
      copy_next(key, place, step);
      if (step > 0) {
        copy_next(value, place, step - 1);
      }
    }
    copy_next(value, place, place.steps - 1);
  }
}

// Holds, for each of a lane's two rows, the greatest score so far, and the lane's part of the sum
// of 2^(unit * (score - greatest)).
struct Softmax {
  float greatest[2] = {kLowest, kLowest};
  float sum[2] = {0, 0};

  // Turns scores into weights. Sets `fit` to the factors that rescale earlier outputs.
  template <unsigned count>
  __device__ void advance(float unit, float (&scores)[count], float (&fit)[2]) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      float now = greatest[half];
#pragma unroll
      for (unsigned i = half * 2; i < count; i += 4) {
        now = device::maximum(now, device::maximum(scores[i], scores[i + 1]));
      }
      now = device::maximum(now, device::shuffle_xor(now, 1));
      now = device::maximum(now, device::shuffle_xor(now, 2));
      const float base = now == kLowest ? 0.0F : now * unit;
      fit[half] = device::power_of_2(greatest[half] * unit - base);
      greatest[half] = now;
      float total = sum[half] * fit[half];
#pragma unroll
      for (unsigned i = half * 2; i < count; i += 4) {
        scores[i] = device::power_of_2(scores[i] * unit - base);
        scores[i + 1] = device::power_of_2(scores[i + 1] * unit - base);
        total += scores[i] + scores[i + 1];
      }
      sum[half] = total;
    }
  }
};

// Sets scores whose key the query does not see to kLowest. Args: query and key are those of the
// lane's first row and column.
template <unsigned count>
__device__ void hide(const DeviceAttention& call, int query, int key, float (&scores)[count]) {
#pragma unroll
  for (unsigned i = 0; i < count; ++i) {
    const int column = key + static_cast<int>(i / 4 * 8 + i % 2);
    const int row = query + static_cast<int>(i % 4 / 2 * 8);
    if (column >= call.keys || (call.is_causal && column > row)) {
      scores[i] = kLowest;
    }
  }
}

// Writes a warp's 16 rows, from `row` of the tile on.
template <class Tile, Half kType>
__device__ void write(const DeviceAttention& call, const Place& place, unsigned row,
                      const Softmax& softmax, unsigned char* out,
                      const float (&output)[Tile::kWidth / 2]) {
  const unsigned lane = device::lane_index();
  const std::int64_t offset =
      (std::int64_t{place.batch} * call.heads + static_cast<unsigned>(place.head)) * call.queries +
      place.first + row;
  const int left = call.queries - place.first - static_cast<int>(row);
  float factors[2];
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    float sum = softmax.sum[half];
    sum += device::shuffle_xor(sum, 1);
    sum += device::shuffle_xor(sum, 2);
    factors[half] = sum == 0.0F ? 0.0F : 1.0F / sum;
    const int at = static_cast<int>(lane / 4 + half * 8);
    if (lane % 4 == 0 && at < left) {
      call.logsumexp[offset + at] = softmax.greatest[half] * call.scale + device::logarithm(sum);
    }
  }
  write_rows<kType>(output, factors, left, call.width, out, call.output + offset * call.width);
}

template <class Tile, Half kType>
__device__ void consume(const DeviceAttention& call, const Schedule<Tile>& schedule) {
  const Panels<Tile> panels;
  const unsigned warpgroup = threadIdx.x / kWarpgroup - 1;
  const unsigned warp = threadIdx.x / 32 - kWarpgroup / 32;
  const unsigned lane = device::lane_index();
  const bool is_first_thread = threadIdx.x % kWarpgroup == 0;
  const unsigned char* query = panels.query + warpgroup * (kWarpgroupRows * kSwizzleBytes);
  const float unit = call.scale * kLogarithm2OfE;
  const auto release = [&](std::uint64_t* barrier) {
    if (is_first_thread) {
      device::mbarrier_arrive(barrier);
    }
  };
  if (warpgroup == 1) {
    device::barrier_arrive(1, 2 * kWarpgroup);
  }
  Turn<Tile::kStages> turn;
  for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
    const unsigned number = tile_of_round(round);
    if (number >= schedule.all) {
      continue;
    }
    const Place place = schedule.at(call, number);
    float scores[Tile::kColumns / 2];
    float output[Tile::kWidth / 2];
    std::uint32_t weights[Tile::kColumns / 4];
    Softmax softmax;
    float fit[2];
    device::mbarrier_wait(panels.query_full, round % 2);
    device::mbarrier_wait(panels.full + turn.stage, turn.parity);
    device::warpgroup_fence();
    multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(scores, query,
                                                                    panels.at(turn.stage));
    device::warpgroup_wait_all(scores);
    release(panels.empty + turn.stage);
    turn.go_on();
    hide(call, place.first + static_cast<int>(warp * 16 + lane / 4),
         (place.steps - 1) * static_cast<int>(Tile::kColumns) + static_cast<int>(lane % 4 * 2),
         scores);
    softmax.advance(unit, scores, fit);
    round_weights<kType>(scores, weights);
#pragma unroll 1
    for (int step = 1; step < place.steps; ++step) {
      const unsigned of_keys = turn.stage;
      device::mbarrier_wait(panels.full + of_keys, turn.parity);
      device::barrier_sync(1 + warpgroup, 2 * kWarpgroup);
      device::warpgroup_fence();
      multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(scores, query,
                                                                      panels.at(of_keys));
      turn.go_on();
      device::mbarrier_wait(panels.full + turn.stage, turn.parity);
      multiply_weights<kType, Tile::kColumns>(output, weights, panels.at(turn.stage), step > 1);
      device::warpgroup_commit();
      device::barrier_arrive(2 - warpgroup, 2 * kWarpgroup);
      device::warpgroup_wait<1>(scores);
      release(panels.empty + of_keys);
      softmax.advance(unit, scores, fit);
      device::warpgroup_wait_all(output);
      release(panels.empty + turn.stage);
      turn.go_on();
#pragma unroll
      for (unsigned i = 0; i < Tile::kWidth / 2; ++i) {
        output[i] *= fit[i % 4 / 2];
      }
      round_weights<kType>(scores, weights);
    }
    release(panels.query_empty);
    device::mbarrier_wait(panels.full + turn.stage, turn.parity);
    device::warpgroup_fence();
    multiply_weights<kType, Tile::kColumns>(output, weights, panels.at(turn.stage),
                                            place.steps > 1);
    device::warpgroup_commit();
    device::warpgroup_wait_all(output);
    release(panels.empty + turn.stage);
    turn.go_on();
    write<Tile, kType>(call, place, warp * 16, softmax, panels.out + warp * kOutBytes, output);
  }
}

template <Half kType, unsigned kWidth>
__device__ void hopper_attention(const TensorMap& query, const TensorMap& key,
                                 const TensorMap& value, const DeviceAttention& call,
                                 unsigned batches) {
  using Tile = AttentionHopperTile<kWidth>;
  const Schedule<Tile> schedule(call, batches);
  if (threadIdx.x == 0) {
    device::prefetch_map(&query);
    device::prefetch_map(&key);
    device::prefetch_map(&value);
    Panels<Tile>().init();
  }
  __syncthreads();  // the barriers are initialised
  if (threadIdx.x < kWarpgroup) {
    device::lower_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      produce<Tile>(query, key, value, call, schedule);
    }
  } else {
    device::raise_registers<kConsumerRegisters>();
    consume<Tile, kType>(call, schedule);
  }
}

}  // namespace
}  // namespace gt

extern "C" {

#define GT_ATTENTION(name, type, width)                                                            \
  __global__ void __launch_bounds__(384, 1)                                                        \
      name(const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap key, \
           const __grid_constant__ gt::TensorMap value, gt::DeviceAttention call,                  \
           std::uint32_t batches) {                                                                \
    gt::hopper_attention<gt::device::Half::type, width>(query, key, value, call, batches);         \
  }
GT_ATTENTION(gt_attention_sm90_64_bf16, kBfloat16, 64)
GT_ATTENTION(gt_attention_sm90_128_bf16, kBfloat16, 128)
GT_ATTENTION(gt_attention_sm90_64_f16, kFloat16, 64)
GT_ATTENTION(gt_attention_sm90_128_f16, kFloat16, 128)
#undef GT_ATTENTION
}
