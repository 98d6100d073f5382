// Code shared by the attention kernels: panels in shared memory, the two products of tensor cores
// around a softmax, the random words of dropout. Included by kernels only.
//
// A warp has kRowTiles tiles of 16 rows. In a tile of 16 x 8 sums, lane l holds rows l / 4 and l /
// 4 + 8, and in each the columns 2 (l % 4) and 2 (l % 4) + 1: PTX ISA, fragments of mma.m16n8k16.
#pragma once

#include "cuda/worker_kernels.h"

namespace gt {
namespace {

using device::Half;

constexpr unsigned kChunk = 8;  // elements in 16 bytes
constexpr unsigned kWarpThreads = 32;
constexpr unsigned kMmaRows = 16;
constexpr unsigned kMmaColumns = 8;
constexpr float kLowest = -__builtin_huge_valf();
constexpr float kLogarithmOf2 = 0.693147181F;
constexpr float kLogarithm2OfE = 1.44269504F;

__device__ inline int least(int a, int b) { return a < b ? a : b; }
__device__ inline int ceil_divided(int count, int by) { return (count + by - 1) / by; }

// Rows of one head.
struct HeadRows {
  const std::uint16_t* data;
  std::int64_t step;
  int rows, width;
};

__device__ inline HeadRows head_rows(const AttentionRows& all, std::uint32_t batch,
                                     std::uint32_t head, int rows, std::uint32_t width) {
  return {all.data + batch * all.batch + head * all.head, all.row, rows, static_cast<int>(width)};
}

// Offset of a chunk in a panel: eight rows of one column of chunks fill the 32 banks once.
template <unsigned kWidth>
__device__ unsigned panel_offset(unsigned row, unsigned chunk) {
  return (row * (kWidth / kChunk) + (chunk ^ (row & 7))) * kChunk;
}

// Starts copying kRows rows from `first` on; zeros beyond the rows and their width.
template <class Tile, unsigned kRows>
__device__ void copy_rows(const HeadRows& from, int first, std::uint16_t* panel) {
  constexpr unsigned kChunks = Tile::kWidth / kChunk;
  for (unsigned i = threadIdx.x; i < kRows * kChunks; i += Tile::kThreads) {
    const unsigned row = i / kChunks;
    const unsigned chunk = i % kChunks;
    const int at = first + static_cast<int>(row);
    const bool is_inside = at < from.rows && static_cast<int>(chunk * kChunk) < from.width;
    device::copy_async<16>(panel + panel_offset<Tile::kWidth>(row, chunk),
                           is_inside ? from.data + at * from.step + chunk * kChunk : from.data,
                           is_inside ? 16U : 0U);
  }
}

// The first row of a warp in its block.
template <class Tile>
__device__ int warp_row() {
  return static_cast<int>(threadIdx.x / kWarpThreads * kMmaRows * Tile::kRowTiles);
}

// Row in the block of a lane's sums in tile i of its warp; `half` selects one of the two.
template <class Tile>
__device__ int row_of(unsigned i, unsigned half) {
  return warp_row<Tile>() + static_cast<int>(i * kMmaRows + half * 8 + device::lane_index() / 4);
}

// Sums of a warp's rows by `columns` columns.
template <class Tile, unsigned columns>
using Sums = float[Tile::kRowTiles][columns / kMmaColumns][4];
template <class Tile>
using Scores = Sums<Tile, Tile::kColumns>;
template <class Tile>
using Wide = Sums<Tile, Tile::kWidth>;
// Weights in 16 bits, in the layout of mma.sync's first operand.
template <class Tile>
using Weights = std::uint32_t[Tile::kRowTiles][Tile::kColumns / 16][4];

// scores += a's rows of this warp times b's rows, along the width.
template <Half kType, class Tile>
__device__ void multiply_rows(const std::uint16_t* a, const std::uint16_t* b,
                              Scores<Tile>& scores) {
  const unsigned lane = device::lane_index();
#pragma unroll 4  // of a width of 128 not all: addresses made in advance would take registers
  for (unsigned chunk = 0; chunk < Tile::kWidth / kChunk; chunk += 2) {
    std::uint32_t a_parts[Tile::kRowTiles][4];
#pragma unroll
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
      const unsigned row = static_cast<unsigned>(warp_row<Tile>()) + i * kMmaRows + lane % 16;
      device::load_matrices(a_parts[i], a + panel_offset<Tile::kWidth>(row, chunk + lane / 16));
    }
#pragma unroll
    for (unsigned j = 0; j < Tile::kColumns / kMmaColumns; j += 2) {
      const unsigned row = j * kMmaColumns + lane / 16 * 8 + lane % 8;
      std::uint32_t b_parts[4];
      device::load_matrices(b_parts, b + panel_offset<Tile::kWidth>(row, chunk + lane / 8 % 2));
#pragma unroll
      for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
        device::multiply_add<kType>(scores[i][j], a_parts[i], {b_parts[0], b_parts[1]});
        device::multiply_add<kType>(scores[i][j + 1], a_parts[i], {b_parts[2], b_parts[3]});
      }
    }
  }
}

