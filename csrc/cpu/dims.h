// What is computed along one dimension of an array, over threads: which rows or columns are a task.
// The loops are array_path.h's. The bits do not depend on threads, which is the most that are used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {

// A contiguous array [outer, count, inner] with elements, along whose middle dimension something is
// computed.
struct DimShape {
  std::size_t outer, count, inner;
};

// A place among columns is an int32 while it is looked for.
inline constexpr std::size_t kPlacesMost = INT32_MAX;

// out [outer, count, inner]: PyTorch's bits, as both add in float64, one after another.
void cumsum(const float* x, float* out, const DimShape& shape, int threads);

// The same of bools; integers are exact.
void cumsum(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads);

// out [outer, inner]: how many bools are true.
void count_true(const std::uint8_t* x, std::int64_t* out, const DimShape& shape, int threads);

// out [outer, inner]; count is at most kPlacesMost.
void places(Place kind, const float* x, std::int64_t* out, const DimShape& shape, int threads);

// Whether one number is not zero; whether none is zero.
enum class Truth { kAny, kAll };

// out [outer, inner]. A bool is a byte.
void truth(Truth kind, const float* x, std::uint8_t* out, const DimShape& shape, int threads);
void truth(Truth kind, const std::uint8_t* x, std::uint8_t* out, const DimShape& shape,
           int threads);

struct SpreadKind {
  double correction;  // the sum of squares is divided by count - correction, which is above zero
  bool is_root;
};

// out [outer, inner]: variances or standard deviations.
void spread(const SpreadKind& kind, const float* x, float* out, const DimShape& shape, int threads);

}  // namespace gt
