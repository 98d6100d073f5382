// Attention on tensor cores of sm_80 and later. A block has 128 queries of a head, a warp 32. It
// goes over the keys and values in tiles and holds the scores of one tile at a time. The order of
// the loops is that of Dao, "FlashAttention-2" (ICLR 2024).
#include "cuda/attention.h"
#include "cuda/attention_tiles.h"
#include "cuda/worker_kernels.h"

namespace gt {
namespace {

// Holds, for each row of a lane, the greatest score so far in units of log 2, and the lane's part
// of the sum of 2^(score - greatest).
template <class Tile>
struct Softmax {
  float greatest[Tile::kRowTiles][2];
  float sum[Tile::kRowTiles][2];

  __device__ void begin() {
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
      greatest[i][0] = greatest[i][1] = kLowest;
      sum[i][0] = sum[i][1] = 0;
    }
  }

  // Turns scores into 2^(score - greatest), and rescales earlier sums and outputs to the new
  // greatest.
  __device__ void advance(Scores<Tile>& scores, Wide<Tile>& output) {
#pragma unroll
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        advance_row(i, half, scores[i], output[i]);
      }
    }
  }

  // Combines the sums of the lanes that share a row.
  __device__ void finish() {
#pragma unroll
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        sum[i][half] += device::shuffle_xor(sum[i][half], 1);
        sum[i][half] += device::shuffle_xor(sum[i][half], 2);
      }
    }
  }

 private:
  __device__ void advance_row(unsigned i, unsigned half,
                              float (&scores)[Tile::kColumns / kMmaColumns][4],
                              float (&output)[Tile::kWidth / kMmaColumns][4]) {
    const float before = greatest[i][half];
    float now = before;
#pragma unroll
    for (auto& four : scores) {
      now = device::maximum(now, device::maximum(four[half * 2], four[half * 2 + 1]));
    }
    now = device::maximum(now, device::shuffle_xor(now, 1));
    now = device::maximum(now, device::shuffle_xor(now, 2));
    greatest[i][half] = now;
    // A row that sees no key yet has no greatest score; its powers are 0 with any base.
    const float base = now == kLowest ? 0.0F : now;
    const float fit = device::power_of_2(before - base);
    float total = sum[i][half] * fit;
#pragma unroll
    for (auto& four : scores) {
#pragma unroll
      for (unsigned e = half * 2; e < half * 2 + 2; ++e) {
        four[e] = device::power_of_2(four[e] - base);
        total += four[e];
      }
    }
    sum[i][half] = total;
#pragma unroll
    for (auto& four : output) {
      four[half * 2] *= fit;
      four[half * 2 + 1] *= fit;
    }
  }
};

// Scales scores to units of log 2, and sets those whose key the query does not see to kLowest.
// Args: query and key are the warp's first row and the first column.
template <class Tile>
__device__ void scale_and_hide(const DeviceAttention& call, int query, int key,
                               Scores<Tile>& scores) {
  constexpr int kColumns = Tile::kColumns;
  const float scale = call.scale * kLogarithm2OfE;
#pragma unroll
  for (auto& tiles : scores) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& score : tile) {
        score *= scale;
      }
    }
  }
  const bool is_before = !call.is_causal || key + kColumns <= query + 1;
  if (is_before && key + kColumns <= call.keys) {
    return;
  }
  const unsigned lane = device::lane_index();
  const int keys_left = least(call.keys - key, kColumns);
  // Number of columns that the lane's first row sees, not counting the end of the keys.
  const int seen =
      !call.is_causal ? kColumns : least(query - key + 1, kColumns) + static_cast<int>(lane / 4);
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned j = 0; j < Tile::kColumns / kMmaColumns; ++j) {
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        const int column = static_cast<int>(j * kMmaColumns + lane % 4 * 2 + e % 2);
        const int below = static_cast<int>(i * kMmaRows + e / 2 * 8);
        if (column >= keys_left || column >= seen + below) {
          scores[i][j][e] = kLowest;
        }
      }
    }
  }
}

