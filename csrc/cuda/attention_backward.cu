// Gradients of attention on tensor cores of sm_80 and later. Scores are computed again, by the
// formulas of cpu/attention/backward.h and in units of log 2. Every sum has one owner and one
// order, so the bits are the same at each run: one kernel goes over the keys for the gradient of
// queries, another over the queries for the gradients of keys and values.
#include "cuda/attention_tiles.h"
#include "cuda/worker_kernels.h"

namespace gt {
namespace {

// Sum of grad * output over each row; one warp computes one row.
template <Half kType>
__device__ void attention_products(const DeviceAttention& call,
                                   const DeviceAttentionGradient& gradient) {
  const unsigned lane = device::lane_index();
  const auto query =
      static_cast<int>(blockIdx.x * AttentionProductsTile::kRows + threadIdx.x / kWarpThreads);
  if (query >= call.queries) {
    return;
  }
  const std::int64_t row =
      (std::int64_t{blockIdx.z} * call.heads + blockIdx.y) * call.queries + query;
  const std::uint16_t* grad = gradient.grad.data + blockIdx.z * gradient.grad.batch +
                              blockIdx.y * gradient.grad.head + query * gradient.grad.row;
  const std::uint16_t* output = call.output + row * call.width;
  float sum = 0;
  for (unsigned i = lane; i < call.width; i += kWarpThreads) {
    sum += device::to_float<kType>(grad[i]) * device::to_float<kType>(output[i]);
  }
  for (unsigned lanes = kWarpThreads / 2; lanes > 0; lanes /= 2) {
    sum += device::shuffle_xor(sum, lanes);
  }
  if (lane == 0) {
    gradient.products[row] = sum;
  }
}

// Per-query constants of the gradient: 2^(score - logarithm) is a weight.
struct Term {
  float logarithm, product;
};

// Computes the weight and the gradient of one score in place. Args: score, the product of query and
// key, becomes the weight; grad, the product of the output's gradient and the value, becomes the
// gradient of the score.
__device__ inline void turn_score(const DeviceAttention& call, const Term& term, bool is_kept,
                                  bool is_seen, float& score, float& grad) {
  const float weight =
      is_seen ? device::power_of_2(score * (call.scale * kLogarithm2OfE) - term.logarithm) : 0.0F;
  const float factor = call.seeds == nullptr ? 1.0F : is_kept ? call.kept_factor : 0.0F;
  grad = weight * (grad * factor - term.product);
  score = is_kept ? weight : 0.0F;
}

// Terms of a lane's rows, where rows are queries.
template <class Tile>
struct RowTerms {
  Term of_row[Tile::kRowTiles][2];

  __device__ void load(const float* logsumexp, const float* products, int rows) {
#pragma unroll
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const int row = row_of<Tile>(i, half);
        of_row[i][half] =
            row < rows ? Term{logsumexp[row] * kLogarithm2OfE, products[row]} : Term{};
      }
    }
  }
};

// Replaces `grads` by the gradients of the scores; the weights are not kept.
template <class Tile>
__device__ void turn_rows(const DeviceAttention& call, const RowTerms<Tile>& terms,
                          const RowSeeds<Tile>& seeds, int query, int key, Scores<Tile>& scores,
                          Scores<Tile>& grads) {
  constexpr int kColumns = Tile::kColumns;
  const unsigned lane = device::lane_index();
  const int keys_left = least(call.keys - key, kColumns);
  // Number of columns that the lane's first row sees, not counting the end of the keys.
  const int seen =
      !call.is_causal ? kColumns : least(query - key + 1, kColumns) + static_cast<int>(lane / 4);
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned j = 0; j < Tile::kColumns / kMmaColumns; ++j) {
      std::uint32_t words[4] = {~0U, ~0U, ~0U, ~0U};
      if (call.seeds != nullptr) {
        seeds.draw(i, key + j * kMmaColumns, words);
      }
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const int column = static_cast<int>(j * kMmaColumns + lane % 4 * 2 + e % 2);
        const int below = static_cast<int>(i * kMmaRows + e / 2 * 8);
        const bool is_seen = column < keys_left && column < seen + below;
        turn_score(call, terms.of_row[i][e / 2], words[e] > call.dropped_last, is_seen,
                   scores[i][j][e], grads[i][j][e]);
      }
    }
  }
}

