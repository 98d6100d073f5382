// Products of bfloat16 by the processor's own instruction, two products in a lane (AVX512_BF16).
// Only this file is compiled with it.
#include <immintrin.h>

#include "cpu/matmul/loops.h"

namespace gt {
namespace {

constexpr int kPairLanes = 16;
constexpr int kPairColumns = kTileVectors * kPairLanes;

// A unit of a panel has two steps of depth: a 32-bit word for each row or column.
void multiply_pairs(std::int64_t depth, int /*some_rows*/, int /*some_columns*/,
                    const void* a_panel, const void* b_panel, float* tile, std::int64_t ld,
                    bool add) {
  const auto* a = static_cast<const std::int32_t*>(a_panel);
  const auto* b = static_cast<const std::int32_t*>(b_panel);
  __m512 sums[kTileRows][kTileVectors] = {};
  for (std::int64_t step = 0; step < depth; step += 2) {
    const auto low = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b));
    const auto high = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(b + kPairLanes));
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) {
      const auto left = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(a[row]));
      sums[row][0] = _mm512_dpbf16_ps(sums[row][0], left, low);
      sums[row][1] = _mm512_dpbf16_ps(sums[row][1], left, high);
    }
    a += kTileRows;
    b += kPairColumns;
  }
#pragma GCC unroll 16
  for (int row = 0; row < kTileRows; ++row) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v) {
      float* to = tile + row * ld + v * kPairLanes;
      const __m512 old = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(to, _mm512_add_ps(old, sums[row][v]));
    }
  }
}

// Interleaves two rows of 16 numbers into 16 pairs.
inline void interleave(const std::uint16_t* first, const std::uint16_t* second, std::uint32_t* to) {
  const auto words = [](const std::uint16_t* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  _mm512_storeu_si512(to, _mm512_or_si512(words(first), _mm512_slli_epi32(words(second), 16)));
}

// Packs the whole pairs of a full panel by vectors; returns the steps of depth done.
std::int64_t pack_whole_pairs(const PanelSource& source, int width, std::int64_t depth,
                              std::uint32_t* to) {
  const auto* from = static_cast<const std::uint16_t*>(source.data);
  std::int64_t done = 0;
  if (source.across == 1 && width % kPairLanes == 0) {
    for (; done + 2 <= depth; done += 2) {
      const std::uint16_t* at = from + done * source.along;
      for (int i = 0; i < width; i += kPairLanes) {
        interleave(at + i, at + source.along + i, to + done / 2 * width + i);
      }
    }
  } else if (source.along == 1 && source.across % 2 == 0 && width % 4 == 0) {
    // Pairs are adjacent already: the matrix is transposed as one of 32-bit words.
    const auto* words = reinterpret_cast<const float*>(from);
    auto* out = reinterpret_cast<float*>(to);
    const std::int64_t across = source.across / 2;
    for (; done + 2 * kTurned <= depth; done += 2 * kTurned) {
      for (int i = 0; i < width; i += 4) {
        turn_four(words + i * across + done / 2, across, out + done / 2 * width + i, width);
      }
    }
  }
  return done;
}

void pack_pairs(const PanelSource& source, int width, int count, std::int64_t depth, void* panel) {
  const auto* from = static_cast<const std::uint16_t*>(source.data);
  auto* to = static_cast<std::uint32_t*>(panel);
  const std::int64_t done = count == width ? pack_whole_pairs(source, width, depth, to) : 0;
  to += done / 2 * width;
  for (std::int64_t step = done; step < depth; step += 2) {
    const std::uint16_t* at = from + step * source.along;
    const bool has_second = step + 1 < depth;
    const std::int64_t along = has_second ? source.along : 0;
    const std::uint32_t second = has_second ? 0xFFFFU : 0;
    for (int i = 0; i < count; ++i) {
      const std::uint16_t* low = at + i * source.across;
      to[i] = static_cast<std::uint32_t>(*low) | ((low[along] & second) << 16);
    }
    for (int i = count; i < width; ++i) {
      to[i] = 0;
    }
    to += width;
  }
}

// Converts float32 numbers that are values of bfloat16 to bfloat16 in place, once for all columns.
void narrow(std::int64_t count, float* x) {
  auto* to = reinterpret_cast<std::uint16_t*>(x);
  for (std::int64_t i = 0; i < count; i += kPairLanes) {
    const std::int64_t left = count - i < kPairLanes ? count - i : kPairLanes;
    const auto lanes = static_cast<__mmask16>((1U << left) - 1);
    const __m256bh narrowed = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, x + i));
    _mm256_mask_storeu_epi16(to + i, lanes, __builtin_bit_cast(__m256i, narrowed));
  }
}

