// Operations along one dimension of an array: cuts rows or columns into tasks for threads. The
// loops are array_path.h's. Bits do not depend on `threads`, the maximum number used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {

// A contiguous, nonempty array [outer, count, inner]; operations run along the middle dim.
struct DimShape {
  std::size_t outer, count, inner;
};

// Maximum count, because an index along columns is an int32 during the search.
inline constexpr std::size_t kPlacesMost = INT32_MAX;

// out [outer, count, inner]. The bits are PyTorch's, since both add in float64, one number after
// another.
void cumsum(const float* x, float* out, const DimShape& shape, int threads);

// Running counts of bools, as exact integers.
void cumsum(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads);

// out [outer, inner]: number of true bools.
void count_true(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads);

// out [outer, inner]: indices along the dim; count is at most kPlacesMost.
void places(Place kind, const float* x, std::int64_t* out, const DimShape& shape, int threads);

// kAny: some number is not zero; kAll: no number is zero.
enum class Truth { kAny, kAll };

// out [outer, inner], with bools of one byte.
void truth(Truth kind, const float* x, std::uint8_t* out, const DimShape& shape, int threads);
void truth(Truth kind, const std::uint8_t* x, std::uint8_t* out, const DimShape& shape,
           int threads);

struct SpreadKind {
  double correction;  // the divisor is count - correction, which is above zero
  bool is_root;
};

// out [outer, inner]: variances or standard deviations.
void spread(const SpreadKind& kind, const float* x, float* out, const DimShape& shape, int threads);

}  // namespace gt