template <Half kType, unsigned kWidth>
__device__ void attention_grad_query(const DeviceAttention& call,
                                     const DeviceAttentionGradient& gradient) {
  using Tile = AttentionQueryTile<kWidth>;
  constexpr int kRows = Tile::kRows;
  constexpr int kColumns = Tile::kColumns;
  auto* query_panel = reinterpret_cast<std::uint16_t*>(device::dynamic_shared());
  std::uint16_t* grad_panel = query_panel + Tile::kHeldElements;
  const auto stage = [&](int step) {
    return grad_panel + Tile::kHeldElements + step % 2 * (2 * Tile::kStageElements);
  };
  const std::uint32_t head = blockIdx.y;
  const std::uint32_t batch = blockIdx.z;
  const int first = static_cast<int>((gridDim.x - 1 - blockIdx.x) * Tile::kRows);
  const int warp_query = first + warp_row<Tile>();
  const HeadRows query = head_rows(call.query, batch, head, call.queries, call.width);
  const HeadRows grad = head_rows(gradient.grad, batch, head, call.queries, call.width);
  const HeadRows key = head_rows(call.key, batch, head / call.sharing, call.keys, call.width);
  const HeadRows value = head_rows(call.value, batch, head / call.sharing, call.keys, call.width);
  const std::int64_t offset = (std::int64_t{batch} * call.heads + head) * call.queries + first;
  const int rows = call.queries - first;
  const int seen = call.is_causal ? least(call.keys, first + kRows) : call.keys;
  const int steps = ceil_divided(seen, kColumns);

  const auto copy = [&](int step) {
    if (step < steps) {
      copy_rows<Tile, Tile::kColumns>(key, step * kColumns, stage(step));
      copy_rows<Tile, Tile::kColumns>(value, step * kColumns, stage(step) + Tile::kStageElements);
    }
    device::copy_commit();
  };

  RowSeeds<Tile> seeds;
  seeds.load(call.seeds == nullptr ? nullptr : call.seeds + offset, rows);
  RowTerms<Tile> terms;
  terms.load(call.logsumexp + offset, gradient.products + offset, rows);
  copy_rows<Tile, Tile::kRows>(query, first, query_panel);
  copy_rows<Tile, Tile::kRows>(grad, first, grad_panel);
  copy(0);
  Wide<Tile> sums = {};
  for (int step = 0; step < steps; ++step) {
    device::copy_wait<0>();
    __syncthreads();  // the stage is complete, and nobody reads the previous one
    copy(step + 1);
    const int first_key = step * kColumns;
    const int last_query = warp_query + kRows / 4 - 1;
    if (warp_query >= call.queries || (call.is_causal && first_key > last_query)) {
      continue;  // this warp sees none of these keys
    }
    Scores<Tile> scores = {};
    Scores<Tile> grads = {};
    multiply_rows<kType, Tile>(query_panel, stage(step), scores);
    multiply_rows<kType, Tile>(grad_panel, stage(step) + Tile::kStageElements, grads);
    turn_rows<Tile>(call, terms, seeds, warp_query, first_key, scores, grads);
    Weights<Tile> weights;
    round_weights<kType, Tile>(grads, weights);
    multiply_weights<kType, Tile>(weights, stage(step), sums);
  }
  write_rows<kType, Tile>(sums, call.scale, rows, call.width,
                          gradient.grad_query + offset * call.width);
}

// Terms of one stage of queries.
template <unsigned kColumns>
struct ColumnTerms {
  float logsumexp[kColumns];
  float products[kColumns];
  std::uint64_t seeds[kColumns];
};