// Computes kRows x kColumns dot products at once, 32 steps at a time.
template <int kRows, int kColumns>
void dot_pairs(std::int64_t depth, const std::uint16_t* x, const std::uint16_t* w,
               std::int64_t across, float* sums, std::int64_t ld) {
  __m512 sum[kRows][kColumns] = {};
  const auto load_some = [](__mmask32 lanes, const std::uint16_t* from) {
    return __builtin_bit_cast(__m512bh, _mm512_maskz_loadu_epi16(lanes, from));
  };
  const auto add = [&](std::int64_t step, __mmask32 lanes) {
    __m512bh left[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      left[row] = load_some(lanes, x + row * depth + step);
    }
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      fetch_ahead<float>(w + column * across + step);
      const __m512bh right = load_some(lanes, w + column * across + step);
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        sum[row][column] = _mm512_dpbf16_ps(sum[row][column], left[row], right);
      }
    }
  };
  constexpr std::int64_t kSteps = 2 * kPairLanes;
  std::int64_t step = 0;
  for (; step + kSteps <= depth; step += kSteps) {
    add(step, ~__mmask32{0});
  }
  if (step < depth) {
    add(step, (__mmask32{1} << (depth - step)) - 1);
  }
  // Unrolled, because sums with a variable index would be stored at each step.
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      sums[row * ld + column] =
          lane_sum<float>(__builtin_bit_cast(Vector<float>, sum[row][column]));
    }
  }
}

// Computes kColumns columns for all rows of x: the first rows load them into the cache for the
// others.
template <int kColumns>
void dots_of_pairs(int m, std::int64_t depth, const std::uint16_t* x, const std::uint16_t* w,
                   std::int64_t across, float* sums, std::int64_t ld) {
  int row = 0;
  for (; row + 4 <= m; row += 4) {
    dot_pairs<4, kColumns>(depth, x + row * depth, w, across, sums + row * ld, ld);
  }
  if (row + 2 <= m) {
    dot_pairs<2, kColumns>(depth, x + row * depth, w, across, sums + row * ld, ld);
    row += 2;
  }
  if (row < m) {
    dot_pairs<1, kColumns>(depth, x + row * depth, w, across, sums + row * ld, ld);
  }
}

void skinny_pairs(int m, std::int64_t depth, const float* narrowed, const PanelSource& source,
                  std::int64_t begin, std::int64_t end, float* sums, std::int64_t ld) {
  constexpr int kColumns = 4;
  const auto* w = static_cast<const std::uint16_t*>(source.data);
  const auto* x = reinterpret_cast<const std::uint16_t*>(narrowed);
  std::int64_t column = begin;
  for (; m == 1 && column + 2 * kColumns <= end; column += 2 * kColumns) {
    dots_of_pairs<2 * kColumns>(m, depth, x, w + column * source.across, source.across,
                                sums + column, ld);
  }
  for (; column + kColumns <= end; column += kColumns) {
    dots_of_pairs<kColumns>(m, depth, x, w + column * source.across, source.across, sums + column,
                            ld);
  }
  for (; column < end; ++column) {
    dots_of_pairs<1>(m, depth, x, w + column * source.across, source.across, sums + column, ld);
  }
}

constexpr MatmulPath<float> pair_path() {
  MatmulPath<float> path = matmul_path<float>();
  path.depth_step = 2;
  path.multiply = multiply_pairs;
  path.pack = pack_pairs;
  path.skinny_columns = skinny_pairs;
  path.narrow = narrow;
  return path;
}

}  // namespace

extern constexpr MatmulPath<float> kAvx512MatmulBf16 = pair_path();

}  // namespace gt
