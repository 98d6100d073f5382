// Gradients of attention on tensor cores of sm_90a. Scores are computed again, as in
// attention_backward.cu: one kernel goes over the keys for the gradient of queries, another over
// the queries for the gradients of keys and values, so that every sum has one owner and one order.
// Weights stay in registers: where rows are keys, the product gives transposed scores, and nothing
// is transposed in shared memory.
#include "cuda/attention_hopper.h"

namespace gt {
namespace {

constexpr unsigned kKeyProducerRegisters = 40;
constexpr unsigned kKeyConsumerRegisters = 232;

// Per-query constants of the gradient: 2^(score - logarithm) is a weight.
struct Term {
  float logarithm, product;
};
struct alignas(16) TermPair {
  Term terms[2];
};

template <class Tile>
struct Panels {
  unsigned char* held = device::dynamic_shared();  // two panels
  std::uint64_t* full = reinterpret_cast<std::uint64_t*>(held + Tile::kBarriersAt);
  std::uint64_t* empty = full + Tile::kStages;
  std::uint64_t* held_full = empty + Tile::kStages;
  std::uint64_t* held_empty = held_full + 1;

  __device__ unsigned char* other() const { return held + Tile::kHeldBytes; }
  __device__ unsigned char* first(unsigned stage) const {
    return held + 2 * Tile::kHeldBytes + stage * (2 * Tile::kPanelBytes);
  }
  __device__ unsigned char* second(unsigned stage) const {
    return first(stage) + Tile::kPanelBytes;
  }
  __device__ TermPair* terms(unsigned stage) const {
    return reinterpret_cast<TermPair*>(held + Tile::kTermsAt + stage * Tile::kTermBytes);
  }
  __device__ unsigned char* out(unsigned warp) const {
    return held + Tile::kOutAt + warp * kOutBytes;
  }

  __device__ void init(unsigned arrivals) const {
    constexpr unsigned kConsumerWarps = Tile::kConsumers * kWarpgroup / 32;
    for (unsigned stage = 0; stage < Tile::kStages; ++stage) {
      device::mbarrier_init(full + stage, arrivals);
      device::mbarrier_init(empty + stage, kConsumerWarps);
    }
    device::mbarrier_init(held_full, 1);
    device::mbarrier_init(held_empty, kConsumerWarps);
    device::fence_mbarrier_init();
  }
};

// A tile of rows of one head, with the range of steps [begin, end) over its columns.
struct Place {
  int first;
  unsigned head, batch;
  int begin, end;
};

template <class Tile>
struct Schedule {
  unsigned heads, all_heads, tiles, all;

  __device__ Schedule(unsigned count, unsigned batches, int rows)
      : heads(count),
        all_heads(count * batches),
        tiles((static_cast<unsigned>(rows) + Tile::kRows - 1) / Tile::kRows),
        all(all_heads * tiles) {}

  // Tiles of queries, the last ones first: they see the most keys.
  __device__ Place of_queries(const DeviceAttention& call, unsigned number) const {
    const int first = static_cast<int>((tiles - 1 - number / all_heads) * Tile::kRows);
    const int seen =
        call.is_causal ? least(call.keys, first + static_cast<int>(Tile::kRows)) : call.keys;
    return {first, number % all_heads % heads, number % all_heads / heads, 0,
            ceil_divided(seen, static_cast<int>(Tile::kColumns))};
  }
  // Tiles of keys, the first ones first: the most queries see them.
  __device__ Place of_keys(const DeviceAttention& call, unsigned number) const {
    const int first = static_cast<int>(number / all_heads * Tile::kRows);
    const int end = ceil_divided(call.queries, static_cast<int>(Tile::kColumns));
    const int begin = call.is_causal ? least(first / static_cast<int>(Tile::kColumns), end) : 0;
    return {first, number % all_heads % heads, number % all_heads / heads, begin, end};
  }
};

// Copies that one thread issues: the panels of the tile, and those of each step.
template <class Tile>
struct Copies {
  Panels<Tile> panels;
  Turn<Tile::kStages> turn;

