// Contiguous copies of arrays whose dimensions stand in another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gt {

struct StridedDim {
  std::int64_t size, stride;  // in elements
};

// out = the elements, of 1, 2, 4 or 8 bytes, in row-major order, on at most `threads` threads. No
// dimension may be of size 0. std::invalid_argument for elements of other sizes.
void strided_copy(std::size_t element_bytes, const void* from, std::span<const StridedDim> dims,
                  void* out, int threads);

}  // namespace gt
