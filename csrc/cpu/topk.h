// The largest or smallest numbers of rows, in order, with their indices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

inline constexpr std::size_t kTopMost = 64;

// Contiguous rows of `count` numbers each; the first `k` in order are asked for, with 1 <= k <=
// min(kTopMost, count).
struct TopRows {
  std::size_t rows, count, k;
  bool largest;
};

// values and places are [rows, k]. is_unclear [rows]: values and places of the row are not set,
// because another choice would be valid too (two of the first k are equal, or the last of them and
// the next, or some number is NaN), or because the row has so many insertions, as one sorted the
// other way, that another method is faster.
void top_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* is_unclear,
              const TopRows& shape, int threads);

}  // namespace gt