  __device__ void hold(const TensorMap& one, const TensorMap& other, unsigned round, int row,
                       unsigned head, unsigned batch) {
    device::mbarrier_wait(panels.held_empty, round % 2 ^ 1);
    device::mbarrier_arrive_expect(panels.held_full, 2 * Tile::kHeldBytes);
    copy_panel<Tile::kWidth, Tile::kRows>(panels.held, one, panels.held_full, row,
                                          static_cast<std::int32_t>(head),
                                          static_cast<std::int32_t>(batch));
    copy_panel<Tile::kWidth, Tile::kRows>(panels.other(), other, panels.held_full, row,
                                          static_cast<std::int32_t>(head),
                                          static_cast<std::int32_t>(batch));
  }
  __device__ void step(const TensorMap& one, const TensorMap& other, int number, unsigned head,
                       unsigned batch) {
    std::uint64_t* full = panels.full + turn.stage;
    const int row = number * static_cast<int>(Tile::kColumns);
    device::mbarrier_wait(panels.empty + turn.stage, turn.parity ^ 1);
    device::mbarrier_arrive_expect(full, 2 * Tile::kPanelBytes);
    copy_panel<Tile::kWidth, Tile::kColumns>(panels.first(turn.stage), one, full, row,
                                             static_cast<std::int32_t>(head),
                                             static_cast<std::int32_t>(batch));
    copy_panel<Tile::kWidth, Tile::kColumns>(panels.second(turn.stage), other, full, row,
                                             static_cast<std::int32_t>(head),
                                             static_cast<std::int32_t>(batch));
    turn.go_on();
  }
};

// Queries beyond the end get a term whose weights are 0.
__device__ inline Term term_of(const DeviceAttention& call, const DeviceAttentionGradient& gradient,
                               std::int64_t head_row, int query) {
  if (query >= call.queries) {
    return {__builtin_huge_valf(), 0.0F};
  }
  return {call.logsumexp[head_row + query] * kLogarithm2OfE, gradient.products[head_row + query]};
}

__device__ inline std::int64_t first_row(const DeviceAttention& call, unsigned batch,
                                         unsigned head) {
  return (std::int64_t{batch} * call.heads + head) * call.queries;
}

// Copies the terms of each step's queries; one warp runs it.
template <class Tile>
__device__ void bring_terms(const DeviceAttention& call, const DeviceAttentionGradient& gradient,
                            const Schedule<Tile>& schedule) {
  static_assert(Tile::kColumns == 64, "two queries a lane");
  const Panels<Tile> panels;
  const unsigned lane = device::lane_index();
  Turn<Tile::kStages> turn;
  for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
    const unsigned number = tile_of_round(round);
    if (number >= schedule.all) {
      continue;
    }
    const Place place = schedule.of_keys(call, number);
    for (unsigned shared = 0; shared < call.sharing; ++shared) {
      const std::int64_t row = first_row(call, place.batch, place.head * call.sharing + shared);
      for (int step = place.begin; step < place.end; ++step) {
        const int query = step * static_cast<int>(Tile::kColumns) + static_cast<int>(lane * 2);
        const TermPair pair = {
            {term_of(call, gradient, row, query), term_of(call, gradient, row, query + 1)}};
        device::mbarrier_wait(panels.empty + turn.stage, turn.parity ^ 1);
        panels.terms(turn.stage)[lane] = pair;
        __syncwarp();
        if (lane == 0) {
          device::mbarrier_arrive(panels.full + turn.stage);
        }
        turn.go_on();
      }
    }
  }
}

// Frees a stage for one warp: all its threads read terms, so the warp synchronises first.
__device__ inline void release(std::uint64_t* barrier) {
  __syncwarp();
  if (device::lane_index() == 0) {
    device::mbarrier_arrive(barrier);
  }
}

template <class Tile, Half kType>
__device__ void consume_for_keys(const DeviceAttention& call,
                                 const DeviceAttentionGradient& gradient,
                                 const Schedule<Tile>& schedule) {
  const Panels<Tile> panels;
  const unsigned warpgroup = threadIdx.x / kWarpgroup - 1;
  const unsigned warp = threadIdx.x / 32 - kWarpgroup / 32;
  const unsigned lane = device::lane_index();
  const unsigned own_rows = warpgroup * (kWarpgroupRows * kSwizzleBytes);
  const float unit = call.scale * kLogarithm2OfE;
  Turn<Tile::kStages> turn;
  for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
    const unsigned number = tile_of_round(round);
    if (number >= schedule.all) {
      continue;
    }
    const Place place = schedule.of_keys(call, number);
    const int own_key = place.first + static_cast<int>(warp * 16 + lane / 4);
    float key_sums[Tile::kWidth / 2] = {};
    float value_sums[Tile::kWidth / 2] = {};
    device::mbarrier_wait(panels.held_full, round % 2);
    // True where the products of a step with the panels still run while the next step begins. The
    // greater width has too few registers for it.
    constexpr bool kCarries = Tile::kWidth == 64;
    bool is_first = true;
    unsigned before = 0;
    for (unsigned shared = 0; shared < call.sharing; ++shared) {
#pragma unroll 1
      for (int step = place.begin; step < place.end; ++step) {
        float scores[Tile::kColumns / 2];
        float grads[Tile::kColumns / 2];
        std::uint32_t weights[Tile::kColumns / 4];
        device::mbarrier_wait(panels.full + turn.stage, turn.parity);
        device::warpgroup_fence();
        multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(
            scores, panels.held + own_rows, panels.first(turn.stage));
        if (kCarries && !is_first) {
          device::warpgroup_wait<1>();
          release(panels.empty + before);
        }
        multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(
            grads, panels.other() + own_rows, panels.second(turn.stage));
        device::warpgroup_wait<1>(scores);
        const int query = step * static_cast<int>(Tile::kColumns) + static_cast<int>(lane % 4 * 2);
        if (call.is_causal &&
            step * static_cast<int>(Tile::kColumns) < place.first + static_cast<int>(Tile::kRows)) {
#pragma unroll
          for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
            if (own_key + static_cast<int>(i % 4 / 2 * 8) >
                query + static_cast<int>(i / 4 * 8 + i % 2)) {
              scores[i] = kLowest;
            }
          }
        }
        const TermPair* const terms = panels.terms(turn.stage) + lane % 4;
#pragma unroll
        for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
          scores[i] =
              device::power_of_2(scores[i] * unit - terms[i / 4 * 4].terms[i % 2].logarithm);
        }
        round_weights<kType>(scores, weights);
        device::warpgroup_wait_all(grads);
#pragma unroll
        for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
          grads[i] = scores[i] * (grads[i] - terms[i / 4 * 4].terms[i % 2].product);
        }
        std::uint32_t slopes[Tile::kColumns / 4];
        round_weights<kType>(grads, slopes);
        device::warpgroup_fence();
        multiply_weights<kType, Tile::kColumns>(value_sums, weights, panels.second(turn.stage),
                                                true);
        multiply_weights<kType, Tile::kColumns>(key_sums, slopes, panels.first(turn.stage), true);
        device::warpgroup_commit();
        if constexpr (kCarries) {
          is_first = false;
          before = turn.stage;
        } else {
          device::warpgroup_wait_all(value_sums);
          device::warpgroup_wait_all(key_sums);
          release(panels.empty + turn.stage);
        }
        turn.go_on();
      }
    }
    device::warpgroup_wait_all(key_sums);
    device::warpgroup_wait_all(value_sums);
    if (!is_first) {
      release(panels.empty + before);
    }
    release(panels.held_empty);
    const std::int64_t row = (std::int64_t{place.batch} * schedule.heads + place.head) * call.keys +
                             place.first + warp * 16;
    const int left = call.keys - place.first - static_cast<int>(warp * 16);
    write_rows<kType>(key_sums, {call.scale, call.scale}, left, call.width, panels.out(warp),
                      gradient.grad_key + row * call.width);
    write_rows<kType>(value_sums, {1.0F, 1.0F}, left, call.width, panels.out(warp),
                      gradient.grad_value + row * call.width);
  }
}

