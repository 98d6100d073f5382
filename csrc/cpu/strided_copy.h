// Contiguous copies of arrays whose dimensions stand in another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gt {

struct StridedDim {
  std::int64_t size, stride;  // in elements
};

// out = the elements in row-major order. No dimension may be of size 0.
void strided_copy(const float* from, std::span<const StridedDim> dims, float* out);

}  // namespace gt