// Starts copying the terms of queries [query, query + kColumns) of one head; zeros beyond the end.
template <unsigned kColumns>
__device__ void copy_terms(const DeviceAttention& call, const DeviceAttentionGradient& gradient,
                           std::int64_t offset, int query, ColumnTerms<kColumns>& terms) {
  const unsigned column = threadIdx.x;
  if (column >= kColumns) {
    return;
  }
  const bool is_inside = query + static_cast<int>(column) < call.queries;
  const std::int64_t at = is_inside ? offset + query + column : 0;
  device::copy_async<4>(&terms.logsumexp[column], call.logsumexp + at, is_inside ? 4U : 0U);
  device::copy_async<4>(&terms.products[column], gradient.products + at, is_inside ? 4U : 0U);
  if (call.seeds != nullptr) {
    device::copy_async<8>(&terms.seeds[column], call.seeds + at, is_inside ? 8U : 0U);
  }
}

// Like turn_rows, but rows are keys from `key` on and columns are queries from `query` on.
template <class Tile>
__device__ void turn_columns(const DeviceAttention& call, const ColumnTerms<Tile::kColumns>& terms,
                             int query, int key, Scores<Tile>& scores, Scores<Tile>& grads) {
  constexpr int kColumns = Tile::kColumns;
  const unsigned lane = device::lane_index();
  const int queries_left = least(call.queries - query, kColumns);
  // The first column whose query sees the lane's first row.
  const int first =
      !call.is_causal ? -static_cast<int>(Tile::kRows) : key - query + static_cast<int>(lane / 4);
#pragma unroll
  for (unsigned j = 0; j < Tile::kColumns / kMmaColumns; ++j) {
    const unsigned pair = j * kMmaColumns + lane % 4 * 2;
    const Term both[2] = {{terms.logsumexp[pair] * kLogarithm2OfE, terms.products[pair]},
                          {terms.logsumexp[pair + 1] * kLogarithm2OfE, terms.products[pair + 1]}};
#pragma unroll
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
      std::uint32_t words[4] = {~0U, ~0U, ~0U, ~0U};
      if (call.seeds != nullptr) {
        draw_for_keys(terms.seeds + j * kMmaColumns, key + i * kMmaRows, words);
      }
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const int column = static_cast<int>(pair + e % 2);
        const int below = static_cast<int>(i * kMmaRows + e / 2 * 8);
        const bool is_seen = column < queries_left && column >= first + below;
        turn_score(call, both[e % 2], words[e] > call.dropped_last, is_seen, scores[i][j][e],
                   grads[i][j][e]);
      }
    }
  }
}