template <class Tile, Half kType>
__device__ void consume_for_queries(const DeviceAttention& call,
                                    const DeviceAttentionGradient& gradient,
                                    const Schedule<Tile>& schedule) {
  const Panels<Tile> panels;
  const unsigned warpgroup = threadIdx.x / kWarpgroup - 1;
  const unsigned warp = threadIdx.x / 32 - kWarpgroup / 32;
  const unsigned lane = device::lane_index();
  const unsigned own_rows = warpgroup * (kWarpgroupRows * kSwizzleBytes);
  const float unit = call.scale * kLogarithm2OfE;
  Turn<Tile::kStages> turn;
  for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
    const unsigned number = tile_of_round(round);
    if (number >= schedule.all) {
      continue;
    }
    const Place place = schedule.of_queries(call, number);
    const std::int64_t row = first_row(call, place.batch, place.head);
    const int own_query = place.first + static_cast<int>(warp * 16 + lane / 4);
    const Term terms[2] = {term_of(call, gradient, row, own_query),
                           term_of(call, gradient, row, own_query + 8)};
    float sums[Tile::kWidth / 2] = {};
    device::mbarrier_wait(panels.held_full, round % 2);
    unsigned before = 0;
#pragma unroll 1
    for (int step = place.end - 1; step >= 0; --step) {
      float scores[Tile::kColumns / 2];
      float grads[Tile::kColumns / 2];
      device::mbarrier_wait(panels.full + turn.stage, turn.parity);
      device::warpgroup_fence();
      multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(
          scores, panels.held + own_rows, panels.first(turn.stage));
      device::warpgroup_wait<1>();  // the product of the previous step
      if (step < place.end - 1) {
        release(panels.empty + before);
      }
      multiply_rows<kType, Tile::kWidth, Tile::kRows, Tile::kColumns>(
          grads, panels.other() + own_rows, panels.second(turn.stage));
      device::warpgroup_wait<1>(scores);
      if (step == place.end - 1 ||
          (call.is_causal && (step + 1) * static_cast<int>(Tile::kColumns) > place.first + 1)) {
        const int key = step * static_cast<int>(Tile::kColumns) + static_cast<int>(lane % 4 * 2);
#pragma unroll
        for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
          const int column = key + static_cast<int>(i / 4 * 8 + i % 2);
          if (column >= call.keys ||
              (call.is_causal && column > own_query + static_cast<int>(i % 4 / 2 * 8))) {
            scores[i] = kLowest;
          }
        }
      }
#pragma unroll
      for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
        scores[i] = device::power_of_2(scores[i] * unit - terms[i % 4 / 2].logarithm);
      }
      device::warpgroup_wait_all(grads);
