// Products of bfloat16 by the processor's own instruction, two of them a lane (AVX512_BF16). This
// file alone is compiled with it.
#include <immintrin.h>

#include "cpu/matmul/loops.h"

namespace gt {
namespace {

constexpr int kPairLanes = 16;
constexpr int kPairColumns = kTileVectors * kPairLanes;

// A unit of a panel is two steps of depth: a 32-bit word for each number across.
void multiply_pairs(std::int64_t depth, const void* a_panel, const void* b_panel, float* tile,
                    std::int64_t ld, bool add) {
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
  for (int row = 0; row < kTileRows; ++row) {
    for (int v = 0; v < kTileVectors; ++v) {
      float* to = tile + row * ld + v * kPairLanes;
      const __m512 old = add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
      _mm512_storeu_ps(to, _mm512_add_ps(old, sums[row][v]));
    }
  }
}

// Two rows of 16 numbers as 16 pairs.
inline void interleave(const std::uint16_t* first, const std::uint16_t* second, std::uint32_t* to) {
  const auto words = [](const std::uint16_t* from) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  _mm512_storeu_si512(to, _mm512_or_si512(words(first), _mm512_slli_epi32(words(second), 16)));
}

// Whole pairs of a whole panel, by vectors; how many steps of depth those were.
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
    // Pairs lie side by side already, as words of a matrix that is to be transposed.
    const auto* words = reinterpret_cast<const float*>(from);
    auto* out = reinterpret_cast<float*>(to);
    const std::int64_t across = source.across / 2;
    for (; done + 8 <= depth; done += 8) {
      for (int i = 0; i < width; i += 4) {
        transpose_four(words + i * across + done / 2, across, out + done / 2 * width + i, width);
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

// kColumns dot products of kRows rows at once, 32 steps at a time. x holds values of bfloat16, so
// making them such again rounds nothing.
template <int kRows, int kColumns>
void dot_pairs(std::int64_t depth, const float* x, const std::uint16_t* w, std::int64_t across,
               float* sums, std::int64_t ld) {
  __m512 sum[kRows][kColumns] = {};
  const auto add = [&](std::int64_t step, __mmask32 lanes) {
    __m512bh left[kRows];
    for (int row = 0; row < kRows; ++row) {
      const float* from = x + row * depth + step;
      left[row] = _mm512_cvtne2ps_pbh(
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes >> 16), from + kPairLanes),
          _mm512_maskz_loadu_ps(static_cast<__mmask16>(lanes), from));
    }
#pragma GCC unroll 8
    for (int column = 0; column < kColumns; ++column) {
      const auto right =
          __builtin_bit_cast(__m512bh, _mm512_maskz_loadu_epi16(lanes, w + column * across + step));
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
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      sums[row * ld + column] =
          lane_sum<float>(__builtin_bit_cast(Vector<float>, sum[row][column]));
    }
  }
}

template <int kRows>
void dots_of_pairs(std::int64_t depth, const float* x, const std::uint16_t* w, std::int64_t across,
                   std::int64_t begin, std::int64_t end, float* sums, std::int64_t ld) {
  constexpr int kColumns = kRows == 1 ? 8 : 4;
  std::int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) {
    dot_pairs<kRows, kColumns>(depth, x, w + column * across, across, sums + column, ld);
  }
  for (; column < end; ++column) {
    dot_pairs<kRows, 1>(depth, x, w + column * across, across, sums + column, ld);
  }
}

void skinny_pairs(int m, std::int64_t depth, const float* x, const PanelSource& source,
                  std::int64_t begin, std::int64_t end, float* sums, std::int64_t ld) {
  const auto* w = static_cast<const std::uint16_t*>(source.data);
  for (int row = 0; row < m;) {
    const float* left = x + row * depth;
    float* to = sums + row * ld;
    const int rows = m - row;
    if (rows >= 4) {
      dots_of_pairs<4>(depth, left, w, source.across, begin, end, to, ld);
      row += 4;
    } else if (rows >= 2) {
      dots_of_pairs<2>(depth, left, w, source.across, begin, end, to, ld);
      row += 2;
    } else {
      dots_of_pairs<1>(depth, left, w, source.across, begin, end, to, ld);
      row += 1;
    }
  }
}

constexpr MatmulPath<float> pair_path() {
  MatmulPath<float> path = matmul_path<float>();
  path.depth_step = 2;
  path.multiply = multiply_pairs;
  path.pack = pack_pairs;
  path.skinny_columns = skinny_pairs;
  return path;
}

}  // namespace

extern constexpr MatmulPath<float> kAvx512MatmulBf16 = pair_path();

}  // namespace gt