template <class Tile>
__device__ void drop(const DeviceAttention& call, const RowSeeds<Tile>& seeds, int key,
                     Scores<Tile>& scores) {
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned j = 0; j < Tile::kColumns / kMmaColumns; ++j) {
      std::uint32_t words[4];
      seeds.draw(i, key + j * kMmaColumns, words);
#pragma unroll
      for (unsigned e = 0; e < 4; ++e) {
        scores[i][j][e] = words[e] > call.dropped_last ? scores[i][j][e] : 0.0F;
      }
    }
  }
}

template <class Tile>
__device__ void write_logsumexp(const Softmax<Tile>& softmax, int rows, float* to) {
  const unsigned lane = device::lane_index();
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const int row = row_of<Tile>(i, half);
      if (lane % 4 == 0 && row < rows) {
        to[row] =
            softmax.greatest[i][half] * kLogarithmOf2 + device::logarithm(softmax.sum[i][half]);
      }
    }
  }
}

template <Half kType, unsigned kWidth>
__device__ void attention(const DeviceAttention& call) {
  using Tile = AttentionForwardTile<kWidth>;
  constexpr int kRows = Tile::kRows;
  constexpr int kColumns = Tile::kColumns;
  auto* query_panel = reinterpret_cast<std::uint16_t*>(device::dynamic_shared());
  const auto stage = [&](int step) {
    return query_panel + Tile::kHeldElements + step % 2 * (2 * Tile::kStageElements);
  };
  const std::uint32_t head = blockIdx.y;
  const std::uint32_t batch = blockIdx.z;
  // Blocks take the last queries first: causal attention spends the most time on them.
  const int first = static_cast<int>((gridDim.x - 1 - blockIdx.x) * Tile::kRows);
  const int warp_query = first + warp_row<Tile>();
  const HeadRows query = head_rows(call.query, batch, head, call.queries, call.width);
  const HeadRows key = head_rows(call.key, batch, head / call.sharing, call.keys, call.width);
  const HeadRows value = head_rows(call.value, batch, head / call.sharing, call.keys, call.width);
  const std::int64_t offset = (std::int64_t{batch} * call.heads + head) * call.queries + first;
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
  seeds.load(call.seeds == nullptr ? nullptr : call.seeds + offset, call.queries - first);
  copy_rows<Tile, Tile::kRows>(query, first, query_panel);
  copy(0);
  Wide<Tile> output = {};
  Softmax<Tile> softmax;
  softmax.begin();
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
    multiply_rows<kType, Tile>(query_panel, stage(step), scores);
    scale_and_hide<Tile>(call, warp_query, first_key, scores);
    softmax.advance(scores, output);
    if (call.seeds != nullptr) {
      drop<Tile>(call, seeds, first_key, scores);
    }
    Weights<Tile> weights;
    round_weights<kType, Tile>(scores, weights);
    multiply_weights<kType, Tile>(weights, stage(step) + Tile::kStageElements, output);
  }
  softmax.finish();
  float factors[Tile::kRowTiles][2];
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const float sum = softmax.sum[i][half];
      factors[i][half] =
          sum == 0.0F ? 0.0F : (call.seeds != nullptr ? call.kept_factor : 1.0F) / sum;
    }
  }
  write_rows<kType, Tile>(output, factors, call.queries - first, call.width,
                          call.output + offset * call.width);
  write_logsumexp<Tile>(softmax, call.queries - first, call.logsumexp + offset);
}

}  // namespace
}  // namespace gt

extern "C" {

__global__ void __launch_bounds__(128, 2) gt_attention_64_bf16(gt::DeviceAttention call) {
  gt::attention<gt::device::Half::kBfloat16, 64>(call);
}
__global__ void __launch_bounds__(128, 2) gt_attention_128_bf16(gt::DeviceAttention call) {
  gt::attention<gt::device::Half::kBfloat16, 128>(call);
}
__global__ void __launch_bounds__(128, 2) gt_attention_64_f16(gt::DeviceAttention call) {
  gt::attention<gt::device::Half::kFloat16, 64>(call);
}
__global__ void __launch_bounds__(128, 2) gt_attention_128_f16(gt::DeviceAttention call) {
  gt::attention<gt::device::Half::kFloat16, 128>(call);
}
}
