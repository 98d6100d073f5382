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

void pack_pairs(const PanelSource& source, int width, int count, std::int64_t depth, void* panel) {
  const auto* from = static_cast<const std::uint16_t*>(source.data);
  auto* to = static_cast<std::uint32_t*>(panel);
  for (std::int64_t step = 0; step < depth; step += 2) {
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

constexpr MatmulPath<float> pair_path() {
  MatmulPath<float> path = matmul_path<float>();
  path.depth_step = 2;
  path.multiply = multiply_pairs;
  path.pack = pack_pairs;
  return path;
}

}  // namespace

extern constexpr MatmulPath<float> kAvx512MatmulBf16 = pair_path();

}  // namespace gt
