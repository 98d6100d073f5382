// The largest or smallest numbers of rows, in order, with their places.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gt {

inline constexpr std::size_t kTopMost = 64;

// Contiguous rows of `count` numbers each, of which the first `k` in order are asked for: at least
// one, at most kTopMost and all.
struct TopRows {
  std::size_t rows, count, k;
  bool largest;
};

// values and places [rows, k]. is_unclear [rows]: whether another order would be as good, since two
// of the first are equal, or the last of them and the next, or something is no number; or whether
// too many numbers are before all so far, as in a row that is sorted the other way, for this to be
// quick. There values and places are not set.
void top_rows(const float* x, float* values, std::int64_t* places, std::uint8_t* is_unclear,
              const TopRows& shape, int threads);

}  // namespace gt