template <Half kType, unsigned kWidth>
__device__ void attention_grad_key(const DeviceAttention& call,
                                   const DeviceAttentionGradient& gradient) {
  using Tile = AttentionKeyTile<kWidth>;
  using Terms = ColumnTerms<Tile::kColumns>;
  static_assert(Tile::kPanelBytes + Tile::kStages * sizeof(Terms) == Tile::kSharedBytes);
  constexpr int kColumns = Tile::kColumns;
  auto* key_panel = reinterpret_cast<std::uint16_t*>(device::dynamic_shared());
  std::uint16_t* value_panel = key_panel + Tile::kHeldElements;
  auto* terms = reinterpret_cast<Terms*>(device::dynamic_shared() + Tile::kPanelBytes);
  const auto stage = [&](int step) {
    return value_panel + Tile::kHeldElements + step % 2 * (2 * Tile::kStageElements);
  };
  const std::uint32_t head = blockIdx.y;  // head of keys
  const std::uint32_t batch = blockIdx.z;
  const int first = static_cast<int>(blockIdx.x * Tile::kRows);
  const int warp_key = first + warp_row<Tile>();
  const int first_tile = call.is_causal ? first / kColumns : 0;
  const int tiles = ceil_divided(call.queries, kColumns) - first_tile;
  // Steps go over the heads of queries that share these keys, one after the other.
  const int steps = tiles <= 0 ? 0 : tiles * call.sharing;

  const auto copy = [&](int step) {
    if (step < steps) {
      const auto query_head = head * call.sharing + static_cast<std::uint32_t>(step / tiles);
      const int query = (first_tile + step % tiles) * kColumns;
      copy_rows<Tile, Tile::kColumns>(
          head_rows(call.query, batch, query_head, call.queries, call.width), query, stage(step));
      copy_rows<Tile, Tile::kColumns>(
          head_rows(gradient.grad, batch, query_head, call.queries, call.width), query,
          stage(step) + Tile::kStageElements);
      copy_terms<Tile::kColumns>(call, gradient,
                                 (std::int64_t{batch} * call.heads + query_head) * call.queries,
                                 query, terms[step % 2]);
    }
    device::copy_commit();
  };

  copy_rows<Tile, Tile::kRows>(head_rows(call.key, batch, head, call.keys, call.width), first,
                               key_panel);
  copy_rows<Tile, Tile::kRows>(head_rows(call.value, batch, head, call.keys, call.width), first,
                               value_panel);
  copy(0);
  Wide<Tile> key_sums = {};
  Wide<Tile> value_sums = {};
  for (int step = 0; step < steps; ++step) {
    device::copy_wait<0>();
    __syncthreads();  // the stage is complete, and nobody reads the previous one
    copy(step + 1);
    const int query = (first_tile + step % tiles) * kColumns;
    if (warp_key >= call.keys || (call.is_causal && query + kColumns <= warp_key)) {
      continue;  // none of these queries sees a key of this warp
    }
    Scores<Tile> scores = {};
    Scores<Tile> grads = {};
    multiply_rows<kType, Tile>(key_panel, stage(step), scores);
    multiply_rows<kType, Tile>(value_panel, stage(step) + Tile::kStageElements, grads);
    turn_columns<Tile>(call, terms[step % 2], query, warp_key, scores, grads);
    Weights<Tile> weights;
    round_weights<kType, Tile>(scores, weights);
    multiply_weights<kType, Tile>(weights, stage(step) + Tile::kStageElements, value_sums);
    round_weights<kType, Tile>(grads, weights);
    multiply_weights<kType, Tile>(weights, stage(step), key_sums);
  }
  const std::int64_t offset =
      (std::int64_t{batch} * (call.heads / call.sharing) + head) * call.keys + first;
  const int rows = call.keys - first;
  write_rows<kType, Tile>(key_sums, call.scale, rows, call.width,
                          gradient.grad_key + offset * call.width);
  write_rows<kType, Tile>(value_sums, call.seeds == nullptr ? 1.0F : call.kept_factor, rows,
                          call.width, gradient.grad_value + offset * call.width);
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(128)
    gt_attention_products_bf16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_products<gt::device::Half::kBfloat16>(call, gradient);
}

__global__ void __launch_bounds__(128)
    gt_attention_products_f16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_products<gt::device::Half::kFloat16>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_query_64_bf16(gt::DeviceAttention call,
                                    gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_query<gt::device::Half::kBfloat16, 64>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_query_128_bf16(gt::DeviceAttention call,
                                     gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_query<gt::device::Half::kBfloat16, 128>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_query_64_f16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_query<gt::device::Half::kFloat16, 64>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_query_128_f16(gt::DeviceAttention call,
                                    gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_query<gt::device::Half::kFloat16, 128>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_key_64_bf16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_key<gt::device::Half::kBfloat16, 64>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_key_128_bf16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_key<gt::device::Half::kBfloat16, 128>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_key_64_f16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_key<gt::device::Half::kFloat16, 64>(call, gradient);
}
__global__ void __launch_bounds__(128, 2)
    gt_attention_grad_key_128_f16(gt::DeviceAttention call, gt::DeviceAttentionGradient gradient) {
  gt::attention_grad_key<gt::device::Half::kFloat16, 128>(call, gradient);
}
}
