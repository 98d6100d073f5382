// Comparisons of arrays of integers, over threads. The loops are array_path.h's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/array_path.h"

namespace gt {

// out [count], bools, from x [count] and y, which is [count] too or one number for all.
template <class T>
struct Compared {
  const T* x;
  const T* y;
  bool is_one;
  std::uint8_t* out;
  std::size_t count;
};

void compare(Comparison kind, const Compared<std::int32_t>& arrays, int threads);
void compare(Comparison kind, const Compared<std::int64_t>& arrays, int threads);

}  // namespace gt