#pragma unroll
      for (unsigned i = 0; i < Tile::kColumns / 2; ++i) {
        scores[i] *= grads[i] - terms[i % 4 / 2].product;
      }
      std::uint32_t slopes[Tile::kColumns / 4];
      round_weights<kType>(scores, slopes);
      device::warpgroup_fence();
      multiply_weights<kType, Tile::kColumns>(sums, slopes, panels.first(turn.stage), true);
      device::warpgroup_commit();
      before = turn.stage;
      turn.go_on();
    }
    device::warpgroup_wait_all(sums);
    if (place.end > 0) {
      release(panels.empty + before);
    }
    release(panels.held_empty);
    write_rows<kType>(sums, {call.scale, call.scale},
                      call.queries - place.first - static_cast<int>(warp * 16), call.width,
                      panels.out(warp),
                      gradient.grad_query + (row + place.first + warp * 16) * call.width);
  }
}

template <Half kType, unsigned kWidth>
__device__ void gradient_of_queries(const TensorMap& query, const TensorMap& grad,
                                    const TensorMap& key, const TensorMap& value,
                                    const DeviceAttention& call,
                                    const DeviceAttentionGradient& gradient, unsigned batches) {
  using Tile = AttentionHopperQueryTile<kWidth>;
  const Schedule<Tile> schedule(call.heads, batches, call.queries);
  if (threadIdx.x == 0) {
    Panels<Tile>().init(1);
  }
  __syncthreads();  // the barriers are initialised
  if (threadIdx.x < kWarpgroup) {
    device::lower_registers<kProducerRegisters>();
    if (threadIdx.x == 0) {
      Copies<Tile> copies;
      for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
        const unsigned number = tile_of_round(round);
        if (number < schedule.all) {
          const Place place = schedule.of_queries(call, number);
          copies.hold(query, grad, round, place.first, place.head, place.batch);
          for (int step = place.end - 1; step >= 0; --step) {
            copies.step(key, value, step, place.head / call.sharing, place.batch);
          }
        }
      }
    }
  } else {
    device::raise_registers<kConsumerRegisters>();
    consume_for_queries<Tile, kType>(call, gradient, schedule);
  }
}