// sums += weights times the panel's rows.
template <Half kType, class Tile>
__device__ void multiply_weights(const Weights<Tile>& weights, const std::uint16_t* panel,
                                 Wide<Tile>& sums) {
  const unsigned lane = device::lane_index();
#pragma unroll
  for (unsigned step = 0; step < Tile::kColumns / 16; ++step) {
#pragma unroll
    for (unsigned j = 0; j < Tile::kWidth / kMmaColumns; j += 2) {
      std::uint32_t parts[4];
      device::load_matrices_transposed(
          parts, panel + panel_offset<Tile::kWidth>(step * 16 + lane % 16, j + lane / 16));
#pragma unroll
      for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
        device::multiply_add<kType>(sums[i][j], weights[i][step], {parts[0], parts[1]});
        device::multiply_add<kType>(sums[i][j + 1], weights[i][step], {parts[2], parts[3]});
      }
    }
  }
}

template <Half kType, class Tile>
__device__ void round_weights(const Scores<Tile>& scores, Weights<Tile>& weights) {
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned part = 0; part < Tile::kColumns / 8 * 2; ++part) {
      const float (&sums)[4] = scores[i][part / 2];
      weights[i][part / 4][part % 4] =
          device::pair_from_floats<kType>(sums[part % 2 * 2], sums[part % 2 * 2 + 1]);
    }
  }
}

// Writes each row's sums times its factor, inside the matrix only. `to` is the block's first row in
// a dense matrix of `width` columns, of which `rows` rows are left.
template <Half kType, class Tile>
__device__ void write_rows(const Wide<Tile>& sums, const float (&factors)[Tile::kRowTiles][2],
                           int rows, std::uint32_t width, std::uint16_t* to) {
  const unsigned lane = device::lane_index();
#pragma unroll
  for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      const int row = row_of<Tile>(i, half);
      const float factor = factors[i][half];
#pragma unroll
      for (unsigned j = 0; j < Tile::kWidth / kMmaColumns; ++j) {
        const unsigned column = j * kMmaColumns + lane % 4 * 2;
        if (row < rows && column < width) {
          *reinterpret_cast<std::uint32_t*>(to + std::int64_t{row} * width + column) =
              device::pair_from_floats<kType>(sums[i][j][half * 2] * factor,
                                              sums[i][j][half * 2 + 1] * factor);
        }
      }
    }
  }
}
// Writes the sums times one factor for all rows.
template <Half kType, class Tile>
__device__ void write_rows(const Wide<Tile>& sums, float factor, int rows, std::uint32_t width,
                           std::uint16_t* to) {
  float factors[Tile::kRowTiles][2];
#pragma unroll
  for (auto& both : factors) {
    both[0] = both[1] = factor;
  }
  write_rows<kType, Tile>(sums, factors, rows, width, to);
}

// Transposes a 2 x 2 matrix whose rows two lanes hold.
__device__ inline void turn(bool is_second, unsigned lanes, std::uint32_t& first,
                            std::uint32_t& second) {
  const std::uint32_t got = device::shuffle_xor(is_second ? first : second, lanes);
  first = is_second ? got : first;
  second = is_second ? second : got;
}

// Seeds of dropout for a warp's rows, where rows are queries. Two neighbouring lanes share two rows
// of a tile, and each draws for one of them.
template <class Tile>
struct RowSeeds {
  std::uint64_t of_tile[Tile::kRowTiles];

  // Args: seeds, of the block's first row, of which `rows` are left.
  __device__ void load(const std::int64_t* seeds, int rows) {
    const unsigned lane = device::lane_index();
    for (unsigned i = 0; i < Tile::kRowTiles; ++i) {
      const int row = row_of<Tile>(i, lane % 2);
      of_tile[i] = seeds != nullptr && row < rows ? static_cast<std::uint64_t>(seeds[row]) : 0;
    }
  }

  // Draws the words of the four weights of tile i whose first column is `key`, a multiple of 8.
  __device__ void draw(unsigned i, int key, std::uint32_t (&words)[4]) const {
    const unsigned lane = device::lane_index();
    const auto block = static_cast<std::uint32_t>(key / 4) + lane % 4 / 2;
    philox_block({device::made_anew(of_tile[i]), 0}, block, words);
    turn(lane % 2 != 0, 1, words[0], words[2]);
    turn(lane % 2 != 0, 1, words[1], words[3]);
  }
};

// Draws the words where rows are keys from `key` on, a multiple of 8, and columns are queries: four
// lanes share the blocks of two queries, and each draws for one query and half of the rows.
__device__ inline void draw_for_keys(const std::uint64_t* seeds, int key,
                                     std::uint32_t (&words)[4]) {
  const unsigned lane = device::lane_index();
  const unsigned turn_of = lane / 4 % 4;
  const std::uint64_t seed = seeds[lane % 4 * 2 + turn_of % 2];
  const auto block = static_cast<std::uint32_t>(key / 4) + turn_of / 2 * 2 + lane / 16;
  philox_block({device::made_anew(seed), 0}, block, words);
  turn(turn_of % 2 != 0, 4, words[0], words[1]);
  turn(turn_of % 2 != 0, 4, words[2], words[3]);
  turn(turn_of / 2 != 0, 8, words[0], words[2]);
  turn(turn_of / 2 != 0, 8, words[1], words[3]);
}

}  // namespace
}  // namespace gt