template <Half kType, unsigned kWidth>
__device__ void gradient_of_keys(const TensorMap& query, const TensorMap& grad,
                                 const TensorMap& key, const TensorMap& value,
                                 const DeviceAttention& call,
                                 const DeviceAttentionGradient& gradient, unsigned batches) {
  using Tile = AttentionHopperKeyTile<kWidth>;
  const Schedule<Tile> schedule(call.heads / call.sharing, batches, call.keys);
  if (threadIdx.x == 0) {
    Panels<Tile>().init(2);
  }
  __syncthreads();  // the barriers are initialised
  if (threadIdx.x < kWarpgroup) {
    device::lower_registers<kKeyProducerRegisters>();
    if (threadIdx.x == 0) {
      Copies<Tile> copies;
      for (unsigned round = 0; round * gridDim.x < schedule.all; ++round) {
        const unsigned number = tile_of_round(round);
        if (number < schedule.all) {
          const Place place = schedule.of_keys(call, number);
          copies.hold(key, value, round, place.first, place.head, place.batch);
          for (unsigned shared = 0; shared < call.sharing; ++shared) {
            for (int step = place.begin; step < place.end; ++step) {
              copies.step(query, grad, step, place.head * call.sharing + shared, place.batch);
            }
          }
        }
      }
    } else if (threadIdx.x / 32 == 1) {
      bring_terms<Tile>(call, gradient, schedule);
    }
  } else {
    device::raise_registers<kKeyConsumerRegisters>();
    consume_for_keys<Tile, kType>(call, gradient, schedule);
  }
}

}  // namespace
}  // namespace gt

extern "C" {

// Maps copy boxes of 64 elements by 128 rows; where rows are keys, those of queries and of the
// gradient copy AttentionHopperKeyTile::kColumns rows.
#define GT_GRADIENT(name, function, type, width)                                                   \
  __global__ void __launch_bounds__(384, 1) name(                                                  \
      const __grid_constant__ gt::TensorMap query, const __grid_constant__ gt::TensorMap grad,     \
      const __grid_constant__ gt::TensorMap key, const __grid_constant__ gt::TensorMap value,      \
      gt::DeviceAttention call, gt::DeviceAttentionGradient gradient, std::uint32_t batches) {     \
    gt::function<gt::device::Half::type, width>(query, grad, key, value, call, gradient, batches); \
  }
GT_GRADIENT(gt_attention_grad_query_sm90_64_bf16, gradient_of_queries, kBfloat16, 64)
GT_GRADIENT(gt_attention_grad_query_sm90_128_bf16, gradient_of_queries, kBfloat16, 128)
GT_GRADIENT(gt_attention_grad_query_sm90_64_f16, gradient_of_queries, kFloat16, 64)
GT_GRADIENT(gt_attention_grad_query_sm90_128_f16, gradient_of_queries, kFloat16, 128)
GT_GRADIENT(gt_attention_grad_key_sm90_64_bf16, gradient_of_keys, kBfloat16, 64)
GT_GRADIENT(gt_attention_grad_key_sm90_128_bf16, gradient_of_keys, kBfloat16, 128)
GT_GRADIENT(gt_attention_grad_key_sm90_64_f16, gradient_of_keys, kFloat16, 64)
GT_GRADIENT(gt_attention_grad_key_sm90_128_f16, gradient_of_keys, kFloat16, 128)
#undef GT_GRADIENT
}
